// C = A B, row-major; A is m x k, B is k x n. float32, sums in float.
#include <cuda_pipeline.h>

using element = float;
using accumulator = float;

constexpr int BLOCK_M = 256;  // a block computes BLOCK_M x BLOCK_N elements of C ...
constexpr int BLOCK_N = 128;

// Elements before row `row` of a matrix in global memory: more than 32 bits can count, from two 32-bit numbers.
__device__ __forceinline__ size_t offset(int row, int pitch) { return size_t(unsigned(row)) * unsigned(pitch); }

// Where does a tile of C begin? Tiles are counted in the order in which blocks take them.
__device__ __forceinline__ void find_tile(int tile, int m, int n, int& row, int& col) {
    const int tiles_n = (n - 1) / BLOCK_N + 1;
    // Bands of GROUP rows of tiles, each walked column by column: blocks that run together share rows of A and
    // columns of B, which the L2 cache then reads once.
    constexpr int GROUP = 8;
    const int tiles_m = (m - 1) / BLOCK_M + 1;
    const int band = tile / tiles_n / GROUP, rest = tile - band * GROUP * tiles_n;
    const int height = min(GROUP, tiles_m - band * GROUP);
    row = (band * GROUP + rest % height) * BLOCK_M;
    col = rest / height * BLOCK_N;
}

// What becomes of a sum, and where it goes.
struct Result {
    element* c;
    const element* addend;
    const element* bias;
    accumulator alpha, beta;
    int pitch;

    __device__ __forceinline__ element of(accumulator sum, size_t at, int col) const {
        sum *= alpha;
        return element(sum);
    }

    __device__ __forceinline__ void put(accumulator sum, int row, int col) const {
        const size_t at = offset(row, pitch) + col;
        c[at] = of(sum, at, col);
    }
};

// Of matrix `matrix` of the batch.
__device__ __forceinline__ Result result_of(element* c, const element* addend, const element* bias, accumulator alpha,
                                            accumulator beta, int matrix, int pitch, int step) {
    const size_t first = size_t(matrix) * step * pitch;
    return {c + first, addend, bias, alpha, beta, pitch};
}

constexpr int BLOCK_K = 16;  // ... in steps of BLOCK_K along k
constexpr int THREADS = 256;
constexpr int SLICE_K = BLOCK_K;  // how much of a step a warp multiplies
constexpr int TEAM = THREADS;

constexpr int THREAD_M = 16;  // a thread computes THREAD_M x THREAD_N elements in registers
constexpr int THREAD_N = 8;
constexpr int LANES_M = 4;  // the lanes of a warp lie LANES_M x LANES_N, side by side
constexpr int LANES_N = 32 / LANES_M;
constexpr int WARP_M = LANES_M * THREAD_M;  // so a warp computes WARP_M x WARP_N
constexpr int WARP_N = LANES_N * THREAD_N;
using Sums = accumulator[THREAD_M][THREAD_N];

// A thread's rows and columns come in chunks that it reads from shared memory at once. The chunks of neighbouring
// lanes lie side by side, and a thread's next chunk after those of all lanes: no two lanes meet in a bank.
constexpr int CHUNK_M = 4;
constexpr int CHUNK_N = 4;
__device__ constexpr int row_of(int i) { return i / CHUNK_M * (LANES_M * CHUNK_M) + i % CHUNK_M; }
__device__ constexpr int col_of(int j) { return j / CHUNK_N * (LANES_N * CHUNK_N) + j % CHUNK_N; }

constexpr int A_PITCH = BLOCK_M + 4;  // As[kk][row]: a thread's rows are neighbours
constexpr int A_ELEMENTS = BLOCK_K * A_PITCH;
constexpr int B_PITCH = BLOCK_N;  // Bs[kk][col]
constexpr int B_ELEMENTS = BLOCK_K * B_PITCH;

