// C = A B, row-major; A is m x k, B is k x n. float32, sums in float.

using element = float;
using accumulator = float;

constexpr int BLOCK_M = 32;  // a block computes BLOCK_M x BLOCK_N elements of C ...
constexpr int BLOCK_N = 32;
constexpr int BLOCK_K = 32;  // ... in steps of BLOCK_K along k; all equal: a thread loads one element a tile

extern "C" __global__ void __launch_bounds__(BLOCK_M * BLOCK_N, 1)
matmul(const element* __restrict__ a, const element* __restrict__ b, element* __restrict__ c, int m, int n, int k) {
    __shared__ __align__(16) element As[BLOCK_M][BLOCK_K];
    __shared__ __align__(16) element Bs[BLOCK_K][BLOCK_N];
    // Which tile of C is this block's? Blocks start in the order of their number.
    const int block = blockIdx.x;
    const int tiles_n = (n - 1) / BLOCK_N + 1;
    const int row0 = block / tiles_n * BLOCK_M;
    const int col0 = block % tiles_n * BLOCK_N;
    const int m_left = m - row0, n_left = n - col0;  // rows and columns of C from here on
    const int ty = threadIdx.y, tx = threadIdx.x;  // this thread's element of each tile
    a += size_t(row0) * k;
    b += col0;

    accumulator sum = 0;
    for (int k_left = k; k_left > 0; k_left -= BLOCK_K) {
        // Neighbouring threads load neighbouring elements. What lies outside A or B counts as zero.
        As[ty][tx] = ty < m_left && tx < k_left ? a[size_t(ty) * k + tx] : element(0);
        Bs[ty][tx] = ty < k_left && tx < n_left ? b[size_t(ty) * n + tx] : element(0);
        __syncthreads();  // the tiles are whole before anyone reads them

#pragma unroll 2
        for (int kk = 0; kk < BLOCK_K; kk++) sum += accumulator(As[ty][kk]) * accumulator(Bs[kk][tx]);
        __syncthreads();  // all have read them before anyone overwrites them

        a += BLOCK_K;
        b += size_t(BLOCK_K) * n;
    }
    if (ty < m_left && tx < n_left) c[size_t(row0 + ty) * n + col0 + tx] = element(sum);
}
