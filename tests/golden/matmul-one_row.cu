// C = A B, row-major; A is m x k, B is k x n. float32, sums in float.
#include <cuda_pipeline.h>
#include <cooperative_groups.h>

using element = float;
using accumulator = float;

constexpr int BLOCK_M = 1;  // a block computes BLOCK_M x BLOCK_N elements of C ...
constexpr int BLOCK_N = 128;

// Elements before row `row` of a matrix in global memory: more than 32 bits can count, from two 32-bit numbers.
__device__ __forceinline__ size_t offset(int row, int pitch) { return size_t(unsigned(row)) * unsigned(pitch); }

// Where does a tile of C begin? Tiles are counted in the order in which blocks take them.
__device__ __forceinline__ void find_tile(int tile, int m, int n, int& row, int& col) {
    const int tiles_n = (n - 1) / BLOCK_N + 1;
    row = tile / tiles_n * BLOCK_M;
    col = tile % tiles_n * BLOCK_N;
}

// What becomes of a sum, and where it goes.
struct Result {
    element* c;
    const element* addend;
    const element* bias;
    accumulator alpha, beta;
    int pitch;

    __device__ __forceinline__ element of(accumulator sum, size_t at, int col) const {
        sum *= alpha;
        return element(sum);
    }

    __device__ __forceinline__ void put(accumulator sum, int row, int col) const {
        const size_t at = offset(row, pitch) + col;
        c[at] = of(sum, at, col);
    }
};

// Of matrix `matrix` of the batch.
__device__ __forceinline__ Result result_of(element* c, const element* addend, const element* bias, accumulator alpha,
                                            accumulator beta, int matrix, int pitch, int step) {
    const size_t first = size_t(matrix) * step * pitch;
    return {c + first, addend, bias, alpha, beta, pitch};
}

constexpr int BLOCK_K = 32;  // rows of B that a block takes at a time ...
constexpr int LANES_K = 1;  // lanes of a warp above each other; the others lie along n
constexpr int TAKERS = 4 * LANES_K;  // ... dealt out to so many: warps along k, and their lanes
constexpr int ROWS_OF_B = BLOCK_K / TAKERS;  // that a thread takes at a time
constexpr int AHEAD = 2;  // times that many are on their way while others are multiplied
constexpr int LANES_N = 32 / LANES_K;
constexpr int WARP_N = LANES_N * 4;  // columns of a warp, four a lane
constexpr int WARPS_N = BLOCK_N / WARP_N;  // warps side by side
constexpr int THREADS = 128;
constexpr int CLUSTER = 8;  // blocks that share a tile's k
constexpr int B_WIDTH = 4;  // elements of B that one load moves
constexpr int B_WORDS = 4 / B_WIDTH;

using word = uint4;  // of B
using Four = accumulator[4];

// Four neighbours, in words of 16 bytes.
__device__ __forceinline__ void copy_four(accumulator* to, const accumulator* from) {
#pragma unroll
    for (int i = 0; i < int(4 * sizeof(accumulator) / 16); i++)
        reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) __cluster_dims__(CLUSTER, 1, 1)
