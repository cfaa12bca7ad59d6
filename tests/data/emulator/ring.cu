// Each block sums its tiles of 128 floats, which come through a ring of STAGES stages of asynchronous copies.
#include <cuda_pipeline.h>
#ifndef STAGES
#define STAGES 3
#endif
#ifndef PENDING
#define PENDING (STAGES - 2)
#endif
#define TILE 128

extern "C" __global__ void __launch_bounds__(32) ring(const float* __restrict__ in, float* __restrict__ out, int tiles) {
  extern __shared__ __align__(16) unsigned char smem[];
  float* stages = reinterpret_cast<float*>(smem);
  const int lane = threadIdx.x;
  auto fetch = [&](int tile) {
    if (tile < tiles)
      __pipeline_memcpy_async(stages + tile % STAGES * TILE + 4 * lane, in + tile * TILE + 4 * lane, 16);  // copy
    __pipeline_commit();
  };
  for (int tile = 0; tile < STAGES - 1; ++tile) fetch(tile);
  float sum = 0.0f;
  for (int tile = 0; tile < tiles; ++tile) {
#ifndef NO_WAIT
    __pipeline_wait_prior(PENDING);
#endif
    __syncthreads();  // arrival
#ifdef EARLY
    fetch(tile + STAGES);
#else
    fetch(tile + STAGES - 1);
#endif
    for (int i = 0; i < 4; ++i) sum += stages[tile % STAGES * TILE + (lane + 32 * i + 17) % TILE];  // use
#ifdef LAST_BARRIER
    __syncthreads();
#endif
  }
  out[lane] = sum;
}