template <int BYTES> struct word_of;
template <> struct word_of<2> { using type = unsigned short; };
template <> struct word_of<4> { using type = unsigned int; };
template <> struct word_of<8> { using type = uint2; };
template <> struct word_of<16> { using type = uint4; };
template <int COUNT> using word = typename word_of<COUNT * sizeof(element)>::type;  // COUNT elements, moved at once

template <int COUNT> __device__ __forceinline__ void copy(element* to, const element* from) {
    *reinterpret_cast<word<COUNT>*>(to) = *reinterpret_cast<const word<COUNT>*>(from);
}
template <int COUNT> __device__ __forceinline__ void clear(element* to) { *reinterpret_cast<word<COUNT>*>(to) = word<COUNT>{}; }

// COUNT neighbours from shared memory, in one read, as accumulators.
template <int COUNT> __device__ __forceinline__ void read(accumulator* to, const element* from) {
    alignas(16) element chunk[COUNT];
    copy<COUNT>(chunk, from);
#pragma unroll
    for (int e = 0; e < COUNT; e++) to[e] = accumulator(chunk[e]);
}

// A's tile, as it is stored: A_LINES lines of A_LINE neighbours, across k.
constexpr int A_LINES = BLOCK_K, A_LINE = BLOCK_M;
constexpr int A_WIDTH = 4;  // elements of a word, which one copy moves
constexpr int A_WORDS = A_LINE / A_WIDTH;  // in a line
constexpr int A_COPIES = (A_LINES * A_WORDS - 1) / THREADS + 1;  // of each thread
// A thread's first word, and how far on its j-th lies: whole lines, or within a line that has more words than threads.
__device__ __forceinline__ int a_line() { return threadIdx.x / A_WORDS; }
__device__ __forceinline__ int a_at() { return threadIdx.x % A_WORDS * A_WIDTH; }
__device__ constexpr int a_line_on(int j) { return THREADS >= A_WORDS ? j * (THREADS / A_WORDS) : j * THREADS / A_WORDS; }
__device__ constexpr int a_at_on(int j) { return THREADS >= A_WORDS ? 0 : j * THREADS % A_WORDS * A_WIDTH; }
__device__ constexpr int a_place(int line, int at) { return line * A_PITCH + at; }

// The thread's j-th copy; `to` and `from` are its first. FIRST: the tile hangs out over the beginning of k by `hidden`,
// which counts as zero.
template <bool FIRST>
__device__ __forceinline__ void copy_a(int j, element* to, const element* from, int pitch, int hidden) {
    if (A_LINES * A_WORDS < THREADS && threadIdx.x >= A_LINES * A_WORDS) return;
    to += a_place(a_line_on(j), a_at_on(j));
    const bool outside = FIRST && a_line() + a_line_on(j) < hidden;
    from += ptrdiff_t(a_line_on(j)) * pitch + a_at_on(j);
    if (FIRST && outside) __pipeline_memcpy_async(to, from, 16, 16);  // reads nothing, writes zeros
    else __pipeline_memcpy_async(to, from, 16);
}


// B's tile, as it is stored: B_LINES lines of B_LINE neighbours, across k.
constexpr int B_LINES = BLOCK_K, B_LINE = BLOCK_N;
constexpr int B_WIDTH = 4;  // elements of a word, which one copy moves
constexpr int B_WORDS = B_LINE / B_WIDTH;  // in a line
constexpr int B_COPIES = (B_LINES * B_WORDS - 1) / THREADS + 1;  // of each thread
// A thread's first word, and how far on its j-th lies: whole lines, or within a line that has more words than threads.
__device__ __forceinline__ int b_line() { return threadIdx.x / B_WORDS; }
__device__ __forceinline__ int b_at() { return threadIdx.x % B_WORDS * B_WIDTH; }
__device__ constexpr int b_line_on(int j) { return THREADS >= B_WORDS ? j * (THREADS / B_WORDS) : j * THREADS / B_WORDS; }
__device__ constexpr int b_at_on(int j) { return THREADS >= B_WORDS ? 0 : j * THREADS % B_WORDS * B_WIDTH; }
__device__ constexpr int b_place(int line, int at) { return line * B_PITCH + at; }

