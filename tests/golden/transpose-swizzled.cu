// Transpose: out[c][r] = in[r][c], elements of 4 bytes.

using element = unsigned int;  // moved, never looked into

constexpr unsigned THREADS = 256;
constexpr unsigned TILE_ROWS = 64;  // a block moves TILE_ROWS x TILE_COLS elements of `in`
constexpr unsigned TILE_COLS = 64;

constexpr unsigned LOAD_VECTOR = 4;  // elements of a row of `in` that one load moves
constexpr unsigned TURN_ROWS = 4;  // rows that a thread turns in registers, into one store to the tile
constexpr unsigned STORE_VECTOR = 4;  // elements of a row of `out` that one store moves: 16 bytes

// The tile holds the matrix turned already: TILE_COLS lines, each a column of `in` on its way to be a row of `out`.
constexpr unsigned LINE = TILE_ROWS;
constexpr unsigned TILE_ELEMENTS = TILE_COLS * LINE;

// Where element e of a line lies in the tile. Lines of a group of LOAD_VECTOR follow one another, LINE elements apart.
__device__ __forceinline__ unsigned place(unsigned line, unsigned e) {
    // In a store to the tile, neighbours of a warp write to lines LOAD_VECTOR apart, which all begin in one bank. So
    // each group deals the 16-byte words of its lines in an order of its own (exclusive or with the group's number).
    constexpr unsigned WORDS = LINE / STORE_VECTOR, DEALT = (WORDS & -WORDS) < 8 ? (WORDS & -WORDS) : 8;
    const unsigned dealt = e / STORE_VECTOR ^ line / LOAD_VECTOR * 1 % DEALT;
    return line * LINE + dealt * STORE_VECTOR + e % STORE_VECTOR;
}

// What a thread carries from its loads to its stores to the tile: TURN_ROWS rows of LOAD_VECTOR elements.
struct Patch {
    union Row {
        uint4 word;
        element at[LOAD_VECTOR];
    } rows[TURN_ROWS];

    union Column {
        uint4 word;
        element at[TURN_ROWS];
    };

    // Column j, as one word.
    __device__ __forceinline__ uint4 column(unsigned j) const {
        Column turned;
#pragma unroll
        for (unsigned i = 0; i < TURN_ROWS; i++) turned.at[i] = rows[i].at[j];
        return turned.word;
    }
};

// In: a warp reads along rows of `in`. All loads of a thread are under way before the first is waited for.
template <bool EDGE>
__device__ __forceinline__ void load(element* tile, const element* __restrict__ in, unsigned in_pitch,
                                     unsigned rows_left, unsigned cols_left) {
    constexpr unsigned ACROSS = TILE_COLS / LOAD_VECTOR, PATCHES = ACROSS * (LINE / TURN_ROWS);
    constexpr unsigned STEPS = (PATCHES - 1) / THREADS + 1;
    Patch patches[STEPS];
#pragma unroll
    for (unsigned step = 0; step < STEPS; step++) {
        const unsigned patch = step * THREADS + threadIdx.x;
        const unsigned r0 = patch / ACROSS * TURN_ROWS, c = patch % ACROSS * LOAD_VECTOR;
        const element* from = in + size_t(r0) * in_pitch + c;
#pragma unroll
        for (unsigned i = 0; i < TURN_ROWS; i++, from += in_pitch) {
            Patch::Row& row = patches[step].rows[i];
            if (EDGE) row.word = {};
            if (EDGE && (r0 + i >= rows_left || c >= cols_left)) continue;
            row.word = *reinterpret_cast<const uint4*>(from);
        }
    }
#pragma unroll
    for (unsigned step = 0; step < STEPS; step++) {
        const unsigned patch = step * THREADS + threadIdx.x;
        const unsigned r0 = patch / ACROSS * TURN_ROWS, c = patch % ACROSS * LOAD_VECTOR;
#pragma unroll
        for (unsigned j = 0; j < LOAD_VECTOR; j++)
            *reinterpret_cast<uint4*>(tile + place(c, r0) + j * LINE) = patches[step].column(j);
    }
}

// Out: a warp reads along lines of the tile and stores along rows of `out`.
template <bool EDGE>
__device__ __forceinline__ void store(element* __restrict__ out, const element* tile, unsigned out_pitch,
                                      unsigned rows_left, unsigned cols_left) {
    constexpr unsigned DOWN = TILE_ROWS / STORE_VECTOR, WORDS = TILE_COLS * DOWN, STEPS = (WORDS - 1) / THREADS + 1;
#pragma unroll
    for (unsigned step = 0; step < STEPS; step++) {
        const unsigned i = step * THREADS + threadIdx.x;
        const unsigned r = i % DOWN * STORE_VECTOR, c = i / DOWN;
        if (EDGE && (r >= rows_left || c >= cols_left)) continue;
        *reinterpret_cast<uint4*>(out + size_t(c) * out_pitch + r) =
            *reinterpret_cast<const uint4*>(tile + place(c, r));
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

    __shared__ __align__(16) element tile[TILE_ELEMENTS];
    // Which tile is this block's? Blocks start in the order of their number: this decides what is in flight together.
    const unsigned block = blockIdx.x;
    const unsigned across = (cols - 1) / TILE_COLS + 1;  // tiles in a row of tiles
    const unsigned row0 = block / across * TILE_ROWS;
    const unsigned col0 = block % across * TILE_COLS;
    const unsigned rows_left = rows - row0, cols_left = cols - col0;
    const bool full = rows_left >= LINE && cols_left >= TILE_COLS;  // the same for every thread of the block
    in += size_t(row0) * in_pitch + col0;
    out += size_t(col0) * out_pitch + row0;

    if (full) load<false>(tile, in, in_pitch, rows_left, cols_left);
    else load<true>(tile, in, in_pitch, rows_left, cols_left);
    __syncthreads();  // a thread reads what others have stored: the whole tile must be there
    if (full) store<false>(out, tile, out_pitch, rows_left, cols_left);
    else store<true>(out, tile, out_pitch, rows_left, cols_left);
}
