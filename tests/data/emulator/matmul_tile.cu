#define T 32
extern "C" __global__ void matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                                  int m, int n, int k) {
  __shared__ float a_tile[T][T];
  __shared__ float b_tile[T][T];
  int tx = threadIdx.x, ty = threadIdx.y;
  int row = blockIdx.y * T + ty, col = blockIdx.x * T + tx;
  float sum = 0.0f;
  for (int k0 = 0; k0 < k; k0 += T) {
    a_tile[ty][tx] = row < m && k0 + tx < k ? a[row * k + k0 + tx] : 0.0f;  // fill a
    b_tile[ty][tx] = k0 + ty < k && col < n ? b[(k0 + ty) * n + col] : 0.0f;  // fill b
    __syncthreads();  // first barrier
#pragma unroll
    for (int i = 0; i < T; ++i) sum += a_tile[ty][i] * b_tile[i][tx];  // use
    __syncthreads();  // second barrier
  }
  if (row < m && col < n) c[row * n + col] = sum;  // result
}
