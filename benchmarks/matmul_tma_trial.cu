// C = A B in float32 on plain cores, its tiles fed by the Tensor Memory Accelerator of sm_90. Row-major; A is m x k, or
// stored turned, k x m; B is k x n. Tiles divide all three sizes.
//
// matmul_tma_trial.py compiles this file once for each variant, which it names by -D:
//   TILE_M, TILE_N, TILE_K          a block computes TILE_M x TILE_N elements of C in steps of TILE_K along k
//   THREAD_M, THREAD_N              a thread computes so many of them, in registers
//   LANES_M                         the lanes of a warp lie LANES_M x 32 / LANES_M
//   LANE_MAP                        ROW_BY_ROW or SQUARES: how neighbouring lanes lie there
//   ORDER                           ROWS or COLUMNS: the multiply-adds of one k go through them, every other one backwards
//   STAGES                          slots of the ring
//   TURNED                          1: A is stored turned, and its tile read like B's; 0: its rows run along k
//   PRODUCERS                       threads besides those that multiply, of which one asks for tiles: 32, a warp; or 128, a
//                                   group of warps, which leaves its registers to the others; 0: thread 0 asks for them,
//                                   between its multiply-adds
//   GROUP                           blocks take C's tiles in bands of so many rows of tiles; 1: row by row
//   MIN_BLOCKS                      blocks of a multiprocessor, for the compiler's choice of registers

enum LaneMap { ROW_BY_ROW, SQUARES };
enum Order { ROWS, COLUMNS };

constexpr int CONSUMERS = TILE_M / THREAD_M * (TILE_N / THREAD_N);  // threads that multiply
constexpr int THREADS = CONSUMERS + PRODUCERS;
constexpr int LANES_N = 32 / LANES_M;
constexpr int WARP_M = LANES_M * THREAD_M;
constexpr int WARP_N = LANES_N * THREAD_N;
constexpr int CHUNK = 4;  // elements of 16 bytes, which a thread reads at once

constexpr int A_ELEMENTS = TILE_M * TILE_K;  // of a slot, which holds A's tile, then B's
constexpr int SLOT = A_ELEMENTS + TILE_K * TILE_N;
constexpr unsigned SLOT_BYTES = SLOT * 4;
constexpr long long WAIT_CYCLES = 1ll << 32;

// When, in a step, a warp waits for the next tile, and thread 0 refills the slot that the step before has left.
constexpr int WAIT_AT = TILE_K - 2;
constexpr int REFILL_AT = TILE_K / 2 - 1;

static_assert(TILE_M % WARP_M == 0 && TILE_N % WARP_N == 0, "whole warps");
static_assert(THREAD_M % CHUNK == 0 && THREAD_N % CHUNK == 0, "whole words of a thread");
static_assert(PRODUCERS == 0 || PRODUCERS == 32 || PRODUCERS == 128, "none, a warp, or a group of four");
static_assert(PRODUCERS < 128 || CONSUMERS == 256, "registers are handed over for two groups that multiply");
static_assert(TILE_M <= 256 && TILE_N <= 256, "a box has 256 elements at most along each side");
static_assert(TILE_K == 8 || TILE_K == 16 || TILE_K == 32, "a row of A's tile is as long as a swizzle: 32, 64, 128 bytes");
static_assert(WARP_M % 8 == 0 && A_ELEMENTS * 4 % 1024 == 0 && SLOT_BYTES % 1024 == 0, "where the swizzle's pattern begins");

struct alignas(64) TensorMap {  // CUtensorMap, made by the host
    unsigned char opaque[128];
};

// ---- the instructions -----------------------------------------------------------------------------------------------