// The thread's j-th copy; `to` and `from` are its first. FIRST: the tile hangs out over the beginning of k by `hidden`,
// which counts as zero.
template <bool FIRST>
__device__ __forceinline__ void copy_b(int j, element* to, const element* from, int pitch, int hidden) {
    if (B_LINES * B_WORDS < THREADS && threadIdx.x >= B_LINES * B_WORDS) return;
    to += b_place(b_line_on(j), b_at_on(j));
    const bool outside = FIRST && b_line() + b_line_on(j) < hidden;
    from += ptrdiff_t(b_line_on(j)) * pitch + b_at_on(j);
    if (FIRST && outside) __pipeline_memcpy_async(to, from, 16, 16);  // reads nothing, writes zeros
    else __pipeline_memcpy_async(to, from, 16);
}


// Where in the block's tile of C does this thread's warp begin, and where its own first element?
__device__ __forceinline__ void find_warp(int& row, int& col) {
    const int warp = threadIdx.x % TEAM / 32;
    row = warp / (BLOCK_N / WARP_N) * WARP_M;
    col = warp % (BLOCK_N / WARP_N) * WARP_N;
}
__device__ __forceinline__ void find_thread(int& row, int& col) {
    const int lane = threadIdx.x % 32;
    const int lane_m = lane % LANES_M, lane_n = lane / LANES_M;

    find_warp(row, col);
    row += lane_m * CHUNK_M;
    col += lane_n * CHUNK_N;
}

// One side of a product as the tiles' loads see it.
struct Operand {
    const element* from;  // its first row or column of the tile, at k = 0
    int pitch;
    int left;  // rows or columns from there on
};

constexpr int STAGES = 4;  // slots of the ring; a slot holds A's tile, then B's
constexpr int SLOT = A_ELEMENTS + B_ELEMENTS;
constexpr int AHEAD = STAGES - 2;  // tiles on their way while one is multiplied
constexpr int BARRIER = SLICE_K - 2;  // one k before the next tile is first read: few wait when it is needed
constexpr int COPIES = A_COPIES + B_COPIES;  // of a thread for one tile
// A tile's copies are spread over the k of a step, so that they never queue up before the multiply-adds.
constexpr int COPY_STEPS = BARRIER > 0 ? BARRIER : 1;
__device__ constexpr int when_copied(int copy) { return copy * COPY_STEPS / COPIES; }
// Row by row, every other one backwards: where a row ends the next begins.
__device__ constexpr int fma_row(int x) { return x / THREAD_N; }
__device__ constexpr int fma_col(int x) { return fma_row(x) % 2 ? THREAD_N - 1 - x % THREAD_N : x % THREAD_N; }

__device__ __forceinline__ void read_b(accumulator (&to)[THREAD_N], const element* Bs) {
#pragma unroll
    for (int j = 0; j < THREAD_N; j += CHUNK_N) read<CHUNK_N>(&to[j], &Bs[col_of(j)]);
}
__device__ __forceinline__ void read_a(accumulator (&to)[THREAD_M], const element* As) {
#pragma unroll
    for (int i = 0; i < THREAD_M; i += CHUNK_M) read<CHUNK_M>(&to[i], &As[row_of(i)]);
}

