// Thread block clusters. The blocks of a cluster take turns, from one of its barriers to the next: the shared memory of
// the one that runs lies where the kernel's arrays are, that of the others in a window each, where the running block
// finds it through map_shared_rank().
#pragma once
#include "shared_memory.h"

struct Windows {
    char* begin = nullptr;
    size_t stride = 0;

    size_t bytes() const { return stride * kMaxClusterBlocks; }

    bool reserve(size_t shared_range) {
        if (begin) return true;
        stride = (shared_range + 4095) & ~(size_t)4095;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS;
        void* mapped = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, flags, -1, 0);
        if (mapped == MAP_FAILED) return false;
        begin = (char*)mapped;
        return true;
    }

    void release() {
        if (begin) munmap(begin, bytes());
        begin = nullptr;
        stride = 0;
    }
};
static Windows windows;

static inline bool is_in_window(const char* p) { return (size_t)(p - windows.begin) < windows.bytes(); }
static inline uint32_t window_rank(const char* p) { return (uint32_t)((size_t)(p - windows.begin) / windows.stride); }
static inline char* window(uint32_t rank) { return windows.begin + windows.stride * rank; }

// The last access of another block to a block's shared memory.
struct WindowAccess {
    uint32_t phase, pc, thread;
    int64_t block;
    DiagnosticOp op;
};
static WindowAccess window_accesses[kMaxClusterBlocks];

enum SplitFault : uint32_t { kArrivedTwice, kWaitedAlone, kReachedBetween, kNeverWaited };

static void report_split(SplitFault what, uint32_t pc) { report(kSplitBarrier, kLoad, pc).bytes = what; }

// A block's shared memory is there for others from the first barrier of the cluster that it has passed to the last.
static void note_window_access(uint32_t rank, AccessKind kind, uint32_t pc) {
    DiagnosticOp op = kind == kRead ? kLoad : kStore;
    if (launch.fiber->arrived)
        report_split(kReachedBetween, pc);
    else if (launch.phase == 0)
        report(kUnstartedBlock, op, pc).other_block = launch.block - launch.rank + rank;
    window_accesses[rank] = WindowAccess{launch.phase, pc, launch.thread, launch.block, op};
}

// At the end of a cluster: who was reached after the last barrier may have been gone.
static void report_early_exits(int64_t first_block) {
    for (uint32_t rank = 0; rank < launch.cluster_blocks; rank++) {
        const WindowAccess& last = window_accesses[rank];
        if (!last.pc || last.phase != launch.phase) continue;
        Diagnostic& d = report(kExitedBlock, last.op, last.pc);
        d.thread = (int32_t)last.thread, d.block = last.block, d.other_block = first_block + rank;
    }
}

// ------------------------------------------------------------------------------------------------------ whose turn it
// is

static void poison(char* begin, size_t bytes) {
    uint64_t* words = (uint64_t*)begin;
    for (size_t i = 0; i < bytes / 8; i++) words[i] = ~(uint64_t)0;
    for (size_t i = bytes & ~(size_t)7; i < bytes; i++) begin[i] = (char)0xff;
}

// `begin` is where a block's shared memory begins: its window, or the place of the kernel's own arrays.
static void poison_shared(char* begin) {
    poison(begin, shared.static_bytes);
    poison(begin + shared.dynamic_offset, shared.limit - shared.dynamic_offset);
}

static void copy_part(char* to, const char* from, size_t bytes) {
    size_t words = bytes / 8;
    for (size_t i = 0; i < words; i++) {
        ((uint64_t*)to)[i] = ((const uint64_t*)from)[i];
        asm volatile("" ::: "memory");  // else a call of this library's memcpy, which goes byte by byte
    }
    for (size_t i = 8 * words; i < bytes; i++) to[i] = from[i];
}

static void copy_shared(char* to, const char* from) {
    copy_part(to, from, shared.static_bytes);
    copy_part(to + shared.dynamic_offset, from + shared.dynamic_offset, shared.limit - shared.dynamic_offset);
}

static void begin_cluster() {
    launch.phase = 0;
    for (WindowAccess& last : window_accesses) last = WindowAccess{};
    if (launch.cluster_blocks == 1) return poison_shared(shared.begin);
    for (uint32_t rank = 0; rank < launch.cluster_blocks; rank++) poison_shared(window(rank));
}

static void take_turn(uint32_t rank) {
    launch.rank = rank;
    fibers = every_fiber + rank * kMaxThreads;
    shared.shadow = &shadows[rank];
    if (launch.cluster_blocks > 1) copy_shared(shared.begin, window(rank));
}

// What an exited block leaves behind is nobody's.
static void end_turn(bool exited) {
    if (launch.cluster_blocks == 1) return;
    if (exited)
        poison_shared(window(launch.rank));
    else
        copy_shared(window(launch.rank), shared.begin);
}