__device__ __forceinline__ unsigned shared_address(const void* at) {
    return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

__device__ __forceinline__ void barrier_init(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Barriers that this thread made are there for the accelerator too.
__device__ __forceinline__ void fence_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The one arrival of a phase; the phase ends when so many bytes have come besides.
__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// A while at most, which the hardware chooses.
__device__ __forceinline__ bool barrier_try(unsigned barrier, unsigned parity) {
    unsigned ended;
    asm volatile(
        "{\n\t"
        ".reg .pred ended;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, ended;\n\t"
        "}"
        : "=r"(ended)
        : "r"(barrier), "r"(parity)
        : "memory");
    return ended;
}

// Waits for the end of the phase of that parity. What never comes ends the launch, after some two seconds.
__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
    if (barrier_try(barrier, parity)) return;
    const long long begin = clock64();
    while (!barrier_try(barrier, parity))
        if (clock64() - begin > WAIT_CYCLES) __trap();
}

__device__ __forceinline__ void box_in(unsigned to, const TensorMap& map, int x, int y, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// By all of a group of four warps: how many registers a thread has from here on. A block of 384 threads begins with 168
// for each; two groups of 240 and one of 24 are as many.
template <int COUNT> __device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ __forceinline__ void leave_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// ---- where things lie -----------------------------------------------------------------------------------------------

struct Place {
    int row, col;
};

// Where block `number`'s tile of C begins.
__device__ __forceinline__ Place tile_of(int number, int m, int n) {
    const int down = m / TILE_M, across = n / TILE_N;
    if constexpr (GROUP == 1) return {number / across * TILE_M, number % across * TILE_N};
    const int band = number / (GROUP * across), rest = number % (GROUP * across);
    const int height = min(GROUP, down - band * GROUP);
    return {(band * GROUP + rest % height) * TILE_M, rest / height * TILE_N};
}

__device__ __forceinline__ Place lane_of(int lane) {
    if constexpr (LANE_MAP == ROW_BY_ROW) return {lane / LANES_N, lane % LANES_N};
    return {lane / 2 % 4 + lane / 8 / (LANES_N / 2) * 4, lane % 2 + lane / 8 % (LANES_N / 2) * 2};
}

// A thread's i-th row and j-th column, from its first on. Chunks of neighbouring lanes lie side by side. Rows along k are
// read one by one, and lanes beside each other have rows below each other.
constexpr int ROW_CHUNK = TURNED ? CHUNK : 1;
__device__ constexpr int row_of(int i) { return i / ROW_CHUNK * (LANES_M * ROW_CHUNK) + i % ROW_CHUNK; }
__device__ constexpr int col_of(int j) { return j / CHUNK * (LANES_N * CHUNK) + j % CHUNK; }

// The swizzle of rows along k: of the words of 16 bytes in a row, word w lies where word w ^ word_key(row) would. The
// accelerator takes the key from bits 7 and up of the address, as many as the row has words. It is linear in row's bits:
// word_key(a ^ b) = word_key(a) ^ word_key(b). Eight rows in turn meet eight different words of 128 bytes.
__device__ constexpr int word_key(int row) { return row * TILE_K * 4 / 128 % (TILE_K / CHUNK); }

// The multiply-adds of one k, x-th of THREAD_M * THREAD_N.
__device__ constexpr int fma_row(int x) {
    if (ORDER == ROWS) return x / THREAD_N;
    return x / THREAD_M % 2 ? THREAD_M - 1 - x % THREAD_M : x % THREAD_M;
}
__device__ constexpr int fma_col(int x) {
    if (ORDER == COLUMNS) return x / THREAD_M;
    return x / THREAD_N % 2 ? THREAD_N - 1 - x % THREAD_N : x % THREAD_N;
}

// ---- the ring -------------------------------------------------------------------------------------------------------

// A slot and the parity of its current use.
struct Turn {
    int slot = 0;
    unsigned parity = 0;

    __device__ __forceinline__ Turn next() const {
        Turn after;
        after.slot = slot + 1 == STAGES ? 0 : slot + 1;
        after.parity = slot + 1 == STAGES ? parity ^ 1 : parity;
        return after;
    }
};

// Barriers lie behind the slots: one a slot that ends when its tiles are there, one that ends when all warps are done.
struct Ring {
    unsigned slots;

    __device__ __forceinline__ unsigned full(int slot) const { return slots + STAGES * SLOT_BYTES + slot * 8; }
    __device__ __forceinline__ unsigned empty(int slot) const { return full(STAGES + slot); }

    // By one thread: the tiles of a step into a slot that is free.
    __device__ __forceinline__ void fill(int slot, const TensorMap& a_map, const TensorMap& b_map, Place tile, int step) const {
        const unsigned to = slots + slot * SLOT_BYTES, barrier = full(slot);
        const int k = step * TILE_K;
        barrier_expect(barrier, SLOT_BYTES);
        if constexpr (TURNED)
            box_in(to, a_map, tile.row, k, barrier);
        else
            box_in(to, a_map, k, tile.row, barrier);
        box_in(to + A_ELEMENTS * 4, b_map, tile.col, k, barrier);
    }
};

// ---- multiplying ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ void read(float* to, const float* from) {
    const float4 word = *reinterpret_cast<const float4*>(from);
    to[0] = word.x, to[1] = word.y, to[2] = word.z, to[3] = word.w;
}

// What a thread multiplies next: elements of B's row k; and those of A's column k, where A is turned, or else the four
// along k that hold it.
struct Fragments {
    float a[TURNED ? 2 : 1][TURNED ? THREAD_M : THREAD_M * CHUNK];
    float b[2][THREAD_N];
    Place at;      // of the thread's first element in the tile of C
    int lane_key;  // word_key(at.row)

    __device__ __forceinline__ void read_b(const float* slot, int k) {
#pragma unroll
        for (int j = 0; j < THREAD_N; j += CHUNK) read(&b[k % 2][j], slot + A_ELEMENTS + k * TILE_N + at.col + col_of(j));
    }
    __device__ __forceinline__ void read_a_turned(const float* slot, int k) {
#pragma unroll
        for (int i = 0; i < THREAD_M; i += CHUNK) read(&a[k % 2][i], slot + k * TILE_M + at.row + row_of(i));
    }
    // k: the first of the four
    __device__ __forceinline__ void read_a_row(const float* slot, int i, int k) {
        const int word = (k / CHUNK ^ word_key(row_of(i))) ^ lane_key;
        read(&a[0][i * CHUNK], slot + (at.row + row_of(i)) * TILE_K + word * CHUNK);
    }
    __device__ __forceinline__ void read_first(const float* slot) {
        read_b(slot, 0);
        if constexpr (TURNED) {
            read_a_turned(slot, 0);
        } else {
#pragma unroll
            for (int i = 0; i < THREAD_M; i++) read_a_row(slot, i, 0);
        }
    }
    // The products of one k; what comes next lies in `slot` at `next`, of which B's, and A's where it is turned, is read.
    __device__ __forceinline__ void multiply(float (&sum)[THREAD_M][THREAD_N], int k, const float* slot, int next) {
        if (!TURNED && k % CHUNK == CHUNK - 1) {  // once a row is done, its next four are read into their place
#pragma unroll
            for (int i = 0; i < THREAD_M; i++) {
#pragma unroll
                for (int j = 0; j < THREAD_N; j++) sum[i][j] += a[0][i * CHUNK + CHUNK - 1] * b[k % 2][j];
                read_a_row(slot, i, next);
            }
        } else {
#pragma unroll
            for (int x = 0; x < THREAD_M * THREAD_N; x++) {
                const int i = fma_row(x), j = fma_col(x);
                sum[i][j] += (TURNED ? a[TURNED ? k % 2 : 0][i] : a[0][i * CHUNK + k % CHUNK]) * b[k % 2][j];
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
matmul_tma_trial(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, float* __restrict__ c,
                 int m, int n, int k) {
    extern __shared__ __align__(1024) float shared[];
    const Ring ring = {shared_address(shared)};
    const Place tile = tile_of(blockIdx.x, m, n);
    const int steps = k / TILE_K;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    if (threadIdx.x == 0) {
        if (ring.slots % 1024) __trap();  // the swizzle goes by addresses
        for (int slot = 0; slot < STAGES; slot++) {
            barrier_init(ring.full(slot), 1);
            barrier_init(ring.empty(slot), CONSUMERS / 32);
        }
        fence_init();
    }
    __syncthreads();

    if (PRODUCERS && warp >= CONSUMERS / 32) {
        if constexpr (PRODUCERS == 128) leave_registers<24>();
        if (threadIdx.x == CONSUMERS) {
            Turn turn;
            for (int step = 0; step < steps; step++) {
                if (step >= STAGES) barrier_wait(ring.empty(turn.slot), turn.parity ^ 1);  // the use before this one
                ring.fill(turn.slot, a_map, b_map, tile, step);
                turn = turn.next();
            }
        }
        return;
    }
    if constexpr (PRODUCERS == 128) take_registers<240>();
    if (!PRODUCERS && threadIdx.x == 0)
        for (int slot = 0; slot < STAGES && slot < steps; slot++) ring.fill(slot, a_map, b_map, tile, slot);
    __syncwarp();

    const Place in_warp = lane_of(lane);
    Fragments held;
    held.at.row = warp / (TILE_N / WARP_N) * WARP_M + in_warp.row * ROW_CHUNK;
    held.at.col = warp % (TILE_N / WARP_N) * WARP_N + in_warp.col * CHUNK;
    held.lane_key = word_key(in_warp.row);  // a warp begins at a multiple of eight rows, whose keys are 0
    float sum[THREAD_M][THREAD_N] = {};

    Turn before, now;
    barrier_wait(ring.full(0), 0);
    held.read_first(shared);
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        const bool more = step + 1 < steps;
        const Turn after = more ? now.next() : now;  // after the last step its own tile is read again, to no use
        const float* const here = shared + now.slot * SLOT;
        const float* const there = shared + after.slot * SLOT;
#pragma unroll
        for (int kk = 0; kk < TILE_K; kk++) {
            if (!PRODUCERS && kk == REFILL_AT && threadIdx.x == 0 && step > 0 && step - 1 + STAGES < steps) {
                barrier_wait(ring.empty(before.slot), before.parity);
                ring.fill(before.slot, a_map, b_map, tile, step - 1 + STAGES);
            }
            if (kk == WAIT_AT && more) barrier_wait(ring.full(after.slot), after.parity);
            const bool last = kk == TILE_K - 1;
            const float* const from = last ? there : here;
            const int next = last ? 0 : kk + 1;
            held.read_b(from, next);
            if constexpr (TURNED) held.read_a_turned(from, next);
            held.multiply(sum, kk, from, next);
        }
        __syncwarp();  // all lanes have what they read from this slot
        if (lane == 0) barrier_arrive(ring.empty(now.slot));
        before = now;
        now = after;
    }

    float* const first = c + size_t(tile.row + held.at.row) * n + tile.col + held.at.col;
#pragma unroll
    for (int i = 0; i < THREAD_M; i++)
#pragma unroll
        for (int j = 0; j < THREAD_N; j += CHUNK)
            *reinterpret_cast<float4*>(first + size_t(row_of(i)) * n + col_of(j)) =
                make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
}
