// C = A B, row-major; A is m x k, B is k x n. bfloat16, sums in float, C in bfloat16.
// Lines of A begin and end on words of 16 bytes, those of B on words of 16 bytes, those of C on words of 16 bytes.
#include <cuda_bf16.h>

using element = __nv_bfloat16;
using result = __nv_bfloat16;
using accumulator = float;

constexpr int BLOCK_M = 64;  // a block computes BLOCK_M x BLOCK_N elements of C ...
constexpr int BLOCK_N = 128;
constexpr int BLOCK_K = 64;  // ... in steps of BLOCK_K along k
constexpr int TILE_M = BLOCK_M * 2;  // of all blocks that share operands
constexpr int TILE_N = BLOCK_N;

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

constexpr int GROUPS = 1;  // of four warps that multiply; each has its rows of the tile
constexpr int GROUP_M = BLOCK_M;
constexpr int THREADS = GROUPS * 128 + 32;  // the last warp feeds them
constexpr int STAGES = 8;  // slots of the ring, each of a step along k
constexpr int SPAN = 128 / sizeof(element);  // elements of a line of 128 bytes
constexpr int A_BYTES = BLOCK_M * BLOCK_K * sizeof(element), B_BYTES = BLOCK_N * BLOCK_K * sizeof(element);
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int BROUGHT_BYTES = STAGE_BYTES;
constexpr int RESULT_SPAN = 128 / sizeof(result);  // elements of C in a line of 128 bytes
constexpr int STRIPS = BLOCK_N / RESULT_SPAN;  // such lines side by side in a row of the tile
constexpr int ROOMS = 2;  // for one strip of a warp's 16 rows each
constexpr int ROOM_BYTES = 16 * 128;
constexpr int CLUSTER = 2;  // blocks that share one operand's tiles

__device__ __forceinline__ unsigned address_of(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ bool elected() {
    unsigned mine;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}\n" : "=r"(mine)::"memory");
    return mine;
}


constexpr unsigned MOST_TRIES = 1u << 20;  // each try waits for a while in hardware

__device__ __forceinline__ void barrier_make(unsigned barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// One arrival, and the bytes that copies will bring in this phase.
__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// At the barrier that lies in another block of the cluster where this one lies here.
__device__ __forceinline__ void barrier_arrive_at(unsigned barrier, unsigned rank) {
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(barrier), "r"(rank) : "memory");
}
__device__ __forceinline__ bool barrier_passed(unsigned barrier, unsigned parity) {
    unsigned passed;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(passed) : "r"(barrier), "r"(parity) : "memory");
    return passed;
}
__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity, unsigned gave_up) {
    for (unsigned tries = 0; !barrier_passed(barrier, parity);)
        if (++tries > MOST_TRIES) {
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(gave_up), "r"(tries) : "memory");
            break;
        }
}
__device__ __forceinline__ void trap_if_gave_up(unsigned gave_up) {
    unsigned tries;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(tries) : "r"(gave_up) : "memory");
    if (tries) __trap();
}


struct alignas(64) TensorMap { unsigned char bytes[128]; };

// The map itself is on its way to where the first box will need it.
__device__ __forceinline__ void prefetch_map(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }

// The box whose first element is (x, y) of matrix z comes to shared memory at `to`, and is told at `barrier`.
__device__ __forceinline__ void load_box(unsigned to, const TensorMap& map, int x, int y, int z, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(barrier) : "memory");
}
// The same to every block of the cluster whose bit is set in `blocks`, at the same place, told at its own barrier.
__device__ __forceinline__ void load_box_for(unsigned short blocks, unsigned to, const TensorMap& map, int x, int y, int z,
                                             unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;"
                 ::"r"(to), "l"(&map), "r"(x), "r"(y), "r"(barrier), "h"(blocks) : "memory");
}
__device__ __forceinline__ void store_box(const TensorMap& map, unsigned from, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 ::"l"(&map), "r"(x), "r"(y), "r"(from) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// All but the last PENDING stores of this thread have been read from shared memory.
template <int PENDING> __device__ __forceinline__ void stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
__device__ __forceinline__ void show_to_tma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }


__device__ __forceinline__ void multiply_start() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void multiply_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> __device__ __forceinline__ void multiply_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
template <int COUNT> __device__ __forceinline__ void pin(accumulator (&sums)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

__device__ __forceinline__ unsigned long long descriptor(unsigned address, unsigned leading, unsigned stride) {
    constexpr unsigned long long SWIZZLE_128 = 1ull << 62;
    return static_cast<unsigned long long>((address & 0x3ffff) >> 4) | static_cast<unsigned long long>(leading >> 4) << 16 |
           static_cast<unsigned long long>(stride >> 4) << 32 | SWIZZLE_128;
}

// sums (+)= A B, 64 rows by 128 columns; `add` 0 begins anew.
__device__ __forceinline__ void multiply(accumulator (&d)[64], unsigned long long a, unsigned long long b, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, p, 1, 1, 0, 1;\n}\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), 
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), 
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), 
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), 
                   "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), 
                   "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), 
                   "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), 
                   "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
                 : "l"(a), "l"(b), "r"(add));
}