// The products of steps [begin, end) along k, of which all but the first `hidden` of step 0 exist. row, col: where in
// the tile of C this thread is.
__device__ __forceinline__ void accumulate(Sums& sum, element* shared, const Operand& a, const Operand& b, int begin,
                                           int end, int hidden, int row, int col) {
    if (begin >= end) return;  // the whole block: there are more parts than steps
    const int slice_k = 0;
    element* const a_to = shared + a_place(a_line(), a_at());
    element* const b_to = shared + A_ELEMENTS + b_place(b_line(), b_at());
    const element* const As = shared + slice_k * A_PITCH + row;
    const element* const Bs = shared + A_ELEMENTS + slice_k * B_PITCH + col;

    // The first tile hangs out over the beginning of k, not the last over its end: so the loop has nothing to test.
    const int k0 = begin * BLOCK_K - hidden;
    const element* a_from = a.from + ptrdiff_t(a_line() + k0) * a.pitch + a_at();
    const element* b_from = b.from + ptrdiff_t(b_line() + k0) * b.pitch + b_at();
    const int outside = begin == 0 ? hidden : 0;
    int write = 0;  // where the slot begins that is filled next
    const auto next_tile = [&] {
        a_from += ptrdiff_t(BLOCK_K) * a.pitch;
        b_from += ptrdiff_t(BLOCK_K) * b.pitch;
        write = write + SLOT == STAGES * SLOT ? 0 : write + SLOT;
    };
    const auto copy_one = [&](int j) {
        if (j < A_COPIES) copy_a<false>(j, a_to + write, a_from, a.pitch, 0);
        else copy_b<false>(j - A_COPIES, b_to + write, b_from, b.pitch, 0);
    };
#pragma unroll
    for (int s = 0; s < AHEAD; s++) {
        if (s == 0) {
#pragma unroll
            for (int j = 0; j < A_COPIES; j++) copy_a<true>(j, a_to, a_from, a.pitch, outside);
#pragma unroll
            for (int j = 0; j < B_COPIES; j++) copy_b<true>(j, b_to, b_from, b.pitch, outside);
        } else if (begin + s < end) {
#pragma unroll
            for (int j = 0; j < COPIES; j++) copy_one(j);
        }
        next_tile();
        __pipeline_commit();  // one group of copies a step, empty or not, so that waiting can count them
    }
    __pipeline_wait_prior(AHEAD - 1);
    __syncthreads();

    // Operands of two k at once: those of the next are read while those of this one are multiplied.
    accumulator a_k[2][THREAD_M], b_k[2][THREAD_N];
    read_a(a_k[0], As);
    read_b(b_k[0], Bs);
    int slot = 0;  // where the slot begins that is multiplied
#pragma unroll 1
    for (int step = begin; step < end; step++) {
        const bool more = step + AHEAD < end;
#pragma unroll
        for (int kk = 0; kk < SLICE_K; kk++) {
            if (kk == BARRIER) {
                __pipeline_wait_prior(AHEAD - 1);  // this thread's copies of the next tile have landed ...
                __syncthreads();  // ... and everyone's. All are also done with the tile before this one, whose slot
                                  // may now be refilled: which is why one barrier a step is enough.
            }
            const element *a_next = As + slot, *b_next = Bs + slot;
            const bool last = kk == SLICE_K - 1;
            if (last) {
                // After the last step there is no next tile: this one is read again, to no use.
                const int next_slot = slot + SLOT == STAGES * SLOT ? 0 : slot + SLOT;
                slot = step + 1 < end ? next_slot : slot;
                a_next = As + slot, b_next = Bs + slot;
            }
            const int next = last ? 0 : kk + 1;
            read_a(a_k[(kk + 1) % 2], a_next + next * A_PITCH);
            read_b(b_k[(kk + 1) % 2], b_next + next * B_PITCH);
            if (more) {
#pragma unroll
                for (int j = 0; j < COPIES; j++)
                    if (when_copied(j) == kk) copy_one(j);
            }
            if (kk == when_copied(COPIES - 1)) {
                next_tile();
                __pipeline_commit();
            }
#pragma unroll
            for (int x = 0; x < THREAD_M * THREAD_N; x++)
                sum[fma_row(x)][fma_col(x)] += a_k[kk % 2][fma_row(x)] * b_k[kk % 2][fma_col(x)];
        }
    }
}

