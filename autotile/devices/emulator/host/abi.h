// What a kernel's translation unit and the runtime agree on. The kernel sees it through cuda_host.h, the runtime
// directly; program.py mirrors the structures with ctypes, so raise AUTOTILE_ABI when one of them changes.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define AUTOTILE_ABI 4
// 227 KiB is the most shared memory that any device up to sm_120 gives a block.
#define AUTOTILE_ARENA_BYTES (227 * 1024)
#define AUTOTILE_EXPORT __attribute__((visibility("default")))

struct AutotileIndex {
    unsigned x, y, z;
};

struct AutotileBuiltins {
    AutotileIndex thread, block, block_dim, grid_dim;
    unsigned cluster_blocks;
};

enum AutotileParameterKind : uint32_t { kPointer, kSigned, kUnsigned, kFloating, kOpaque };

struct AutotileParameter {
    uint32_t kind, bytes;
};

// A __global__ function of the kernel's text. `fits`: its parameters have the types of the first one's.
struct AutotileEntryPoint {
    const char* name;
    void (*call)(void** arguments);
    const uint32_t* cluster;  // blocks along x, y and z
    uint32_t fits;
};

// What the lanes of a warp do together; the runtime computes every result when the last lane has arrived.
enum AutotileWarpOp : uint32_t {
    kSyncWarp,
    kShuffle,
    kBallot,
    kMatchAny,
    kReduceAdd,
    kReduceMinSigned,
    kReduceMaxSigned,
    kReduceMinUnsigned,
    kReduceMaxUnsigned,
    kReduceAnd,
    kReduceOr,
    kReduceXor,
    // Of matrices: all lanes of a warp have to come, to the same instruction.
    kGatherForMatrices,
    kLoadMatrices,
    kMultiplyMatrices,
};

// What the matrices A and B of a multiplication hold.
enum class AutotileElements : uint32_t { kF16, kBf16, kTf32, kS8, kE4m3, kE5m2, kE4m3E5m2, kE5m2E4m3, kF64 };
// Which multiplication it is: the elements, the rows of A, and how many bytes each of them has.
#define AUTOTILE_MATRICES(elements, rows, row_bytes) \
    ((uint32_t)AutotileElements::elements | (rows) << 8 | (row_bytes) << 16)

enum AutotileBarrierOp : uint32_t { kBarrier, kBarrierCount, kBarrierAnd, kBarrierOr };
enum AutotileClusterOp : uint32_t { kClusterSync, kClusterArrive, kClusterWait };

extern "C" {
int autotile_barrier(uint32_t op, int predicate, uint32_t line, uint32_t site);
void autotile_cluster_barrier(uint32_t op, uint32_t line);
void* autotile_map_shared(const void* address, uint32_t rank);
uint32_t autotile_shared_rank(const void* address);
uint64_t autotile_warp(uint32_t mask, uint32_t op, uint64_t value, uint32_t source_lane);
uint32_t autotile_active_lanes(void);
uint32_t autotile_shared_address(const void* address);
void* autotile_from_shared_address(uint32_t address);
void autotile_load_matrices(uint32_t address, uint32_t count, uint32_t transposed, uint32_t* registers);
uint64_t autotile_atomic_load(const void* address, uint32_t bytes);
void autotile_atomic_store(void* address, uint32_t bytes, uint64_t value);
void autotile_fence(void);
void autotile_copy_async(void* shared, const void* global, size_t bytes, size_t zero_bytes);
void autotile_copy_commit(void);
void autotile_copy_wait(size_t pending_groups);
void autotile_trap(void);
uint16_t autotile_half_from_float(float value);
float autotile_float_from_half(uint16_t bits);
uint8_t autotile_e4m3_from_float(float value);
uint8_t autotile_e5m2_from_float(float value);
float autotile_float_from_e4m3(uint8_t bits);
float autotile_float_from_e5m2(uint8_t bits);
}
