// Transpose: out[c][r] = in[r][c], elements of 4 bytes.
#include <cuda_pipeline_primitives.h>

using element = unsigned int;  // moved, never looked into

constexpr unsigned THREADS = 256;
constexpr unsigned TILE_ROWS = 128;  // a block moves TILE_ROWS x cols elements of `in`

constexpr unsigned TURN_ROWS = 2;  // rows of which a thread makes one word of a row of `out`

// Few columns: TILE_ROWS whole rows of `in` are one stretch of memory, copied as it is; the turn is in the way out.
__device__ __forceinline__ void flat(element* __restrict__ out, const element* __restrict__ in, element* tile, unsigned rows,
                                     unsigned cols, unsigned out_pitch) {
    const unsigned row0 = blockIdx.x * TILE_ROWS, rows_here = min(TILE_ROWS, rows - row0);
    const unsigned elements = rows_here * cols;
    in += size_t(row0) * cols;
    out += row0;
    constexpr unsigned WORD = 4;  // elements in 16 bytes
#pragma unroll 4
    for (unsigned i = threadIdx.x * WORD; i < elements / WORD * WORD; i += THREADS * WORD)
        __pipeline_memcpy_async(tile + i, in + i, 16);
    for (unsigned i = elements / WORD * WORD + threadIdx.x; i < elements; i += THREADS) tile[i] = in[i];
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();  // a thread reads what others have stored: all rows must be there

    constexpr unsigned DOWN = TILE_ROWS / TURN_ROWS;  // words in the part of a row of `out` that is this block's
    const unsigned r = threadIdx.x % DOWN * TURN_ROWS;
    if (r >= rows_here) return;
#pragma unroll 4
    for (unsigned c = threadIdx.x / DOWN; c < cols; c += THREADS / DOWN) {
        union {
            uint2 word;
            element at[TURN_ROWS];
        } turned;
#pragma unroll
        for (unsigned i = 0; i < TURN_ROWS; i++) turned.at[i] = tile[(r + i) * cols + c];
        *reinterpret_cast<uint2*>(out + size_t(c) * out_pitch + r) = turned.word;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
transpose(const element* __restrict__ in, element* __restrict__ out, unsigned rows, unsigned cols, unsigned batch,
          unsigned in_pitch, unsigned out_pitch, unsigned in_step, unsigned out_step) {
    constexpr unsigned BATCH_Y = 32768;  // matrices along y of the grid, which holds 65535 at most; the rest go along z
    const unsigned matrix = blockIdx.z * BATCH_Y + blockIdx.y;
    if (matrix >= batch) return;
    in += size_t(matrix) * in_step * in_pitch;
    out += size_t(matrix) * out_step * out_pitch;

    extern __shared__ __align__(16) unsigned char smem[];
    flat(out, in, reinterpret_cast<element*>(smem), rows, cols, out_pitch);
}