// A thread's sums leave its registers in words of 16 bytes: neighbours of one row.
constexpr int SUM_WIDTH = 16 / sizeof(accumulator);  // sums in a word
constexpr int SUM_WORDS = THREAD_M * THREAD_N / SUM_WIDTH;
__device__ constexpr int word_row(int q) { return q / (THREAD_N / SUM_WIDTH); }
__device__ constexpr int word_col(int q) { return q % (THREAD_N / SUM_WIDTH) * SUM_WIDTH; }

// A packed operand lies in scratch memory as k rows of whole words.
__device__ __forceinline__ int packed_pitch(int side) { return (side + 3) / 4 * 4; }
__device__ __forceinline__ element* packed_matrix(void* scratch, int matrix, int batch, int m, int n, int k) {
    element* const first = static_cast<element*>(scratch);
    return first + size_t(k) * (packed_pitch(m) + packed_pitch(n)) * matrix;
}
__device__ __forceinline__ element* packed_a(void* scratch, int matrix, int batch, int m, int n, int k) {
    return packed_matrix(scratch, matrix, batch, m, n, k);
}
__device__ __forceinline__ element* packed_b(void* scratch, int matrix, int batch, int m, int n, int k) {
    return packed_matrix(scratch, matrix, batch, m, n, k) + size_t(k) * packed_pitch(m);
}

constexpr int C_WIDTH = 4;  // elements that one store moves

// A tile that would reach beyond C lies further up or to the left instead, and stores only what is its own: its loads
// have no edge to test. Smaller matrices than a tile have an edge still.
struct Tile {
    int row, col;  // of its first element
    int own_row, own_col;  // from which on C's elements are its own

    __device__ __forceinline__ Tile(int tile, int m, int n, int a_rows, int b_cols) {
        find_tile(tile, m, n, own_row, own_col);
        row = min(own_row, a_rows - BLOCK_M);
        col = min(own_col, b_cols - BLOCK_N);
    }
};

// A word of the thread's sums. row, col: of its first element.
__device__ __forceinline__ void store(const accumulator (&sum)[SUM_WIDTH], const Result& result, const Tile& tile, int row,
                                      int col, int m, int n) {
    if (row < tile.own_row || row >= m) return;
#pragma unroll
    for (int e = 0; e < SUM_WIDTH; e += C_WIDTH) {
        if (col + e < tile.own_col || col + e >= n) continue;
        const size_t at = offset(row, result.pitch) + col + e;
        alignas(16) element chunk[C_WIDTH];
#pragma unroll
        for (int i = 0; i < C_WIDTH; i++) chunk[i] = result.of(sum[e + i], at + i, col + e + i);
        copy<C_WIDTH>(result.c + at, chunk);
    }
}


extern "C" __global__ void __launch_bounds__(THREADS, 1)
matmul(const element* __restrict__ a, const element* __restrict__ b, element* c, const element* addend,
       const element* __restrict__ bias, void* scratch, accumulator alpha, accumulator beta, int m, int n,
       int k, int batch, int a_pitch, int b_pitch, int c_pitch, int a_step, int b_step, int c_step) {
    extern __shared__ __align__(16) unsigned char smem[];  // 99328 bytes, sized by the launch
    element* const shared = reinterpret_cast<element*>(smem);
    const int matrix = blockIdx.z * 32768 + blockIdx.y;
    if (matrix >= batch) return;  // the whole block

    a = packed_a(scratch, matrix, batch, m, n, k);
    a_pitch = packed_pitch(m);
    const int a_rows = a_pitch;
    b = packed_b(scratch, matrix, batch, m, n, k);
    b_pitch = packed_pitch(n);
    const int b_cols = b_pitch;
    const Result result = result_of(c, addend, bias, alpha, beta, matrix, c_pitch, c_step);
    const int steps = (k - 1) / BLOCK_K + 1, hidden = steps * BLOCK_K - k;
    int thread_row, thread_col;
    find_thread(thread_row, thread_col);
    const int unit = blockIdx.x;

    const auto sum_tile = [&](Sums& sum, const Tile& tile, int begin, int end) {
        const Operand a_side = {a + tile.row, a_pitch, a_rows - tile.row};
        const Operand b_side = {b + tile.col, b_pitch, b_cols - tile.col};
        accumulate(sum, shared, a_side, b_side, begin, end, hidden, thread_row, thread_col);
    };
    const auto finish = [&](const Sums& sum, const Tile& tile) {
#pragma unroll
        for (int q = 0; q < SUM_WORDS; q++) {
            accumulator word[SUM_WIDTH];
#pragma unroll
            for (int e = 0; e < SUM_WIDTH; e++) word[e] = sum[word_row(q)][word_col(q) + e];
            store(word, result, tile, tile.row + thread_row + row_of(word_row(q)),
                  tile.col + thread_col + col_of(word_col(q)), m, n);
        }
    };

    const Tile tile(unit, m, n, a_rows, b_cols);
    Sums sum = {};
    sum_tile(sum, tile, 0, steps);
    finish(sum, tile);
}

