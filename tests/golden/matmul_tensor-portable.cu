// C = A B, row-major; A is m x k, B is k x n. bfloat16, sums in float, C in bfloat16.
// Lines of A begin and end on words of 16 bytes, those of B on words of 16 bytes, those of C on words of 16 bytes.
#include <cuda_bf16.h>

using element = __nv_bfloat16;
using result = __nv_bfloat16;
using accumulator = float;

constexpr int BLOCK_M = 128;  // a block computes BLOCK_M x BLOCK_N elements of C ...
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 32;  // ... in steps of BLOCK_K along k
constexpr int TILE_M = BLOCK_M;  // of all blocks that share operands
constexpr int TILE_N = BLOCK_N;
constexpr int WIDTH = 16 / sizeof(element);  // elements in a word of 16 bytes

// Elements before row `row` of a matrix in global memory: more than 32 bits can count, from two 32-bit numbers.
__device__ __forceinline__ size_t offset(int row, int pitch) { return size_t(unsigned(row)) * unsigned(pitch); }

// Tiles are counted through all matrices of the batch; within one, in bands of GROUP rows of tiles, each walked column by
// column: blocks that run together share rows of A and columns of B, which the L2 cache then reads once.
constexpr int GROUP = 8;
struct Tile {
    int matrix, row, col;  // row, col: of its first element

    __device__ __forceinline__ Tile(int number, int m, int n) {
        const int tiles_m = (m - 1) / TILE_M + 1, tiles_n = (n - 1) / TILE_N + 1;
        matrix = 0;
        const int tile = number;
        // A division is a long chain of instructions, and the first tile waits for its end: most tiles need none.
        const int band = tile < GROUP * tiles_n ? 0 : unsigned(tile) / unsigned(GROUP * tiles_n), rest = tile - band * GROUP * tiles_n;
        const int height = min(GROUP, tiles_m - band * GROUP);
        const int across = height == GROUP ? rest / GROUP : unsigned(rest) / unsigned(height);
        row = (band * GROUP + rest - across * height) * TILE_M;
        col = across * TILE_N;
    }
};
__device__ __forceinline__ int count_tiles(int m, int n, int batch) {
    return ((m - 1) / TILE_M + 1) * ((n - 1) / TILE_N + 1) * batch;
}

// What becomes of a sum, and where it goes. row, col: in C.
struct Result {
    result* c;
    const result* addend;
    const result* bias;
    float alpha, beta;
    int m, n, pitch;

    __device__ __forceinline__ accumulator of(accumulator sum, int row, int col) const {
        sum *= alpha;
        return sum;
    }
};

// Two neighbours of a row, as they are stored.
using Pair = unsigned;
__device__ __forceinline__ Pair pair_of(accumulator x, accumulator y) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(x, y);
    return *reinterpret_cast<const Pair*>(&both);
}

constexpr int WARP_M = 64;  // a warp computes WARP_M x WARP_N
constexpr int WARP_N = 64;
constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N;
constexpr int THREADS = WARPS_M * WARPS_N * 32;
constexpr int STAGES = 3;  // slots of the ring, each of a step along k

__device__ __forceinline__ void copy_word(unsigned to, const void* from) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_part(unsigned to, const void* from, int bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copies_end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void copies_landed() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}


constexpr int MMA_M = 16, MMA_N = 8, MMA_K = 32 / sizeof(element);
using FragmentA = unsigned[4];
using FragmentB = unsigned[2];
using FragmentC = accumulator[4];

__device__ __forceinline__ void multiply(FragmentC& d, const FragmentA& a, const FragmentB& b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 { %0, %1, %2, %3}, { %4, %5, %6, %7}, { %8, %9}, { %0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Four matrices of 8 rows of 16 bytes; lane 8 * i + r gives the address of row r of matrix i.
__device__ __forceinline__ void load_matrices(unsigned& w, unsigned& x, unsigned& y, unsigned& z, unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 { %0, %1, %2, %3}, [%4];"
                 : "=r"(w), "=r"(x), "=r"(y), "=r"(z) : "r"(address) : "memory");
}
__device__ __forceinline__ void load_turned(unsigned& w, unsigned& x, unsigned& y, unsigned& z, unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 { %0, %1, %2, %3}, [%4];"
                 : "=r"(w), "=r"(x), "=r"(y), "=r"(z) : "r"(address) : "memory");
}