matmul(const element* __restrict__ a, const element* __restrict__ b, element* c, const element* addend,
       const element* __restrict__ bias, void* scratch, accumulator alpha, accumulator beta, int m, int n,
       int k, int batch, int a_pitch, int b_pitch, int c_pitch, int a_step, int b_step, int c_step) {
    extern __shared__ __align__(16) unsigned char smem[];  // sized by the launch, after k
    accumulator* const shared = reinterpret_cast<accumulator*>(smem);
    const int matrix = blockIdx.z * 32768 + blockIdx.y;
    if (matrix >= batch) return;  // the whole block

    a += size_t(matrix) * a_step * a_pitch;
    b += size_t(matrix) * b_step * b_pitch;
    const int rank = blockIdx.x % CLUSTER;
    int row0, col0;
    find_tile(blockIdx.x / CLUSTER, m, n, row0, col0);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int taker = warp / WARPS_N * LANES_K + lane / LANES_N;  // which of the rows, and which four columns
    const int warp_n = warp % WARPS_N, lane_n = lane % LANES_N;

    // This block's part of k. The first step hangs out over the beginning of k, so that all others are whole.
    const int steps = (k - 1) / BLOCK_K + 1, hidden = steps * BLOCK_K - k;
    const int begin = static_cast<int>(static_cast<long long>(steps) * rank / CLUSTER);
    const int end = static_cast<int>(static_cast<long long>(steps) * (rank + 1) / CLUSTER);
    const int k0 = begin * BLOCK_K - hidden, a_pitch_here = (end - begin) * BLOCK_K + 4;

    // The rows of B that this thread takes at step `step`, on their way into registers.
    const int first_k = k0 + taker * ROWS_OF_B;
    int at[B_WORDS];
#pragma unroll
    for (int w = 0; w < B_WORDS; w++) at[w] = min(col0 + warp_n * WARP_N + (w * LANES_N + lane_n) * B_WIDTH, n - B_WIDTH);
    word flow[AHEAD][ROWS_OF_B][B_WORDS];
    const auto load = [&](word (&to)[ROWS_OF_B][B_WORDS], int step) {
#pragma unroll
        for (int r = 0; r < ROWS_OF_B; r++) {
            const int kk = first_k + step * BLOCK_K + r;
#pragma unroll
            for (int w = 0; w < B_WORDS; w++) {
                const element* const from = b + offset(max(kk, 0), b_pitch) + at[w];  // what hangs out meets a zero of A
                to[r][w] = __ldcs(reinterpret_cast<const word*>(from));  // read once: it need not stay in any cache
            }
        }
    };
#pragma unroll
    for (int d = 0; d < AHEAD; d++)
        if (begin + d < end) load(flow[d], d);

    // Meanwhile the block's part of A: shared[row][kk]. A warp copies rows, neighbouring lanes neighbours of k.
    const int span = (end - begin) * BLOCK_K;
    constexpr int A_WIDTH = 4;  // elements of A that one copy moves
    for (int row = warp; row < BLOCK_M; row += THREADS / 32) {
        const element* const from = a + offset(row0 + row, a_pitch);
        for (int kk = lane * A_WIDTH; kk < span; kk += 32 * A_WIDTH) {
            accumulator* const to = shared + row * a_pitch_here + kk;
            const bool inside = row0 + row < m && k0 + kk >= 0;
            __pipeline_memcpy_async(to, inside ? from + (k0 + kk) : a, 16, inside ? 0 : 16);
        }
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();  // all of it is there before any of it is read

    Four sum[BLOCK_M] = {};
    const accumulator* const As = shared + taker * ROWS_OF_B;
    for (int step = begin; step < end; step += AHEAD) {
#pragma unroll
        for (int d = 0; d < AHEAD; d++) {
            if (step + d >= end) break;
            const int here = step + d - begin;
            Four b_rows[ROWS_OF_B];
#pragma unroll
            for (int r = 0; r < ROWS_OF_B; r++) {
                alignas(16) element four[4];
#pragma unroll
                for (int w = 0; w < B_WORDS; w++) reinterpret_cast<word*>(four)[w] = flow[d][r][w];
#pragma unroll
                for (int e = 0; e < 4; e++) b_rows[r][e] = accumulator(four[e]);
            }
            if (step + d + AHEAD < end) load(flow[d], here + AHEAD);
            if (here == 0 && begin == 0) {  // beyond the beginning of k: zero, as infinity times A's zero is not
#pragma unroll
                for (int r = 0; r < ROWS_OF_B; r++)
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (first_k + r < 0) b_rows[r][e] = 0;
            }
#pragma unroll
            for (int r = 0; r < ROWS_OF_B; r += 4)
#pragma unroll
                for (int i = 0; i < BLOCK_M; i++) {
                    alignas(16) Four a_four;  // the same for all lanes side by side: one read serves them
                    copy_four(a_four, As + i * a_pitch_here + here * BLOCK_K + r);
#pragma unroll
                    for (int x = 0; x < 4; x++)
#pragma unroll
                        for (int e = 0; e < 4; e++) sum[i][e] += a_four[x] * b_rows[r + x][e];
                }
        }
    }

    // Those that took different rows add up what they have, through shared memory.
    constexpr int WORDS = BLOCK_M * BLOCK_N / 4;  // fours of a block's tile
    __syncthreads();  // all are done with A
#pragma unroll
    for (int i = 0; i < BLOCK_M; i++) {
        alignas(16) Four four;
#pragma unroll
        for (int e = 0; e < 4; e++) four[e] = sum[i][e];
        copy_four(shared + (taker * WORDS + i * (BLOCK_N / 4) + warp_n * LANES_N + lane_n) * 4, four);
    }
    __syncthreads();
    namespace cg = cooperative_groups;
    const cg::cluster_group cluster = cg::this_cluster();
    for (int q = threadIdx.x; q < WORDS; q += THREADS) {
        alignas(16) Four four = {};
#pragma unroll
        for (int taken = 0; taken < TAKERS; taken++) {
            alignas(16) Four part;
            copy_four(part, shared + (taken * WORDS + q) * 4);
#pragma unroll
            for (int e = 0; e < 4; e++) four[e] += part[e];
        }
        copy_four(shared + q * 4, four);  // in the first one's place, which no other thread reads
    }
    cluster.sync();  // every block's sums are there before any is read
    const Result result = result_of(c, addend, bias, alpha, beta, matrix, c_pitch, c_step);
    for (int q = rank * THREADS + threadIdx.x; q < WORDS; q += CLUSTER * THREADS) {
        alignas(16) Four four = {};
#pragma unroll
        for (int part = 0; part < CLUSTER; part++) {
            alignas(16) Four other;
            copy_four(other, cluster.map_shared_rank(shared, part) + q * 4);
#pragma unroll
            for (int e = 0; e < 4; e++) four[e] += other[e];
        }
        const int row = row0 + q / (BLOCK_N / 4), place = q % (BLOCK_N / 4);
        if (row >= m) continue;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int col = col0 + place / LANES_N * WARP_N + (e / B_WIDTH * LANES_N + place % LANES_N) * B_WIDTH + e % B_WIDTH;
            if (col < n) result.put(four[e], row, col);
        }
    }
    cluster.sync();  // a block that left would take its shared memory from those that still read it
}
