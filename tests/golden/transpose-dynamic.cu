// Transpose: out[c][r] = in[r][c], elements of 4 bytes.

using element = unsigned int;  // moved, never looked into

constexpr int THREADS = 1024;
constexpr int TILE_ROWS = 128;  // a block moves TILE_ROWS x TILE_COLS elements of `in`
constexpr int TILE_COLS = 128;
constexpr int PITCH = TILE_COLS + 1;  // the pad spreads a column of the tile over the banks of shared memory

// In: a warp reads along rows of `in`, so its loads are coalesced, and stores along rows of the tile.
template <bool EDGE>
__device__ __forceinline__ void load(element (*tile)[PITCH], const element* __restrict__ in, int cols, int rows_left,
                                     int cols_left) {
#pragma unroll
    for (int step = 0; step < TILE_ROWS * TILE_COLS / THREADS; step++) {
        const int i = step * THREADS + threadIdx.x;
        const int r = i / TILE_COLS, c = i % TILE_COLS;
        if (EDGE && (r >= rows_left || c >= cols_left)) continue;
        tile[r][c] = in[size_t(r) * cols + c];
    }
}

// Out: a warp reads down columns of the tile and stores along rows of `out`, so its stores are coalesced too.
template <bool EDGE>
__device__ __forceinline__ void store(element* __restrict__ out, element (*tile)[PITCH], int rows, int rows_left,
                                      int cols_left) {
#pragma unroll
    for (int step = 0; step < TILE_ROWS * TILE_COLS / THREADS; step++) {
        const int i = step * THREADS + threadIdx.x;
        const int r = i % TILE_ROWS, c = i / TILE_ROWS;
        if (EDGE && (r >= rows_left || c >= cols_left)) continue;
        out[size_t(c) * rows + r] = tile[r][c];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
transpose(const element* __restrict__ in, element* __restrict__ out, int rows, int cols) {
    // Which tile is this block's? Blocks start in the order of their number, so this decides what is in flight together.
    const int block = blockIdx.x;
    const int across = (cols - 1) / TILE_COLS + 1;  // tiles in a row of tiles
    const int row0 = block / across * TILE_ROWS;
    const int col0 = block % across * TILE_COLS;
    const int rows_left = rows - row0, cols_left = cols - col0;
    const bool full = rows_left >= TILE_ROWS && cols_left >= TILE_COLS;  // the same for every thread of the block
    in += size_t(row0) * cols + col0;
    out += size_t(col0) * rows + row0;

    // 66048 bytes, more than the 48 KiB of a static array: dynamic shared memory, sized by the launch.
    extern __shared__ __align__(16) unsigned char smem[];
    element(*tile)[PITCH] = reinterpret_cast<element(*)[PITCH]>(smem);
    if (full) load<false>(tile, in, cols, rows_left, cols_left);
    else load<true>(tile, in, cols, rows_left, cols_left);
    __syncthreads();  // a thread reads what others have stored: the whole tile must be there
    if (full) store<false>(out, tile, rows, rows_left, cols_left);
    else store<true>(out, tile, rows, rows_left, cols_left);
}