constexpr int SUMS = BLOCK_N / 2;  // of a thread, for 64 rows
constexpr int ROWS = GROUP_M / 64;
using Sums = accumulator[ROWS][SUMS];

// What lies where in shared memory.
struct Shared {
    unsigned tiles, rooms, full, empty, gave_up;

    __device__ __forceinline__ explicit Shared(const unsigned char* memory) {
        tiles = (address_of(memory) + 1023) & ~1023u;  // swizzled boxes begin on 1024 bytes
        rooms = tiles + STAGES * STAGE_BYTES;
        full = rooms + GROUPS * 4 * ROOMS * ROOM_BYTES;
        empty = full + STAGES * 8;
        gave_up = empty + STAGES * 8;
    }
    __device__ __forceinline__ unsigned a(int slot) const { return tiles + slot * STAGE_BYTES; }
    __device__ __forceinline__ unsigned b(int slot) const { return a(slot) + A_BYTES; }
};

// Slots are used in a circle; each time round, the parity of their barriers' phases changes.
struct Slot {
    int number;
    unsigned parity;

    __device__ __forceinline__ explicit Slot(int step) : number(step % STAGES), parity(step / STAGES & 1) {}
    __device__ __forceinline__ void next() {
        if (++number == STAGES) number = 0, parity ^= 1;
    }
};

// The tile of one operand at one step along k: boxes 128 bytes wide.
__device__ __forceinline__ void bring_a(const Shared& shared, int slot, const TensorMap& map, int k0, int first, int matrix) {
#pragma unroll
    for (int i = 0; i < BLOCK_K / SPAN; i++)
        load_box(shared.a(slot) + i * BLOCK_M * 128, map, k0 + i * SPAN, first, matrix, shared.full + slot * 8);
}
__device__ __forceinline__ void bring_b(const Shared& shared, int slot, const TensorMap& map, int k0, int first, int matrix, int rank) {
#pragma unroll
    for (int i = 0; i < BLOCK_N / SPAN; i++)
        // Each block of the cluster has one part brought, to all.
        load_box_for((1 << CLUSTER) - 1, shared.b(slot) + i * BLOCK_K * 128 + rank * (BLOCK_K / CLUSTER) * 128, map,
                     first + i * SPAN, k0 + rank * (BLOCK_K / CLUSTER), matrix, shared.full + slot * 8);
}

// 64 rows and all columns of a step, which lie in a slot.
__device__ __forceinline__ void multiply_step(Sums& sums, unsigned a, unsigned b, bool first) {
#pragma unroll
    for (int i = 0; i < ROWS; i++) pin(sums[i]);
    multiply_start();
#pragma unroll
    for (int j = 0; j < BLOCK_K * static_cast<int>(sizeof(element)) / 32; j++) {
        const unsigned long long right = descriptor(b + j * 2048, BLOCK_K * 128, 1024);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const unsigned long long left = descriptor(a + j / 4 * BLOCK_M * 128 + i * 8192 + j % 4 * 32, 16, 1024);
            multiply(sums[i], left, right, !first || j > 0);
        }
    }
    multiply_commit();
#pragma unroll
    for (int i = 0; i < ROWS; i++) pin(sums[i]);
}

// Four matrices of 8 x 8 16-bit elements from a warp's registers to rows of 16 bytes, as ldmatrix reads them.
__device__ __forceinline__ void store_matrices(unsigned address, unsigned w, unsigned x, unsigned y, unsigned z) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], { %1, %2, %3, %4};" ::"r"(address), "r"(w), "r"(x), "r"(y), "r"(z) : "memory");
}

// A strip of a warp's 16 rows: its sums, finished, to a room in shared memory, swizzled as TMA has it. row, col: in C.
__device__ __forceinline__ void lay_out(const accumulator (&sums)[SUMS], int strip, unsigned room, const Result& to, int row, int col) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const auto pair = [&](int i, int h) {  // of the i-th 8 columns, in row g or g + 8
        const int at = (strip * (RESULT_SPAN / 8) + i) * 4 + h * 2, r = row + h * 8 + g, c = col + i * 8 + 2 * t;
        return pair_of(to.of(sums[at], r, c), to.of(sums[at + 1], r, c + 1));
    };
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        const int r = lane % 16, word = i + lane / 16;
        store_matrices(room + r * 128 + ((word ^ (r & 7)) << 4), pair(i, 0), pair(i, 1), pair(i + 1, 0), pair(i + 1, 1));
    }
}

// What a warp has finished of a tile. row, col: of the warp's first element in C.
__device__ __forceinline__ void store(Sums& sums, unsigned rooms, const Result& to, const TensorMap& map, int row, int col, int matrix) {
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int strip = 0; strip < STRIPS; strip++) {
            const unsigned room = rooms + (i * STRIPS + strip) % ROOMS * ROOM_BYTES;
            if (elected()) stores_read<ROOMS - 1>();
            __syncwarp();  // the room's last store has been read
            lay_out(sums[i], strip, room, to, row + i * 64, col + strip * RESULT_SPAN);
            show_to_tma();
            __syncwarp();  // all lanes' rows are there, for TMA too
            if (elected()) store_box(map, room, col + strip * RESULT_SPAN, row + i * 64, matrix);
        }
    }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
