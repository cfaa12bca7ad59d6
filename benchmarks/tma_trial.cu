// Transposes that use the Tensor Memory Accelerator of sm_90: out[c][r] = in[r][c], of matrices that tiles divide evenly.
//
// tma_trial.py compiles this file once for each variant, which it names by -D:
//   SIZE                            bytes of an element: 1, 2 or 4
//   TILE_ROWS, TILE_COLS            the part of `in` that a block moves at a time, in elements
//   THREADS                         of a block
//   TURN_ROWS                       rows that a thread turns in registers
//   WAY_IN                          TENSOR: boxes to shared memory; VECTORS: 16-byte loads to registers
//   WAY_OUT                         how the turned tile leaves: REGISTERS: stores straight from them; or, through shared
//                                   memory, VECTORS: 16-byte stores, TENSOR: boxes, ROWS: a bulk copy for each row
//   STAGES                          1: a block a tile; more: as many tiles of a block are under way at once
//   DOWN_FIRST                      1: neighbouring blocks lie below each other in `in`; 0: beside each other

enum Way { REGISTERS, VECTORS, TENSOR, ROWS };

constexpr Way IN = WAY_IN, OUT = WAY_OUT;
constexpr unsigned TILE_BYTES = TILE_ROWS * TILE_COLS * SIZE;
constexpr unsigned VECTOR = 16 / SIZE;          // elements of 16 bytes
constexpr unsigned BOX = 128;                   // bytes of a row of a box: all that the 128-byte swizzle takes
constexpr unsigned LINE = TILE_ROWS * SIZE;     // bytes of a line: a row of `out` within a tile
constexpr unsigned REGISTER = 4 / SIZE;         // elements of a register
constexpr unsigned WORD = TURN_ROWS * SIZE;     // bytes of a line that a thread has after turning
constexpr unsigned PARTS = VECTOR / TURN_ROWS;  // patches below each other in a square of VECTOR x VECTOR elements
constexpr unsigned PATCHES = TILE_BYTES / 16 / TURN_ROWS;
constexpr unsigned POLLS = 1u << 22;

constexpr unsigned IN_BYTES = IN == TENSOR ? STAGES * TILE_BYTES : 0;
constexpr unsigned OUT_BYTES = OUT == REGISTERS ? 0 : OUT == ROWS ? TILE_BYTES + TILE_COLS / VECTOR * 16 : STAGES * TILE_BYTES;

static_assert(SIZE == 1 || SIZE == 2 || SIZE == 4, "elements of 1, 2 or 4 bytes");
static_assert(TILE_COLS * SIZE % BOX == 0 && LINE % BOX == 0, "whole boxes, of both matrices");
static_assert(TILE_ROWS <= 256 && TILE_COLS <= 256, "a box has 256 rows at most");
static_assert(VECTOR % TURN_ROWS == 0 && TURN_ROWS % REGISTER == 0, "whole registers");
static_assert(PATCHES % THREADS == 0, "as many patches for each thread");
static_assert(STAGES == 1 || (IN == TENSOR && OUT == TENSOR), "only boxes are under way while others are turned");

struct alignas(64) TensorMap {  // CUtensorMap, made by the host
    unsigned char opaque[128];
};

// ---- the instructions -----------------------------------------------------------------------------------------------

__device__ __forceinline__ unsigned shared_address(const void* at) {
    return static_cast<unsigned>(__cvta_generic_to_shared(at));
}

__device__ __forceinline__ void barrier_init(unsigned barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

// The one arrival of a phase; the phase ends when so many bytes have come besides.
__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Waits for the end of the phase of that parity. Bytes that never come end the launch: a try waits 200 ns at most.
__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
    for (unsigned poll = 0; poll < POLLS; poll++) {
        unsigned ended;
        asm volatile(
            "{\n\t"
            ".reg .pred ended;\n\t"
            "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2, %3;\n\t"
            "selp.u32 %0, 1, 0, ended;\n\t"
            "}"
            : "=r"(ended)
            : "r"(barrier), "r"(parity), "r"(200u)
            : "memory");
        if (ended) return;
    }
    __trap();
}

// What this thread wrote to shared memory becomes visible to the accelerator, which reads by a way of its own.
__device__ __forceinline__ void fence_for_accelerator() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void box_in(unsigned to, const TensorMap& map, unsigned x, unsigned y, unsigned barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(&map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void box_out(const TensorMap& map, unsigned x, unsigned y, unsigned from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x),
                 "r"(y), "r"(from)
                 : "memory");
}

