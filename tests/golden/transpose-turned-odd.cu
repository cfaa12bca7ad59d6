// Transpose: out[c][r] = in[r][c], elements of 2 bytes.

using element = unsigned short;  // moved, never looked into

constexpr unsigned THREADS = 256;
constexpr unsigned TILE_ROWS = 128;  // a block moves TILE_ROWS x TILE_COLS elements of `in`
constexpr unsigned TILE_COLS = 128;

constexpr unsigned LOAD_VECTOR = 8;  // elements of a row of `in` that one load moves
constexpr unsigned TURN_ROWS = 4;  // rows that a thread turns in registers, into one store to the tile
constexpr unsigned STORE_VECTOR = 8;  // elements of a row of `out` that one store moves: 16 bytes

// The tile holds the matrix turned already: TILE_COLS lines, each a column of `in` on its way to be a row of `out`.
// A line has HALO elements more than a block stores, 32 bytes: store() says why.
constexpr unsigned HALO = 16;
constexpr unsigned LINE = TILE_ROWS + HALO;
constexpr unsigned SKEW = 1 * STORE_VECTOR;
constexpr unsigned TILE_ELEMENTS = TILE_COLS * LINE + TILE_COLS / LOAD_VECTOR * SKEW;

// Where element e of a line lies in the tile. Lines of a group of LOAD_VECTOR follow one another, LINE elements apart.
__device__ __forceinline__ unsigned place(unsigned line, unsigned e) {
    // In a store to the tile, neighbours of a warp write to lines LOAD_VECTOR apart, which all begin in one bank. So
    // each group is followed by SKEW unused elements: as much of a line as one wavefront fills.
    return line * LINE + line / LOAD_VECTOR * SKEW + e;
}

// What a thread carries from its loads to its stores to the tile: TURN_ROWS rows of LOAD_VECTOR elements.
struct Patch {
    union Row {
        uint4 word;
        element at[LOAD_VECTOR];
        unsigned part[LOAD_VECTOR / 2];
    } rows[TURN_ROWS];

    union Column {
        uint2 word;
        element at[TURN_ROWS];
        unsigned part[TURN_ROWS / 2];
    };

    // Turns each square of 2 x 2 elements, two registers, where it lies.
    __device__ __forceinline__ void turn_squares() {
#pragma unroll
        for (unsigned i = 0; i < TURN_ROWS; i += 2)
#pragma unroll
            for (unsigned j = 0; j < LOAD_VECTOR / 2; j++) {
                unsigned &a = rows[i].part[j], &b = rows[i + 1].part[j];
                const unsigned low = __byte_perm(a, b, 0x5410);
                b = __byte_perm(a, b, 0x7632), a = low;
            }
    }

    // Column j, as one word, once the squares are turned.
    __device__ __forceinline__ uint2 column(unsigned j) const {
        Column turned;
#pragma unroll
        for (unsigned i = 0; i < TURN_ROWS / 2; i++)
            turned.part[i] = rows[i * 2 + j % 2].part[j / 2];
        return turned.word;
    }
};

// 16 of the 32 bytes of two words, from byte `shift` (0 to 15) on: moved by 8, by 4, then by single bytes.
__device__ __forceinline__ uint4 window(uint4 low, uint4 high, unsigned shift) {
    const bool by8 = shift >= 8, by4 = shift % 8 >= 4;
    const unsigned a = by8 ? low.z : low.x, b = by8 ? low.w : low.y, c = by8 ? high.x : low.z;
    const unsigned d = by8 ? high.y : low.w, e = by8 ? high.z : high.x;
    const unsigned p = by4 ? b : a, q = by4 ? c : b, r = by4 ? d : c, s = by4 ? e : d;
    const unsigned t = by4 ? (by8 ? high.w : high.y) : e, bits = shift * 8;  // a funnel shift takes it modulo 32
    return make_uint4(__funnelshift_r(p, q, bits), __funnelshift_r(q, r, bits), __funnelshift_r(r, s, bits),
                      __funnelshift_r(s, t, bits));
}

// The first element of the matrix and the one behind its last.
struct Bounds {
    const void *first, *end;
};

