// C = A B, row-major; A is m x k, B is k x n. float32, sums in float.

using element = float;
using accumulator = float;

constexpr int BLOCK_M = 32;  // a block computes BLOCK_M x BLOCK_N elements of C ...
constexpr int BLOCK_N = 32;

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
constexpr int BLOCK_K = 32;  // ... in steps of BLOCK_K along k; all equal: a thread loads one element a tile

extern "C" __global__ void __launch_bounds__(BLOCK_M * BLOCK_N, 1)
matmul(const element* __restrict__ a, const element* __restrict__ b, element* c, const element* addend,
       const element* __restrict__ bias, void* scratch, accumulator alpha, accumulator beta, int m, int n,
       int k, int batch, int a_pitch, int b_pitch, int c_pitch, int a_step, int b_step, int c_step) {
    __shared__ __align__(16) element As[BLOCK_M][BLOCK_K];
    __shared__ __align__(16) element Bs[BLOCK_K][BLOCK_N];
    const int matrix = blockIdx.z * 32768 + blockIdx.y;
    if (matrix >= batch) return;  // the whole block

    a += size_t(matrix) * a_step * a_pitch;
    b += size_t(matrix) * b_step * b_pitch;
    int row0, col0;
    find_tile(blockIdx.x, m, n, row0, col0);
    const int ty = threadIdx.y, tx = threadIdx.x;  // this thread's element of each tile
    const int row = row0 + ty, col = col0 + tx;  // ... and of C

    accumulator sum = 0;
    for (int k0 = 0; k0 < k; k0 += BLOCK_K) {
        // Neighbouring threads load neighbouring elements. What lies outside A or B counts as zero.
        As[ty][tx] = row < m && k0 + tx < k ? a[offset(row, a_pitch) + k0 + tx] : element(0);
        Bs[ty][tx] = k0 + ty < k && col < n ? b[offset(k0 + ty, b_pitch) + col] : element(0);
        __syncthreads();  // the tiles are whole before anyone reads them

#pragma unroll 2
        for (int kk = 0; kk < BLOCK_K; kk++) sum += accumulator(As[ty][kk]) * accumulator(Bs[kk][tx]);
        __syncthreads();  // all have read them before anyone overwrites them
    }
    if (row < m && col < n) result_of(c, addend, bias, alpha, beta, matrix, c_pitch, c_step).put(sum, row, col);
}