__device__ __forceinline__ void row_out(void* to, unsigned from, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(to)),
                 "r"(from), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Until all groups of this thread but the last UNREAD have been read from shared memory, which may then be reused.
template <int UNREAD>
__device__ __forceinline__ void wait_until_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(UNREAD) : "memory");
}

// ---- where things lie -----------------------------------------------------------------------------------------------

struct Tile {
    unsigned row, col;  // of its first element in `in`
};

__device__ __forceinline__ Tile tile_of(unsigned number, unsigned rows, unsigned cols) {
    const unsigned down = rows / TILE_ROWS, across = cols / TILE_COLS;
    if (DOWN_FIRST) return {number % down * TILE_ROWS, number / down * TILE_COLS};
    return {number / across * TILE_ROWS, number % across * TILE_COLS};
}

// Offset of a byte of a row in a buffer of boxes beside each other, each of HEIGHT rows of 128 bytes. The swizzle deals the
// eight 16-byte words of a row in an order of the row's own; the buffer is aligned to 1024 bytes, and so is each box.
template <unsigned HEIGHT>
__device__ __forceinline__ unsigned in_boxes(unsigned row, unsigned byte) {
    return byte / BOX * (HEIGHT * BOX) + row * BOX + ((byte / 16 ^ row) % 8) * 16 + byte % 16;
}

// Offset of a byte of a line of the turned tile. ROWS needs whole lines: then each group of VECTOR lines is followed by 16
// bytes, so that threads which write to neighbouring groups meet different banks.
__device__ __forceinline__ unsigned turned_place(unsigned line, unsigned byte) {
    if constexpr (OUT == ROWS) return line * LINE + line / VECTOR * 16 + byte;
    return in_boxes<TILE_COLS>(line, byte);
}

// First element of a patch: TURN_ROWS rows of 16 bytes. Eight threads read, and later write, 16 bytes each at a time. In
// boxes they meet eight different words both ways only on a diagonal of a square of 8 x 8 vectors; four such diagonals, a
// warp's, are 64 bytes of each row. Where the turned tile is not in boxes, loads from memory run along whole rows.
__device__ __forceinline__ Tile patch_of(unsigned number) {
    if constexpr (IN == VECTORS && OUT == ROWS) {
        constexpr unsigned ACROSS = TILE_COLS / VECTOR;
        return {number / ACROSS * TURN_ROWS, number % ACROSS * VECTOR};
    }
    constexpr unsigned SQUARE = 8 * VECTOR, ACROSS = TILE_COLS / SQUARE;
    const unsigned lane = number % 8, part = number / 8 % PARTS, diagonal = number / 8 / PARTS % 8;
    const unsigned square = number / 64 / PARTS;
    return {square / ACROSS * SQUARE + (lane ^ diagonal) * VECTOR + part * TURN_ROWS,
            square % ACROSS * SQUARE + lane * VECTOR};
}

// ---- turning --------------------------------------------------------------------------------------------------------

struct Patch {
    unsigned part[TURN_ROWS][4];

    __device__ __forceinline__ void take(unsigned row, const unsigned char* from) {
        const uint4 word = *reinterpret_cast<const uint4*>(from);
        part[row][0] = word.x, part[row][1] = word.y, part[row][2] = word.z, part[row][3] = word.w;
    }