// In: a warp reads along rows of `in`. All loads of a thread are under way before the first is waited for.
template <bool EDGE>
__device__ __forceinline__ void load(element* tile, const element* __restrict__ in, unsigned in_pitch,
                                     unsigned rows_left, unsigned cols_left, const Bounds& bounds) {
    constexpr unsigned ACROSS = TILE_COLS / LOAD_VECTOR, PATCHES = ACROSS * (LINE / TURN_ROWS);
    constexpr unsigned STEPS = (PATCHES - 1) / THREADS + 1;
    Patch patches[STEPS];
#pragma unroll
    for (unsigned step = 0; step < STEPS; step++) {
        const unsigned patch = step * THREADS + threadIdx.x;
        if (patch >= PATCHES) break;
        const unsigned r0 = patch / ACROSS * TURN_ROWS, c = patch % ACROSS * LOAD_VECTOR;
        const element* from = in + size_t(r0) * in_pitch + c;
#pragma unroll
        for (unsigned i = 0; i < TURN_ROWS; i++, from += in_pitch) {
            Patch::Row& row = patches[step].rows[i];
            if (EDGE) row.word = {};
            if (EDGE && (r0 + i >= rows_left || c >= cols_left)) continue;
            // The row begins on no whole word. Two words around hold it; shifted, they make one.
            const unsigned shift = reinterpret_cast<size_t>(from) % 16;
            const uint4* around = reinterpret_cast<const uint4*>(reinterpret_cast<const char*>(from) - shift);
            if (EDGE && (around < bounds.first || around + 2 > bounds.end)) {
#pragma unroll
                for (unsigned j = 0; j < LOAD_VECTOR; j++)
                    if (c + j < cols_left) row.at[j] = from[j];
                continue;
            }
            row.word = window(around[0], around[1], shift);
        }
    }
#pragma unroll
    for (unsigned step = 0; step < STEPS; step++) {
        const unsigned patch = step * THREADS + threadIdx.x;
        if (patch >= PATCHES) break;
        const unsigned r0 = patch / ACROSS * TURN_ROWS, c = patch % ACROSS * LOAD_VECTOR;
        patches[step].turn_squares();
#pragma unroll
        for (unsigned j = 0; j < LOAD_VECTOR; j++)
            *reinterpret_cast<uint2*>(tile + place(c, r0) + j * LINE) = patches[step].column(j);
    }
}

// Rows of `out` begin anywhere, and a store that begins inside a sector of 32 bytes writes to two, each in part. So
// each row of a block's part is moved on to where a sector begins: the bytes before, its head, are left to the block
// above, which has them in its halo. TILE_ROWS elements are whole sectors, so all blocks of a row are moved alike.
__device__ __forceinline__ unsigned head_bytes(const element* line) {
    return -reinterpret_cast<size_t>(line) % 32;
}

// Out: a warp reads along lines of the tile, from the head on, and stores whole sectors of rows of `out`.
template <bool EDGE>
__device__ __forceinline__ void store(element* __restrict__ out, const element* tile, unsigned out_pitch,
                                      unsigned rows_left, unsigned cols_left) {
    constexpr unsigned DOWN = TILE_ROWS / STORE_VECTOR, WORDS = TILE_COLS * DOWN, STEPS = (WORDS - 1) / THREADS + 1;
#pragma unroll
    for (unsigned step = 0; step < STEPS; step++) {
        const unsigned i = step * THREADS + threadIdx.x;
        const unsigned r = i % DOWN * STORE_VECTOR, c = i / DOWN;
        if (EDGE && c >= cols_left) continue;
        element* const line = out + size_t(c) * out_pitch;
        const unsigned head = head_bytes(line), skipped = head / 16 * STORE_VECTOR;  // whole words of the head
        const uint4 low = *reinterpret_cast<const uint4*>(tile + place(c, r + skipped));
        const uint4 high = *reinterpret_cast<const uint4*>(tile + place(c, r + skipped + STORE_VECTOR));
        union {
            uint4 word;
            element at[STORE_VECTOR];
        } moved;
        moved.word = window(low, high, head % 16);
        const unsigned first = r + head / sizeof(element);
        if (!EDGE || first + STORE_VECTOR <= rows_left) {
            *reinterpret_cast<uint4*>(line + first) = moved.word;
        } else {
#pragma unroll
            for (unsigned j = 0; j < STORE_VECTOR; j++)
                if (first + j < rows_left) line[first + j] = moved.at[j];
        }
    }
}

// The first block of each row of `out` has none above it: it stores the heads as well.
__device__ __forceinline__ void store_heads(element* __restrict__ out, const element* tile, unsigned out_pitch,
                                            unsigned rows_left, unsigned cols_left) {
    for (unsigned i = threadIdx.x; i < TILE_COLS * HALO; i += THREADS) {
        const unsigned r = i % HALO, c = i / HALO;
        element* const line = out + size_t(c) * out_pitch;
        if (c < cols_left && r < rows_left && r < head_bytes(line) / sizeof(element)) line[r] = tile[place(c, r)];
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
    // The same for every thread of the block. A window may begin before the first element, or end in the row below the
    // halo: the first tile and the last ones test.
    const bool full = rows_left > LINE && cols_left >= TILE_COLS && block > 0;
    const Bounds bounds{in, in + size_t(rows - 1) * in_pitch + cols};
    in += size_t(row0) * in_pitch + col0;
    out += size_t(col0) * out_pitch + row0;

    if (full) load<false>(tile, in, in_pitch, rows_left, cols_left, bounds);
    else load<true>(tile, in, in_pitch, rows_left, cols_left, bounds);
    __syncthreads();  // a thread reads what others have stored: the whole tile must be there
    if (full) store<false>(out, tile, out_pitch, rows_left, cols_left);
    else store<true>(out, tile, out_pitch, rows_left, cols_left);
    if (row0 == 0) store_heads(out, tile, out_pitch, rows_left, cols_left);
}
