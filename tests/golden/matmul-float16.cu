// C = A B, row-major; A is m x k, B is k x n. float16, sums in float.
#include <cuda_fp16.h>

using element = __half;
using accumulator = float;

constexpr int BLOCK_M = 64;  // a block computes BLOCK_M x BLOCK_N elements of C ...
constexpr int BLOCK_N = 64;

// Elements before row `row` of a matrix in global memory: more than 32 bits can count, from two 32-bit numbers.
__device__ __forceinline__ size_t offset(int row, int pitch) { return size_t(unsigned(row)) * unsigned(pitch); }

// Where does a tile of C begin? Tiles are counted in the order in which blocks take them.
__device__ __forceinline__ void find_tile(int tile, int m, int n, int& row, int& col) {
    const int tiles_n = (n - 1) / BLOCK_N + 1;
    row = tile / tiles_n * BLOCK_M;
    col = tile % tiles_n * BLOCK_N;
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
constexpr int TEAM = THREADS;

constexpr int THREAD_M = 4;  // a thread computes THREAD_M x THREAD_N elements in registers
constexpr int THREAD_N = 4;
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

// A's tile, as it is stored: A_LINES lines of A_LINE neighbours, along k.
constexpr int A_LINES = BLOCK_M, A_LINE = BLOCK_K;
constexpr int A_WIDTH = 4;  // elements of a word, which one copy moves
constexpr int A_WORDS = A_LINE / A_WIDTH;  // in a line
constexpr int A_COPIES = (A_LINES * A_WORDS - 1) / THREADS + 1;  // of each thread
// A thread's first word, and how far on its j-th lies: whole lines, or within a line that has more words than threads.
__device__ __forceinline__ int a_line() { return threadIdx.x / A_WORDS; }
__device__ __forceinline__ int a_at() { return threadIdx.x % A_WORDS * A_WIDTH; }
__device__ constexpr int a_line_on(int j) { return THREADS >= A_WORDS ? j * (THREADS / A_WORDS) : j * THREADS / A_WORDS; }
__device__ constexpr int a_at_on(int j) { return THREADS >= A_WORDS ? 0 : j * THREADS % A_WORDS * A_WIDTH; }
__device__ constexpr int a_place(int line, int at) { return at * A_PITCH + line; }

// The thread's j-th copy; `to` and `from` are its first. FIRST: the tile hangs out over the beginning of k by `hidden`,
// which counts as zero.
template <bool FIRST>
__device__ __forceinline__ void copy_a(int j, element* to, const element* from, int pitch, int hidden) {
    if (A_LINES * A_WORDS < THREADS && threadIdx.x >= A_LINES * A_WORDS) return;
    to += a_place(a_line_on(j), a_at_on(j));
    const bool outside = FIRST && a_at() + a_at_on(j) < hidden;
    from += ptrdiff_t(a_line_on(j)) * pitch + a_at_on(j);
    alignas(16) element word[A_WIDTH] = {};
    if (!outside) copy<A_WIDTH>(word, from);
#pragma unroll
    for (int e = 0; e < A_WIDTH; e++) to[e * A_PITCH] = word[e];
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
    if (outside) clear<B_WIDTH>(to);
    else copy<B_WIDTH>(to, from);
}


// Where in the block's tile of C does this thread's warp begin, and where its own first element?
__device__ __forceinline__ void find_warp(int& row, int& col) {
    const int warp = threadIdx.x % TEAM / 32;
    row = warp / (BLOCK_N / WARP_N) * WARP_M;
    col = warp % (BLOCK_N / WARP_N) * WARP_N;
}
__device__ __forceinline__ void find_thread(int& row, int& col) {
    const int lane = threadIdx.x % 32;
    const int lane_m = lane / LANES_N, lane_n = lane % LANES_N;

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

// Adds one tile's products. Each element read from shared memory is used THREAD_N or THREAD_M times from registers.
__device__ __forceinline__ void multiply(Sums& sum, const element* As, const element* Bs) {
#pragma unroll 8
    for (int kk = 0; kk < BLOCK_K; kk++) {
        accumulator a[THREAD_M], b[THREAD_N];
#pragma unroll
        for (int i = 0; i < THREAD_M; i += CHUNK_M)
            read<CHUNK_M>(&a[i], &As[kk * A_PITCH + row_of(i)]);
#pragma unroll
        for (int j = 0; j < THREAD_N; j += CHUNK_N) read<CHUNK_N>(&b[j], &Bs[kk * B_PITCH + col_of(j)]);
#pragma unroll
        for (int i = 0; i < THREAD_M; i++)
#pragma unroll
            for (int j = 0; j < THREAD_N; j++) sum[i][j] += a[i] * b[j];
    }
}

// The products of steps [begin, end) along k, of which all but the first `hidden` of step 0 exist. row,
// col: where in the tile of C this thread is.
__device__ __forceinline__ void accumulate(Sums& sum, element* shared, const Operand& a, const Operand& b, int begin,
                                           int end, int hidden, int row, int col) {
    element *const As = shared, *const Bs = shared + A_ELEMENTS;
    element *const a_to = As + a_place(a_line(), a_at()), *const b_to = Bs + b_place(b_line(), b_at());
    const element* const a_first = As + row;  // this thread's ...
    const element* const b_first = Bs + col;
    for (int step = begin; step < end; step++) {
        const int k0 = step * BLOCK_K - hidden;  // the first tile hangs out over the beginning of k, not the last
        const element* const a_from = a.from + offset(a_line(), a.pitch) + a_at() + k0;
        const element* const b_from = b.from + ptrdiff_t(b_line() + k0) * b.pitch + b_at();
        const int outside = step == 0 ? hidden : 0;
#pragma unroll
        for (int j = 0; j < A_COPIES; j++) copy_a<true>(j, a_to, a_from, a.pitch, outside);
#pragma unroll
        for (int j = 0; j < B_COPIES; j++) copy_b<true>(j, b_to, b_from, b.pitch, outside);
        __syncthreads();  // the tiles are whole before anyone reads them
        multiply(sum, a_first, b_first);
        __syncthreads();  // all have read them before anyone overwrites them
    }
}

// A thread's sums leave its registers in words of 16 bytes: neighbours of one row.
constexpr int SUM_WIDTH = 16 / sizeof(accumulator);  // sums in a word
constexpr int SUM_WORDS = THREAD_M * THREAD_N / SUM_WIDTH;
__device__ constexpr int word_row(int q) { return q / (THREAD_N / SUM_WIDTH); }
__device__ constexpr int word_col(int q) { return q % (THREAD_N / SUM_WIDTH) * SUM_WIDTH; }

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
    __shared__ __align__(16) element shared[A_ELEMENTS + B_ELEMENTS];
    const int matrix = blockIdx.z * 32768 + blockIdx.y;
    if (matrix >= batch) return;  // the whole block

    a += size_t(matrix) * a_step * a_pitch;
    const int a_rows = m;
    b += size_t(matrix) * b_step * b_pitch;
    const int b_cols = n;
    const Result result = result_of(c, addend, bias, alpha, beta, matrix, c_pitch, c_step);
    const int steps = (k - 1) / BLOCK_K + 1, hidden = steps * BLOCK_K - k;
    int thread_row, thread_col;
    find_thread(thread_row, thread_col);
    const int unit = blockIdx.x;

    const auto sum_tile = [&](Sums& sum, const Tile& tile, int begin, int end) {
        const Operand a_side = {a + offset(tile.row, a_pitch), a_pitch, a_rows - tile.row};
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