    // Turns each square of REGISTER x REGISTER elements where it lies.
    __device__ __forceinline__ void turn_squares() {
#pragma unroll
        for (unsigned i = 0; i < TURN_ROWS; i += REGISTER)
#pragma unroll
            for (unsigned q = 0; q < 4; q++) {
                if constexpr (SIZE == 2) {
                    const unsigned a = part[i][q], b = part[i + 1][q];
                    part[i][q] = __byte_perm(a, b, 0x5410), part[i + 1][q] = __byte_perm(a, b, 0x7632);
                }
                if constexpr (SIZE == 1) {
                    const unsigned a = part[i][q], b = part[i + 1][q], c = part[i + 2][q], d = part[i + 3][q];
                    const unsigned ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);
                    const unsigned cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
                    part[i][q] = __byte_perm(ab_low, cd_low, 0x5410);
                    part[i + 1][q] = __byte_perm(ab_low, cd_low, 0x7632);
                    part[i + 2][q] = __byte_perm(ab_high, cd_high, 0x5410);
                    part[i + 3][q] = __byte_perm(ab_high, cd_high, 0x7632);
                }
            }
    }

    // Column j, of WORD bytes, once the squares are turned.
    __device__ __forceinline__ void put(unsigned j, unsigned char* to) const {
        unsigned word[WORD / 4];
#pragma unroll
        for (unsigned i = 0; i < WORD / 4; i++) word[i] = part[i * REGISTER + j % REGISTER][j / REGISTER];
        if constexpr (WORD == 16) *reinterpret_cast<uint4*>(to) = make_uint4(word[0], word[1], word[2], word[3]);
        if constexpr (WORD == 8) *reinterpret_cast<uint2*>(to) = make_uint2(word[0], word[1]);
        if constexpr (WORD == 4) *reinterpret_cast<unsigned*>(to) = word[0];
    }
};

// Turns the tile: from boxes in shared memory or from `in`, to `turned` in shared memory or to `out`.
__device__ __forceinline__ void turn(const unsigned char* boxes, const unsigned char* __restrict__ in,
                                     unsigned char* turned, unsigned char* __restrict__ out, Tile tile, unsigned rows,
                                     unsigned cols) {
    // Loads from memory are all under way before the first is waited for; those from shared memory need no such care.
    constexpr unsigned STEPS = PATCHES / THREADS, AHEAD = IN == VECTORS ? STEPS : 1;
#pragma unroll
    for (unsigned first = 0; first < STEPS; first += AHEAD) {
        Patch patches[AHEAD];
#pragma unroll
        for (unsigned step = 0; step < AHEAD; step++) {
            const Tile at = patch_of((first + step) * THREADS + threadIdx.x);
#pragma unroll
            for (unsigned i = 0; i < TURN_ROWS; i++)
                patches[step].take(i, IN == TENSOR ? boxes + in_boxes<TILE_ROWS>(at.row + i, at.col * SIZE)
                                                   : in + (size_t(tile.row + at.row + i) * cols + tile.col + at.col) * SIZE);
        }
#pragma unroll
        for (unsigned step = 0; step < AHEAD; step++) {
            const Tile at = patch_of((first + step) * THREADS + threadIdx.x);
            patches[step].turn_squares();
#pragma unroll
            for (unsigned j = 0; j < VECTOR; j++)
                patches[step].put(j, OUT == REGISTERS
                                         ? out + (size_t(tile.col + at.col + j) * rows + tile.row + at.row) * SIZE
                                         : turned + turned_place(at.col + j, at.row * SIZE));
        }
    }
}

// ---- tiles in and out -----------------------------------------------------------------------------------------------

// By one thread: the boxes of a tile of `in`, beside each other.
__device__ __forceinline__ void fetch(const TensorMap& map, Tile tile, const unsigned char* boxes, unsigned barrier) {
    barrier_expect(barrier, TILE_BYTES);
#pragma unroll
    for (unsigned at = 0; at < TILE_COLS * SIZE; at += BOX)
        box_in(shared_address(boxes) + at * TILE_ROWS, map, tile.col + at / SIZE, tile.row, barrier);
}

// By one thread: the boxes of the turned tile, beside each other; a group of bulk copies.
__device__ __forceinline__ void send(const TensorMap& map, Tile tile, const unsigned char* turned) {
#pragma unroll
    for (unsigned at = 0; at < LINE; at += BOX)
        box_out(map, tile.row + at / SIZE, tile.col, shared_address(turned) + at * TILE_COLS);
    commit();
}

// By all threads, once the whole tile is turned.
__device__ __forceinline__ void leave(const TensorMap& map, const unsigned char* turned, unsigned char* out, Tile tile,
                                      unsigned rows) {
    unsigned char* const first = out + (size_t(tile.col) * rows + tile.row) * SIZE;
    if constexpr (OUT == VECTORS) {
#pragma unroll
        for (unsigned i = threadIdx.x; i < TILE_BYTES / 16; i += THREADS) {
            const unsigned line = i / (LINE / 16), byte = i % (LINE / 16) * 16;
            *reinterpret_cast<uint4*>(first + size_t(line) * rows * SIZE + byte) =
                *reinterpret_cast<const uint4*>(turned + turned_place(line, byte));
        }
    }
    if constexpr (OUT == ROWS) {
        for (unsigned line = threadIdx.x; line < TILE_COLS; line += THREADS)
            row_out(first + size_t(line) * rows * SIZE, shared_address(turned) + turned_place(line, 0), LINE);
        commit();
        wait_until_read<0>();
    }
    if constexpr (OUT == TENSOR) {
        if (threadIdx.x == 0) {
            send(map, tile, turned);
            wait_until_read<0>();
        }
    }
}