matmul_tensor(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, const __grid_constant__ TensorMap map_c,
              const element* __restrict__ a, const element* __restrict__ b, result* c, const result* addend,
              const result* __restrict__ bias, void* scratch, float alpha, float beta, int m, int n, int k,
              int batch, int a_pitch, int b_pitch, int c_pitch, int a_step, int b_step, int c_step) {
    extern __shared__ __align__(128) unsigned char memory[];  // 214160 bytes, sized by the launch
    const Shared shared(memory);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const int tiles = count_tiles(m, n, batch), steps = (k - 1) / BLOCK_K + 1;
    const int unit = blockIdx.x / CLUSTER, units = gridDim.x / CLUSTER;  // blocks, or clusters, that take tiles
    const int begin = 0, end = steps;
    // Has the tiles of a step of k brought to a slot, once nobody reads it.
    const auto feed = [&](const Tile& tile, int step, const Slot& slot) {
        const int row = tile.row + rank * BLOCK_M, col = tile.col;
        barrier_expect(shared.full + slot.number * 8, BROUGHT_BYTES);
        bring_a(shared, slot.number, map_a, step * BLOCK_K, row, tile.matrix);
        bring_b(shared, slot.number, map_b, step * BLOCK_K, col, tile.matrix, rank);
    };

    // Every cycle until the first tile is asked for counts: the maps are on their way while the other warps, each for its
    // slots, make the barriers, before anyone uses them: other threads, other blocks of the cluster, and TMA.
    if (warp == GROUPS * 4) {
        if (elected()) {
            prefetch_map(map_a);
            prefetch_map(map_b);
        }
    } else if (warp < GROUPS * 4 && elected()) {
        for (int slot = warp; slot < STAGES; slot += GROUPS * 4) {
            barrier_make(shared.full + slot * 8, 1);
            barrier_make(shared.empty + slot * 8, GROUPS * 4 * CLUSTER);  // warps that read it
        }
        if (warp == 0) asm volatile("st.shared.u32 [%0], 0;" ::"r"(shared.gave_up) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    __syncthreads();
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");  // the other blocks' barriers are made
    // All slots are free: as many steps are asked for at once. This has a place of its own ahead of the loop that goes on
    // with it, whose text lies far from here and is yet to be fetched.
    const int fed = min(STAGES, end - begin);
    if (warp == GROUPS * 4 && elected()) {
        const Tile tile(unit, m, n);
        for (int i = 0; i < fed; i++) feed(tile, begin + i, Slot(i));
    }
    if (warp >= GROUPS * 4) {
        if (warp == GROUPS * 4 && elected()) {
            Slot slot(fed);
            int first = begin + fed;  // of the first tile's steps, that is still to be fed
            for (int number = unit; number < tiles; number += units, first = begin) {
                const Tile tile(number, m, n);
                for (int step = first; step < end; step++, slot.next()) {
                    barrier_wait(shared.empty + slot.number * 8, slot.parity ^ 1, shared.gave_up);
                    feed(tile, step, slot);
                }
            }
            // A block stays until no other one tells it anything any more: what it fed last has been read by all.
            for (int i = 0; i < STAGES; i++, slot.next()) barrier_wait(shared.empty + slot.number * 8, slot.parity ^ 1, shared.gave_up);
        }
    } else {
        const unsigned rooms = shared.rooms + warp * ROOMS * ROOM_BYTES;
        // A slot is given back by one lane of every warp that read it, to all blocks that fill it.
        const auto give_back = [&](int slot) {
            if (lane < CLUSTER) barrier_arrive_at(shared.empty + slot * 8, lane);
        };
        int done = 0;  // steps so far, of all groups' tiles where these take turns
        for (int number = unit; number < tiles; number += units, done += end - begin) {
            Slot slot(done);
            int before = -1;
            Sums sums;
            for (int step = begin; step < end; step++) {
                barrier_wait(shared.full + slot.number * 8, slot.parity, shared.gave_up);
                multiply_step(sums, shared.a(slot.number), shared.b(slot.number), step == begin);
                if (before >= 0) {
                    multiply_wait<1>();  // the step before is done
                    give_back(before);
                }
                before = slot.number;
                slot.next();
            }
            multiply_wait<0>();
#pragma unroll
            for (int i = 0; i < ROWS; i++) pin(sums[i]);
            give_back(before);
            const Tile tile(number, m, n);  // not needed before: registers are scarce there
            const size_t first = size_t(tile.matrix) * c_step * c_pitch;
            const Result to = {c + first, addend, bias, alpha, beta, m, n, c_pitch};
            const int row = tile.row + rank * BLOCK_M + warp % 4 * 16;
            store(sums, rooms, to, map_c, row, tile.col, tile.matrix);
        }
        if (elected()) stores_read<0>();  // shared memory is there until they have been
    }
    trap_if_gave_up(shared.gave_up);
}
