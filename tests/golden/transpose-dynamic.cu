// Transpose: out[c][r] = in[r][c], elements of 4 bytes.

using element = unsigned int;  // moved, never looked into

constexpr unsigned THREADS = 256;
constexpr unsigned TILE_ROWS = 128;  // a block moves TILE_ROWS x TILE_COLS elements of `in`
constexpr unsigned TILE_COLS = 128;

constexpr unsigned PITCH = TILE_COLS + 1;  // the pad spreads a column of the tile over the banks of shared memory

// Where element (r, c) of `in` lies in the tile.
__device__ __forceinline__ unsigned place(unsigned r, unsigned c) {
    return r * PITCH + c;
}

// In: a warp reads along rows of `in`, so its loads are coalesced, and stores along rows of the tile.
template <bool EDGE>
__device__ __forceinline__ void load(element* tile, const element* __restrict__ in, unsigned in_pitch,
                                     unsigned rows_left, unsigned cols_left) {
#pragma unroll
    for (unsigned step = 0; step < TILE_ROWS * TILE_COLS / THREADS; step++) {
        const unsigned i = step * THREADS + threadIdx.x;
        const unsigned r = i / TILE_COLS, c = i % TILE_COLS;
        if (EDGE && (r >= rows_left || c >= cols_left)) continue;
        tile[place(r, c)] = in[size_t(r) * in_pitch + c];
    }
}

// Out: a warp reads down columns of the tile and stores along rows of `out`, so its stores are coalesced too.
template <bool EDGE>
__device__ __forceinline__ void store(element* __restrict__ out, const element* tile, unsigned out_pitch,
                                      unsigned rows_left, unsigned cols_left) {
#pragma unroll
    for (unsigned step = 0; step < TILE_ROWS * TILE_COLS / THREADS; step++) {
        const unsigned i = step * THREADS + threadIdx.x;
        const unsigned r = i % TILE_ROWS, c = i / TILE_ROWS;
        if (EDGE && (r >= rows_left || c >= cols_left)) continue;
        out[size_t(c) * out_pitch + r] = tile[place(r, c)];
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

    // 66048 bytes, more than the 48 KiB of a static array: dynamic shared memory, sized by the launch.
    extern __shared__ __align__(16) unsigned char smem[];
    element* const tile = reinterpret_cast<element*>(smem);
    // Which tile is this block's? Blocks start in the order of their number: this decides what is in flight together.
    const unsigned block = blockIdx.x;
    const unsigned across = (cols - 1) / TILE_COLS + 1;  // tiles in a row of tiles
    const unsigned row0 = block / across * TILE_ROWS;
    const unsigned col0 = block % across * TILE_COLS;
    const unsigned rows_left = rows - row0, cols_left = cols - col0;
    const bool full = rows_left >= TILE_ROWS && cols_left >= TILE_COLS;  // the same for every thread of the block
    in += size_t(row0) * in_pitch + col0;
    out += size_t(col0) * out_pitch + row0;

    if (full) load<false>(tile, in, in_pitch, rows_left, cols_left);
    else load<true>(tile, in, in_pitch, rows_left, cols_left);
    __syncthreads();  // a thread reads what others have stored: the whole tile must be there
    if (full) store<false>(out, tile, out_pitch, rows_left, cols_left);
    else store<true>(out, tile, out_pitch, rows_left, cols_left);
}
