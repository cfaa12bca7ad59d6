// C = A B, row-major; A is m x k, B is k x n. float16, sums in float.
#include <cuda_fp16.h>

using element = __half;
using accumulator = float;

constexpr int BLOCK_M = 64;  // a block computes BLOCK_M x BLOCK_N elements of C ...
constexpr int BLOCK_N = 64;
constexpr int BLOCK_K = 16;  // ... in steps of BLOCK_K along k
constexpr int THREADS = 256;

constexpr int THREAD_M = 4;  // a thread computes THREAD_M x THREAD_N of them in registers
constexpr int THREAD_N = 4;
constexpr int LANES_M = 4;  // the lanes of a warp lie LANES_M x LANES_N, side by side
constexpr int LANES_N = 32 / LANES_M;
constexpr int WARP_M = LANES_M * THREAD_M;  // so a warp computes WARP_M x WARP_N
constexpr int WARP_N = LANES_N * THREAD_N;

// A thread's rows and columns come in chunks that it reads from shared memory at once. The chunks of neighbouring
// lanes lie side by side, and a thread's next chunk after those of all lanes: no two lanes meet in a bank.
constexpr int CHUNK_M = 4;
constexpr int CHUNK_N = 4;
__device__ constexpr int row_of(int i) { return i / CHUNK_M * (LANES_M * CHUNK_M) + i % CHUNK_M; }
__device__ constexpr int col_of(int j) { return j / CHUNK_N * (LANES_N * CHUNK_N) + j % CHUNK_N; }

constexpr int VECTOR = 4;  // elements that one load or store of global memory moves
constexpr int A_PITCH = BLOCK_M + 4;  // A's tile is turned: As[kk][row], so that a thread's rows are neighbours
constexpr int A_ELEMENTS = BLOCK_K * A_PITCH;
constexpr int B_PITCH = BLOCK_N;  // Bs[kk][col]
constexpr int B_ELEMENTS = BLOCK_K * B_PITCH;

template <int BYTES> struct word_of;
template <> struct word_of<2> { using type = unsigned short; };
template <> struct word_of<4> { using type = unsigned int; };
template <> struct word_of<8> { using type = uint2; };
template <> struct word_of<16> { using type = uint4; };
template <int COUNT> using word = typename word_of<COUNT * sizeof(element)>::type;  // COUNT elements, moved at once

// Elements before row `row` of a matrix in global memory: more than 32 bits can count, from two 32-bit numbers.
__device__ __forceinline__ size_t offset(int row, int pitch) { return size_t(unsigned(row)) * unsigned(pitch); }

template <int COUNT> __device__ __forceinline__ void copy(element* to, const element* from) {
    *reinterpret_cast<word<COUNT>*>(to) = *reinterpret_cast<const word<COUNT>*>(from);
}

// From global to shared memory.
template <int COUNT> __device__ __forceinline__ void fetch(element* to, const element* from) {
    copy<COUNT>(to, from);
}

// The tile of A that begins at `a`. CHECKED: only rows_left rows and k_left columns are in A, the rest counts as zero.
template <bool CHECKED>
__device__ __forceinline__ void load_a(element* As, const element* __restrict__ a, int k, int rows_left, int k_left) {
    constexpr int WIDTH = VECTOR;
    constexpr int WORDS = BLOCK_M * BLOCK_K / WIDTH;
#pragma unroll
    for (int step = 0; step < (WORDS - 1) / THREADS + 1; step++) {
        const int i = step * THREADS + threadIdx.x;
        if (WORDS % THREADS != 0 && i >= WORDS) break;
        const int row = i / (BLOCK_K / WIDTH), kk = i % (BLOCK_K / WIDTH) * WIDTH;
        const element* from = a + offset(row, k) + kk;
        const bool inside = !CHECKED || (row < rows_left && kk < k_left);
        alignas(16) element turned[WIDTH] = {};
        if (inside) copy<WIDTH>(turned, from);
#pragma unroll
        for (int e = 0; e < WIDTH; e++) As[(kk + e) * A_PITCH + row] = turned[e];
    }
}

// The tile of B that begins at `b`, in the same way.
template <bool CHECKED>
__device__ __forceinline__ void load_b(element* Bs, const element* __restrict__ b, int n, int k_left, int cols_left) {
    constexpr int WORDS = BLOCK_K * BLOCK_N / VECTOR;
#pragma unroll
    for (int step = 0; step < (WORDS - 1) / THREADS + 1; step++) {
        const int i = step * THREADS + threadIdx.x;
        if (WORDS % THREADS != 0 && i >= WORDS) break;
        const int kk = i / (BLOCK_N / VECTOR), col = i % (BLOCK_N / VECTOR) * VECTOR;
        element* to = &Bs[kk * B_PITCH + col];
        if (!CHECKED || (kk < k_left && col < cols_left)) fetch<VECTOR>(to, b + offset(kk, n) + col);
        else *reinterpret_cast<word<VECTOR>*>(to) = word<VECTOR>{};
    }
}