constexpr int ROWS = WARP_M / MMA_M, COLS = WARP_N / MMA_N;  // products that a warp's tile is made of
constexpr int STEPS = BLOCK_K / MMA_K;  // of each, in a step of the ring

// A's tile as it is stored: A_LINES lines of A_WORDS words, along k.
constexpr int A_LINES = BLOCK_M, A_WORDS = BLOCK_K / WIDTH;
constexpr int A_BYTES = A_LINES * A_WORDS * 16;
constexpr int A_COPIES = A_LINES * A_WORDS / THREADS;  // words of a tile that a thread copies
static_assert(A_COPIES * THREADS == A_LINES * A_WORDS, "the threads share a tile evenly");


// B's tile as it is stored: B_LINES lines of B_WORDS words, across k.
constexpr int B_LINES = BLOCK_K, B_WORDS = BLOCK_N / WIDTH;
constexpr int B_BYTES = B_LINES * B_WORDS * 16;
constexpr int B_COPIES = B_LINES * B_WORDS / THREADS;  // words of a tile that a thread copies
static_assert(B_COPIES * THREADS == B_LINES * B_WORDS, "the threads share a tile evenly");

constexpr int STAGE_BYTES = A_BYTES + B_BYTES;

// Where in a tile does a word of a line lie, in bytes? Eight lines that follow each other have their words of one number
// in eight different places of 128 bytes: ldmatrix, which reads such, meets no bank conflict.
template <int WORDS> __device__ __forceinline__ int place(int line, int word) {
    if (WORDS >= 8) return line * (WORDS * 16) + ((word ^ (line & 7)) << 4);
    constexpr int PER_ROW = WORDS < 8 ? 8 / WORDS : 1;  // short lines share a row of 128 bytes
    const int row = line / PER_ROW;
    return row * 128 + (((line % PER_ROW * WORDS + word) ^ (row & 7)) << 4);
}

// One side of a product as the loads see it.
struct Side {
    const element* matrix;
    int pitch, first, end;  // first: row or column of the tile; end: how many the matrix has
    const element* mine;    // this thread's first word of the next tile ...
    size_t apart, on;       // ... how far apart its words are, and how far on the next tile's
};
template <int WORDS, bool ACROSS>
__device__ __forceinline__ Side side_of(const element* matrix, int pitch, int first, int end, int k0) {
    const int line = threadIdx.x / WORDS, col = threadIdx.x % WORDS * WIDTH;
    return {matrix, pitch, first, end, matrix + offset((ACROSS ? k0 : first) + line, pitch) + (ACROSS ? first : k0) + col,
            size_t(THREADS / WORDS) * pitch, ACROSS ? size_t(BLOCK_K) * pitch : size_t(BLOCK_K)};
}

// A thread's words of a tile come to shared memory, on their own. What lies beyond k counts as zero; beyond the matrix's
// other side, anything that exists may come: its sums are not stored. `inside`: the tile is in the matrix, all of it.
template <int WORDS, int COPIES, bool ACROSS>
__device__ __forceinline__ void copy_tile(unsigned tile, Side& side, int k0, int k, bool inside) {
    const int line = threadIdx.x / WORDS, word = threadIdx.x % WORDS;
    if (inside) {
#pragma unroll
        for (int j = 0; j < COPIES; j++)
            copy_word(tile + place<WORDS>(line + j * (THREADS / WORDS), word), side.mine + j * side.apart);
    } else {
#pragma unroll
        for (int j = 0; j < COPIES; j++) {
            const int row = (ACROSS ? k0 : side.first) + line + j * (THREADS / WORDS), col = (ACROSS ? side.first : k0) + word * WIDTH;
            const int rows = ACROSS ? k : side.end, cols = ACROSS ? side.end : k;
            const int there = ACROSS && row >= rows ? 0 : max(0, min(cols - col, WIDTH));  // elements of the word
            const element* const from = there ? side.matrix + offset(min(row, rows - 1), side.pitch) + col : side.matrix;
            copy_part(tile + place<WORDS>(line + j * (THREADS / WORDS), word), from, there * static_cast<int>(sizeof(element)));
        }
    }
    side.mine += side.on;
}