// Block `block` of those that copy A.
__device__ __forceinline__ void pack_a(element* to, const element* from, int from_pitch, int m, int k, int block) {
    const int pitch = packed_pitch(m);
    // Through a tile of 32 x 32, padded by a column so that its columns are read without bank conflicts.
    __shared__ element tile[32][33];
    const int strips = (pitch - 1) / 32 + 1;
    const int k0 = block / strips * 32, first = block % strips * 32;
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
#pragma unroll
    for (int i = y; i < 32; i += 8)
        tile[i][x] = first + i < m && k0 + x < k ? from[offset(first + i, from_pitch) + k0 + x] : element(0);
    __syncthreads();  // the tile is whole before it is read
#pragma unroll
    for (int i = y; i < 32; i += 8)
        if (k0 + i < k && first + x < pitch) to[offset(k0 + i, pitch) + first + x] = tile[x][i];
}


// Block `block` of those that copy B.
__device__ __forceinline__ void pack_b(element* to, const element* from, int from_pitch, int n, int k, int block) {
    const int pitch = packed_pitch(n);
    // A thread copies four words below each other; a word's elements come one by one, as rows begin anywhere.
    constexpr int WIDTH = 16 / sizeof(element) < 4 ? 16 / sizeof(element) : 4;  // elements that one store moves
    const int strips = (pitch - 1) / 256 + 1;
    const int k0 = block / strips * 16 + threadIdx.x / 64, col = block % strips * 256 + threadIdx.x % 64 * 4;
    if (col >= pitch) return;
    alignas(16) element words[4][4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            if (k0 + i * 4 < k && col + e < n) words[i][e] = from[offset(k0 + i * 4, from_pitch) + col + e];
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int e = 0; e < 4; e += WIDTH)
            if (k0 + i * 4 < k) copy<WIDTH>(to + offset(k0 + i * 4, pitch) + col + e, &words[i][e]);
}


extern "C" __global__ void __launch_bounds__(256)
matmul_pack(const element* __restrict__ a, const element* __restrict__ b, element* c, const element* addend,
            const element* __restrict__ bias, void* scratch, accumulator alpha, accumulator beta, int m, int n,
            int k, int batch, int a_pitch, int b_pitch, int c_pitch, int a_step, int b_step, int c_step) {
    const int matrix = blockIdx.z * 32768 + blockIdx.y;
    if (matrix >= batch) return;  // the whole block

    const int blocks_a = ((packed_pitch(m) - 1) / 32 + 1) * ((k - 1) / 32 + 1);
    if (blockIdx.x < blocks_a)
        pack_a(packed_a(scratch, matrix, batch, m, n, k), a + size_t(matrix) * a_step * a_pitch, a_pitch, m, k, blockIdx.x);
    else
        pack_b(packed_b(scratch, matrix, batch, m, n, k), b + size_t(matrix) * b_step * b_pitch, b_pitch, n, k, blockIdx.x - blocks_a);
}