// A tile a block.
__device__ __forceinline__ void one_tile(const TensorMap& in_map, const TensorMap& out_map, const unsigned char* in,
                                         unsigned char* out, unsigned rows, unsigned cols, unsigned char* smem) {
    const Tile tile = tile_of(blockIdx.x, rows, cols);
    unsigned char* const turned = smem + IN_BYTES;
    if constexpr (IN == TENSOR) {
        const unsigned barrier = shared_address(smem + IN_BYTES + OUT_BYTES);
        if (threadIdx.x == 0) {
            barrier_init(barrier);
            fence_for_accelerator();
            fetch(in_map, tile, smem, barrier);
        }
        __syncthreads();  // the barrier is there for all
        barrier_wait(barrier, 0);
    }
    turn(smem, in, turned, out, tile, rows, cols);
    if constexpr (OUT != REGISTERS) {
        if constexpr (OUT != VECTORS) fence_for_accelerator();
        __syncthreads();
        leave(out_map, turned, out, tile, rows);
    }
}

// Tiles gridDim.x apart. While one is turned, the next come in and those before leave.
__device__ __forceinline__ void many_tiles(const TensorMap& in_map, const TensorMap& out_map, const unsigned char* in,
                                           unsigned char* out, unsigned rows, unsigned cols, unsigned char* smem) {
    const unsigned tiles = rows / TILE_ROWS * (cols / TILE_COLS);
    const unsigned barriers = shared_address(smem + IN_BYTES + OUT_BYTES);
    if (threadIdx.x == 0) {
        for (unsigned stage = 0; stage < STAGES; stage++) barrier_init(barriers + 8 * stage);
        fence_for_accelerator();
        for (unsigned stage = 0; stage < STAGES; stage++)
            if (blockIdx.x + stage * gridDim.x < tiles)
                fetch(in_map, tile_of(blockIdx.x + stage * gridDim.x, rows, cols), smem + stage * TILE_BYTES,
                      barriers + 8 * stage);
    }
    unsigned round = 0;
    for (unsigned number = blockIdx.x; number < tiles; number += gridDim.x, round++) {
        const unsigned stage = round % STAGES;
        unsigned char* const boxes = smem + stage * TILE_BYTES;
        unsigned char* const turned = smem + IN_BYTES + stage * TILE_BYTES;
        const Tile tile = tile_of(number, rows, cols);
        __syncthreads();  // thread 0 has seen that what was in `turned` has been read; at first, the barriers are there
        barrier_wait(barriers + 8 * stage, round / STAGES % 2);
        turn(boxes, in, turned, out, tile, rows, cols);
        fence_for_accelerator();
        __syncthreads();  // all have read `boxes` and written `turned`
        if (threadIdx.x == 0) {
            send(out_map, tile, turned);
            const unsigned later = number + STAGES * gridDim.x;
            if (later < tiles) fetch(in_map, tile_of(later, rows, cols), boxes, barriers + 8 * stage);
            wait_until_read<STAGES - 1>();  // the next round's `turned` is free: it left STAGES - 1 rounds ago
        }
    }
    if (threadIdx.x == 0) wait_until_read<0>();
}

extern "C" __global__ void __launch_bounds__(THREADS)
tma_trial(const __grid_constant__ TensorMap in_map, const __grid_constant__ TensorMap out_map,
          const unsigned char* __restrict__ in, unsigned char* __restrict__ out, unsigned rows, unsigned cols) {
    extern __shared__ __align__(1024) unsigned char smem[];  // boxes of `in`, then the turned tile, then the barriers
    if constexpr (STAGES == 1)
        one_tile(in_map, out_map, in, out, rows, cols, smem);
    else
        many_tiles(in_map, out_map, in, out, rows, cols, smem);
}