// What a warp holds of both operands for one product along k.
struct Fragments {
    FragmentA a[ROWS];
    FragmentB b[COLS];
};

// row, col: of the warp in the block's tile.
__device__ __forceinline__ void read(Fragments& f, unsigned a, unsigned b, int step, int row, int col) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        load_matrices(f.a[i][0], f.a[i][1], f.a[i][2], f.a[i][3],
                      a + place<A_WORDS>(row + i * MMA_M + lane % 16, step * 2 + lane / 16));
#pragma unroll
    for (int j = 0; j < COLS; j += 2)
        load_turned(f.b[j][0], f.b[j][1], f.b[j + 1][0], f.b[j + 1][1],
                    b + place<B_WORDS>(step * MMA_K + lane % 16, (col + j * MMA_N) / 8 + lane / 16));
}

__device__ __forceinline__ void multiply(FragmentC (&sums)[ROWS][COLS], const Fragments& f) {
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLS; j++) {
            const int turned = i % 2 ? COLS - 1 - j : j;  // every other row backwards: neighbours share a fragment
            multiply(sums[i][turned], f.a[i], f.b[turned]);
        }
}

constexpr int ROOM_ROWS = 16, ROW_WORDS = 8;  // of a warp's rows in shared memory: words of 16 bytes
constexpr int WORD_WIDTH = 16 / sizeof(result);  // elements in a word
constexpr int SHARES = 4, BUNCH = 4;  // words of a lane; read before they are stored

// `rows` of them are in C, of `columns` elements that are. to: the first row's first element in C. from(row, byte):
// where in shared memory.
template <class From> __device__ __forceinline__ void store_rows(result* to, int pitch, int rows, int columns, const From& from) {
    const int lane = threadIdx.x % 32, end = min(columns, ROW_WORDS * WORD_WIDTH);
    const auto shift_of = [](const result*) { return 0; };
#pragma unroll
    for (int first = 0; first < SHARES; first += BUNCH) {
        uint4 bits[BUNCH];
#pragma unroll
        for (int u = 0; u < BUNCH; u++) {
            const int share = (first + u) * 32 + lane, row = share / ROW_WORDS, i = share % ROW_WORDS;
            bits[u] = *reinterpret_cast<const uint4*>(from(row, i * 16));
        }
#pragma unroll
        for (int u = 0; u < BUNCH; u++) {
            const int share = (first + u) * 32 + lane, row = share / ROW_WORDS, i = share % ROW_WORDS;
            result* const line = to + offset(row, pitch);
            const int shift = shift_of(line), at = i * WORD_WIDTH - shift;
            if (row < rows && at >= 0 && at + WORD_WIDTH <= end) *reinterpret_cast<uint4*>(line + at) = bits[u];
        }
    }
    if (end % WORD_WIDTH == 0) return;
#pragma unroll
    for (int first = 0; first < ROOM_ROWS; first += 32 / WORD_WIDTH) {
        const int row = first + lane / WORD_WIDTH;
        result* const line = to + offset(row, pitch);
        const int shift = shift_of(line);
        const int head = min(end, shift ? WORD_WIDTH - shift : 0), tail = head + max(0, end - head) / WORD_WIDTH * WORD_WIDTH;
        if (row >= rows) continue;
        for (int i = lane % WORD_WIDTH; i < head + end - tail; i += WORD_WIDTH) {
            const int at = i < head ? i : tail + i - head;
            line[at] = *reinterpret_cast<const result*>(from(row, at * static_cast<int>(sizeof(result))));
        }
    }
}

constexpr int ROOM_PITCH = WARP_N * sizeof(result) + 16;  // bytes of a row of a warp's room; 16 more, against bank conflicts
constexpr int ROOM_BYTES = MMA_M * ROOM_PITCH;

