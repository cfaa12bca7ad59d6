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

extern "C" __global__ void __launch_bounds__(BLOCK_M * BLOCK_N, 1)
matmul(const element* __restrict__ a, const element* __restrict__ b, element* c, const element* addend,
       const element* __restrict__ bias, void* scratch, accumulator alpha, accumulator beta, int m, int n,
       int k, int batch, int a_pitch, int b_pitch, int c_pitch, int a_step, int b_step, int c_step) {
    const int matrix = blockIdx.z * 32768 + blockIdx.y;
    if (matrix >= batch) return;  // the whole block

    a += size_t(matrix) * a_step * a_pitch;
    b += size_t(matrix) * b_step * b_pitch;
    int row0, col0;
    find_tile(blockIdx.x, m, n, row0, col0);
    const int row = row0 + threadIdx.y, col = col0 + threadIdx.x;  // this thread's element of C
    if (row >= m || col >= n) return;  // no barrier follows, so a thread outside C may leave

    accumulator sum = 0;
#pragma unroll 4
    for (int kk = 0; kk < k; kk++)
        sum += accumulator(a[offset(row, a_pitch) + kk]) *
               accumulator(b[offset(kk, b_pitch) + col]);
    result_of(c, addend, bias, alpha, beta, matrix, c_pitch, c_step).put(sum, row, col);
}
