// Transpose: out[c][r] = in[r][c], elements of 4 bytes.

using element = unsigned int;  // moved, never looked into

constexpr unsigned THREADS = 256;
constexpr unsigned TILE_COLS = 128;  // a block moves rows x TILE_COLS elements of `in`

constexpr unsigned LOAD_VECTOR = 4;  // elements of a row of `in` that one load moves

// Few rows: TILE_COLS whole rows of `out` are one stretch of memory, written as it is; the turn is in the way in.
__device__ __forceinline__ void flat(element* __restrict__ out, const element* __restrict__ in, element* tile, unsigned rows,
                                     unsigned cols, unsigned in_pitch) {
    const unsigned col0 = blockIdx.x * TILE_COLS, cols_here = min(TILE_COLS, cols - col0);
    const unsigned elements = cols_here * rows;
    in += col0;
    out += size_t(col0) * rows;

    constexpr unsigned ACROSS = TILE_COLS / LOAD_VECTOR;  // words in the part of a row of `in` that is this block's
    const unsigned c = threadIdx.x % ACROSS * LOAD_VECTOR;
    if (c < cols_here) {
#pragma unroll 4
        for (unsigned r = threadIdx.x / ACROSS; r < rows; r += THREADS / ACROSS) {
            const element* from = in + size_t(r) * in_pitch + c;
            union {
                uint4 word;
                element at[LOAD_VECTOR];
            } loaded;
            loaded.word = *reinterpret_cast<const uint4*>(from);
#pragma unroll
            for (unsigned j = 0; j < LOAD_VECTOR; j++) tile[(c + j) * rows + r] = loaded.at[j];
        }
    }
    __syncthreads();  // a thread reads what others have stored: all columns must be there

    constexpr unsigned WORD = 4;  // elements in 16 bytes
#pragma unroll 4
    for (unsigned i = threadIdx.x * WORD; i < elements / WORD * WORD; i += THREADS * WORD)
        *reinterpret_cast<uint4*>(out + i) = *reinterpret_cast<const uint4*>(tile + i);
    for (unsigned i = elements / WORD * WORD + threadIdx.x; i < elements; i += THREADS) out[i] = tile[i];
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
    flat(out, in, reinterpret_cast<element*>(smem), rows, cols, in_pitch);
}