// COUNT neighbours from shared memory, in one read, as accumulators.
template <int COUNT> __device__ __forceinline__ void read(accumulator* to, const element* from) {
    alignas(16) element chunk[COUNT];
    copy<COUNT>(chunk, from);
#pragma unroll
    for (int e = 0; e < COUNT; e++) to[e] = accumulator(chunk[e]);
}

// Adds one tile's products. Each element read from shared memory is used THREAD_N or THREAD_M times from registers.
// As and Bs begin at the thread's own first row and column.
__device__ __forceinline__ void multiply(accumulator (&sum)[THREAD_M][THREAD_N], const element* As, const element* Bs) {
#pragma unroll 8
    for (int kk = 0; kk < BLOCK_K; kk++) {
        accumulator a[THREAD_M], b[THREAD_N];
#pragma unroll
        for (int i = 0; i < THREAD_M; i += CHUNK_M)
            read<CHUNK_M>(&a[i], &As[kk * A_PITCH + row_of(i)]);
#pragma unroll
        for (int j = 0; j < THREAD_N; j += CHUNK_N) read<CHUNK_N>(&b[j], &Bs[kk * B_PITCH + col_of(j)]);
#pragma unroll
        for (int i = 0; i < THREAD_M; i++)
#pragma unroll
            for (int j = 0; j < THREAD_N; j++) sum[i][j] += a[i] * b[j];
    }
}

// The thread's elements of C, from its first one on. CHECKED: only rows_left x cols_left of them are in C.
template <bool CHECKED>
__device__ __forceinline__ void store(element* __restrict__ c, const accumulator (&sum)[THREAD_M][THREAD_N], int n,
                                      int rows_left, int cols_left) {
    constexpr int WIDTH = VECTOR < CHUNK_N ? VECTOR : CHUNK_N;
#pragma unroll
    for (int i = 0; i < THREAD_M; i++) {
#pragma unroll
        for (int j = 0; j < THREAD_N; j += WIDTH) {
            if (CHECKED && (row_of(i) >= rows_left || col_of(j) >= cols_left)) continue;
            alignas(16) element chunk[WIDTH];
#pragma unroll
            for (int e = 0; e < WIDTH; e++) chunk[e] = element(sum[i][j + e]);
            copy<WIDTH>(c + offset(row_of(i), n) + col_of(j), chunk);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
matmul(const element* __restrict__ a, const element* __restrict__ b, element* __restrict__ c, int m, int n, int k) {
    __shared__ __align__(16) element As[A_ELEMENTS];
    __shared__ __align__(16) element Bs[B_ELEMENTS];
    // Which tile of C is this block's? Blocks start in the order of their number.
    const int block = blockIdx.x;
    const int tiles_n = (n - 1) / BLOCK_N + 1;
    const int row0 = block / tiles_n * BLOCK_M;
    const int col0 = block % tiles_n * BLOCK_N;
    const int m_left = m - row0, n_left = n - col0;  // rows and columns of C from here on
    const bool full = m_left >= BLOCK_M && n_left >= BLOCK_N;  // the same for all threads of the block

    // Where in the tile is this thread?
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / (BLOCK_N / WARP_N) * WARP_M + lane / LANES_N * CHUNK_M;
    const int col = warp % (BLOCK_N / WARP_N) * WARP_N + lane % LANES_N * CHUNK_N;
    const int a_first = row;  // its first element of As ...
    const int b_first = col;  // ... and of Bs

    a += offset(row0, k);
    b += col0;
    accumulator sum[THREAD_M][THREAD_N] = {};
    const auto load = [&](element* As, element* Bs, int step) {
        const int k0 = step * BLOCK_K, k_left = k - k0;
        if (full && k_left >= BLOCK_K) {
            load_a<false>(As, a + k0, k, BLOCK_M, BLOCK_K);
            load_b<false>(Bs, b + offset(k0, n), n, BLOCK_K, BLOCK_N);
        } else {
            load_a<true>(As, a + k0, k, m_left, k_left);
            load_b<true>(Bs, b + offset(k0, n), n, k_left, n_left);
        }
    };
    const int steps = (k - 1) / BLOCK_K + 1;

    for (int step = 0; step < steps; step++) {
        load(As, Bs, step);
        __syncthreads();  // the tiles are whole before anyone reads them
        multiply(sum, As + a_first, Bs + b_first);
        __syncthreads();  // all have read them before anyone overwrites them
    }

    c += offset(row0 + row, n) + (col0 + col);
    if (full) store<false>(c, sum, n, BLOCK_M, BLOCK_N);
    else store<true>(c, sum, n, m_left - row, n_left - col);
}