// A warp's sums leave by way of shared memory, a row of products at a time: there the elements of a row of C are
// neighbours, which whole words take to global memory.
__device__ __forceinline__ void store(const FragmentC (&sums)[ROWS][COLS], unsigned char* room, const Result& to, int row, int col) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        __syncwarp();  // the rows before have been read
#pragma unroll
        for (int j = 0; j < COLS; j++)
#pragma unroll
            for (int h = 0; h < MMA_M / 8; h++) {
                const int r = row + i * MMA_M + h * 8 + g, c = col + j * MMA_N + 2 * t;
                *reinterpret_cast<Pair*>(room + (h * 8 + g) * ROOM_PITCH + (j * MMA_N + 2 * t) * sizeof(result)) =
                    pair_of(to.of(sums[i][j][2 * h], r, c), to.of(sums[i][j][2 * h + 1], r, c + 1));
            }
        __syncwarp();  // these rows are whole
        const int first = row + i * MMA_M;
        store_rows(to.c + offset(first, to.pitch) + col, to.pitch, to.m - first, to.n - col,
                   [room](int r, int byte) { return room + r * ROOM_PITCH + byte; });
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
matmul_tensor(const element* __restrict__ a, const element* __restrict__ b, result* c, const result* addend,
              const result* __restrict__ bias, void* scratch, float alpha, float beta, int m, int n, int k,
              int batch, int a_pitch, int b_pitch, int c_pitch, int a_step, int b_step, int c_step) {
    extern __shared__ __align__(128) unsigned char shared[];  // 49152 bytes, sized by the launch
    const unsigned ring = static_cast<unsigned>(__cvta_generic_to_shared(shared));
    const Tile tile(blockIdx.x, m, n);
    const int warp = threadIdx.x / 32;
    const int row = warp / WARPS_N * WARP_M, col = warp % WARPS_N * WARP_N;
    const element* const a_matrix = a + size_t(tile.matrix) * a_step * a_pitch;
    Side a_side = side_of<A_WORDS, false>(a_matrix, a_pitch, tile.row, m, 0);
    const element* const b_matrix = b + size_t(tile.matrix) * b_step * b_pitch;
    Side b_side = side_of<B_WORDS, true>(b_matrix, b_pitch, tile.col, n, 0);
    const bool inside = tile.row + BLOCK_M <= m && tile.col + BLOCK_N <= n;
    const int steps = (k - 1) / BLOCK_K + 1;
    const auto fill = [&](int step) {  // the slot of a step; there is one group of copies a step, also where none are left
        if (step < steps) {
            const unsigned slot = ring + step % STAGES * STAGE_BYTES;
            const bool all = inside && (step + 1) * BLOCK_K <= k;
            copy_tile<A_WORDS, A_COPIES, false>(slot, a_side, step * BLOCK_K, k, all);
            copy_tile<B_WORDS, B_COPIES, true>(slot + A_BYTES, b_side, step * BLOCK_K, k, all);
        }
        copies_end_group();
    };
#pragma unroll
    for (int step = 0; step < STAGES - 1; step++) {
        fill(step);
    }

    FragmentC sums[ROWS][COLS] = {};
    Fragments fragments;
    const auto landed = [] {
        copies_landed<STAGES - 2>();  // this thread's copies of the next step have landed ...
        __syncthreads();  // ... and everyone's; and all have read the slot that is refilled next
    };
    landed();
    const unsigned tiles = ring;
    int slot = 0;
    for (int step = 0; step < steps; step++) {
        const auto from = tiles + slot * STAGE_BYTES;
#pragma unroll
        for (int i = 0; i < STEPS; i++) {
            read(fragments, from, from + A_BYTES, i, row, col);
            if (i == 0) fill(step + STAGES - 1);
            if (i == STEPS - 1) {
                landed();
            }
            multiply(sums, fragments);
        }
        slot = slot + 1 == STAGES ? 0 : slot + 1;
    }

    // In the last step everyone has read the ring: rows of C are laid out in its place.
    const size_t first = size_t(tile.matrix) * c_step * c_pitch;
    const Result to = {c + first, addend, bias, alpha, beta, m, n, c_pitch};
    store(sums, shared + warp * ROOM_BYTES, to, tile.row + row, tile.col + col);
}
