// What every part of the runtime shares: the running launch, its threads, and what has been found so far.
// A library holds one launch at a time; program.py serialises the calls.
#pragma once
#include <stdlib.h>

#include "abi.h"
#include "fibers.h"

extern "C" {
extern char autotile_shared_begin[], autotile_shared_end[];
// Behind the arrays of the kernel lie those of the functions that are launched before and after it, if there are any.
extern __attribute__((weak)) char autotile_steps_begin[];
extern const AutotileEntryPoint autotile_entries[];
extern const uint32_t autotile_instrumented;
AutotileBuiltins autotile_builtins;
static constexpr size_t kArenaBytes = AUTOTILE_ARENA_BYTES;
extern char autotile_dynamic_shared[];
}

static constexpr unsigned kWarpLanes = 32;
static constexpr unsigned kMaxThreads = 1024;
static constexpr unsigned kMaxClusterBlocks = 8;  // what every GPU with clusters takes
static constexpr uint32_t kNobody = 0xffff;

// A growing array without libstdc++, so that the library links and loads faster. For plain data only.
template <class T>
struct Array {
    T* data = nullptr;
    size_t size = 0, capacity = 0;

    T& operator[](size_t i) { return data[i]; }
    void reserve(size_t n) {
        if (n <= capacity) return;
        capacity = n;
        data = (T*)realloc((void*)data, n * sizeof(T));
        if (!data) abort();
    }
    void push(const T& item) {
        if (size == capacity) reserve(capacity ? 2 * capacity : 64);
        data[size++] = item;
    }
    void clear() { size = 0; }
    void release() {
        free((void*)data);
        data = nullptr;
        size = capacity = 0;
    }
};

enum DiagnosticKind : uint32_t {
    kOutOfBounds = 1,
    kMisaligned,
    kReadOnlyWrite,
    kSharedRace,
    kGlobalRace,
    kUninitialisedShared,
    kBarrierDivergence,
    kDeadlock,
    kInactiveLane,
    kTimeout,
    kStackOverflow,
    kDivisionByZero,
    kTrap,
    kBadCopySize,
    kUnstartedBlock,
    kExitedBlock,
    kSplitBarrier,
    kBadRank,
};

enum DiagnosticOp : uint32_t { kLoad, kStore, kReadAfterWrite, kWriteAfterWrite, kWriteAfterRead, kReadBeforeWait };

struct Diagnostic {
    uint32_t kind, op;
    uint64_t count;
    uint64_t pc, other_pc;  // return addresses, relative to the image; 0 where line says it
    uint32_t line, other_line;
    int32_t thread, other_thread;  // -1: unknown
    int64_t block, other_block;
    uint64_t address, bytes;
    uint32_t across_warps;
    uint32_t waiting;  // threads at the barrier
};

enum AccessKind : uint32_t { kRead, kWrite, kAtomic };

enum FiberState : uint8_t { kReady, kAtBarrier, kAtWarp, kAtCluster, kDone };

// An asynchronous copy between its issue and its landing.
struct PendingCopy {
    char* target;
    uint64_t words[2];  // the source as it was at the issue, the tail already zero
    uint32_t bytes, group, pc;
    uint32_t issue_epoch, issue_warp_epoch;
};

struct Fiber {
    Context context;
    char* stack;
    AutotileIndex thread;
    FiberState state;
    bool arrived;         // between barrier_arrive() and barrier_wait() of the cluster
    uint32_t warp_epoch;  // rises at every __syncwarp, and past that of all who took part
    uint32_t mask, op, source_lane;
    uint64_t value, result;
    uint32_t pc, line, site;
    uint32_t open_group;
    Array<PendingCopy> copies;
};

enum Level : uint32_t { kBounds, kRaces, kTrace };

struct Launch {
    Fiber* fiber;  // null while the scheduler runs
    uint32_t thread;
    uint32_t thread_count;
    int64_t block;            // linear
    uint32_t rank;            // of the block in its cluster
    uint32_t cluster_blocks;  // 1 where the kernel has no clusters
    uint32_t phase;           // barriers that this cluster has passed
    // Epochs rise at every barrier, and whenever a block begins to run or goes on, over the whole launch: each is one
    // block's. Those from phase_epoch to run_epoch are of other blocks since the cluster's last barrier.
    uint32_t epoch;
    uint32_t cluster_epoch;  // the first of this cluster
    uint32_t phase_epoch;    // the first since the cluster's last barrier
    uint32_t run_epoch;      // the first since this block went on
    Level level;
    bool backward;
    bool instrumented;  // false: the kernel was compiled without callbacks
    bool stopped;       // a fault: give up the launch
    bool busy;          // inside the allocator: not a place to be interrupted
    volatile uint32_t overdue_ticks;
    uint32_t ticks_left;  // accesses until the clock is read again
    double deadline_s;
    const AutotileEntryPoint* entry;
    void** arguments;
    Context scheduler;
};

static Launch launch;
static Fiber every_fiber[kMaxClusterBlocks * kMaxThreads];
static Fiber* fibers = every_fiber;  // the running block's
static Stacks stacks;
static uintptr_t image_base;

static constexpr size_t kMaxDiagnostics = 256;
static Diagnostic diagnostics[kMaxDiagnostics];  // not on the heap: a signal handler may report
static size_t diagnostic_count;

static inline uint32_t relative(const void* return_address) {
    return (uint32_t)((uintptr_t)return_address - image_base);
}
#define AUTOTILE_CALLER relative(__builtin_return_address(0))

// The same fault at the same two places is one diagnostic with a count.
static Diagnostic& report(DiagnosticKind kind, DiagnosticOp op, uint32_t pc, uint32_t other_pc = 0) {
    for (size_t i = 0; i < diagnostic_count; i++) {
        Diagnostic& d = diagnostics[i];
        if (d.kind == kind && d.op == op && d.pc == pc && d.other_pc == other_pc) {
            d.count++;
            return d;
        }
    }
    if (diagnostic_count == kMaxDiagnostics) {
        diagnostics[kMaxDiagnostics - 1].count++;
        return diagnostics[kMaxDiagnostics - 1];
    }
    Diagnostic& d = diagnostics[diagnostic_count++];
    d = Diagnostic{};
    d.kind = kind, d.op = op, d.count = 1, d.pc = pc, d.other_pc = other_pc;
    d.thread = launch.fiber ? (int32_t)launch.thread : -1, d.other_thread = -1;
    d.block = launch.block, d.other_block = -1;
    return d;
}

// Since when a block ran without a pause, in the order of the epochs.
struct BlockStart {
    uint32_t first_epoch;
    int64_t block;
    bool released;  // it ran __threadfence() and then an atomic: what it wrote is visible to who saw the atomic
};
static Array<BlockStart> block_starts;

static BlockStart& block_at(uint32_t epoch) {
    size_t low = 0, high = block_starts.size;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        (block_starts[middle].first_epoch <= epoch ? low : high) = middle;
    }
    return block_starts[low];
}

// Is an access of this epoch another block's of the cluster, with no barrier of the cluster since?
static inline bool beside_cluster(uint32_t epoch) { return epoch >= launch.phase_epoch && epoch < launch.run_epoch; }

static void yield_to_scheduler() {
    Fiber* me = launch.fiber;
    launch.fiber = nullptr;
    switch_context(me->context, launch.scheduler);
}

// Gives up the whole launch: the fibers are abandoned where they stand. Never returns into the kernel.
[[noreturn]] static void stop_launch() {
    launch.stopped = true;
    yield_to_scheduler();
    __builtin_unreachable();
}
