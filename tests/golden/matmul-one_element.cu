// C = A B, row-major; A is m x k, B is k x n. float32, sums in float.

using element = float;
using accumulator = float;

constexpr int BLOCK_M = 32;  // a block computes BLOCK_M x BLOCK_N elements of C ...
constexpr int BLOCK_N = 32;

extern "C" __global__ void __launch_bounds__(BLOCK_M * BLOCK_N, 1)
matmul(const element* __restrict__ a, const element* __restrict__ b, element* __restrict__ c, int m, int n, int k) {
    // Which tile of C is this block's? Blocks start in the order of their number.
    const int block = blockIdx.x;
    const int tiles_n = (n - 1) / BLOCK_N + 1;
    const int row0 = block / tiles_n * BLOCK_M;
    const int col0 = block % tiles_n * BLOCK_N;
    const int row = threadIdx.y, col = threadIdx.x;  // this thread's element of the tile
    if (row >= m - row0 || col >= n - col0) return;  // no barrier follows, so a thread outside C may leave

    a += size_t(row0 + row) * k;
    b += col0 + col;
    accumulator sum = 0;
#pragma unroll 4
    for (int kk = 0; kk < k; kk++) sum += accumulator(a[kk]) * accumulator(b[size_t(kk) * n]);
    c[size_t(row0 + row) * n + col0 + col] = element(sum);
}
