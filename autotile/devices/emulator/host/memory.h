// Every access of the kernel passes here: bounds and alignment at all levels, races and unwritten shared memory above.
#pragma once
#include <time.h>

#include "cluster.h"
#include "global_memory.h"
#include "merging.h"
#include "protections.h"

static double now_s() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool overdue() { return launch.overdue_ticks || now_s() > launch.deadline_s; }

// Reading the clock at every access would double its cost.
static constexpr uint32_t kTicksPerClock = 1 << 14;

static __attribute__((noinline)) void check_clock(uint32_t pc) {
    launch.ticks_left = kTicksPerClock;
    if (!overdue()) return;
    report(kTimeout, kLoad, pc);
    stop_launch();
}

static inline void count_tick(uint32_t pc) {
    if (__builtin_expect(--launch.ticks_left == 0, 0)) check_clock(pc);
}

// Constants of the kernel (tables, literals) lie in the library itself.
struct ReadableRange {
    char *begin, *end;
};
static Array<ReadableRange> constants;

static bool is_constant(const char* p) {
    for (size_t i = 0; i < constants.size; i++)
        if (p >= constants[i].begin && p < constants[i].end) return true;
    return (size_t)(p - (char*)&autotile_builtins) < sizeof autotile_builtins;
}

// cudaMalloc aligns to 256 bytes and the host to 16, so only the last four bits say where the caller's view starts.
static uint64_t trace_address(const Buffer& buffer, const char* p) {
    return ((uint64_t)(&buffer - buffers.data) << 40 | ((uintptr_t)buffer.begin & 15)) + (uint64_t)(p - buffer.begin);
}

[[noreturn]] static __attribute__((noinline)) void fault(DiagnosticKind kind, AccessKind access, uint32_t pc,
                                                         const char* address, unsigned bytes) {
    Diagnostic& d = report(kind, access == kRead ? kLoad : kStore, pc);
    d.address = (uint64_t)address, d.bytes = bytes;
    stop_launch();
}

// Offset inside the block's shared memory, or -1.
static inline ptrdiff_t shared_offset(const char* p) {
    size_t offset = (size_t)(p - shared.begin);
    return offset < shared.dynamic_offset + kArenaBytes ? (ptrdiff_t)offset : -1;
}

static inline bool shared_room(size_t offset, unsigned bytes) {
    if (offset < shared.static_bytes) return offset + bytes <= shared.static_bytes;
    return offset >= shared.dynamic_offset && offset + bytes <= shared.limit;
}

static inline Buffer* buffer_at(const char* p, unsigned bytes) {
    for (size_t i = 0; i < buffers.size; i++)
        if (p >= buffers[i].begin && p < buffers[i].end && bytes <= (size_t)(buffers[i].end - p)) return &buffers[i];
    return nullptr;
}

static __attribute__((noinline)) void access_shared(size_t offset, unsigned bytes, AccessKind kind, uint32_t pc) {
    char* p = shared.begin + offset;
    if (!shared_room(offset, bytes)) fault(kOutOfBounds, kind, pc, p, bytes);
    if ((uintptr_t)p & (bytes - 1)) fault(kMisaligned, kind, pc, p, bytes);
    if (launch.level == kTrace) {
        uint32_t source = note_shared(*shared.shadow, offset, bytes, kind, pc);
        copy_counts.atomics += kind == kAtomic;
        trace_access(pc, kind != kRead, true, bytes, (uint64_t)offset, source);
    }
    if (launch.level >= kRaces) check_shared(*shared.shadow, offset, bytes, kind, pc);
}

// The counters tell the windows of a cluster from the block's own shared memory; their banks are the same.
static constexpr uint64_t kWindowAddress = 1 << 24;

// Another block's shared memory.
static void access_window(char* p, unsigned bytes, AccessKind kind, uint32_t pc) {
    uint32_t rank = window_rank(p);
    size_t offset = (size_t)(p - window(rank));
    if (rank >= launch.cluster_blocks || rank == launch.rank || !shared_room(offset, bytes))
        fault(kOutOfBounds, kind, pc, p, bytes);
    if ((uintptr_t)p & (bytes - 1)) fault(kMisaligned, kind, pc, p, bytes);
    note_window_access(rank, kind, pc);
    if (launch.level == kTrace) {
        uint32_t source = note_shared(shadows[rank], offset, bytes, kind, pc);
        trace_access(pc, kind != kRead, true, bytes, (uint64_t)(p - windows.begin) + kWindowAddress, source);
    }
    if (launch.level >= kRaces) check_shared(shadows[rank], offset, bytes, kind, pc);
}

static __attribute__((noinline)) void access_elsewhere(char* p, unsigned bytes, AccessKind kind, uint32_t pc) {
    if ((size_t)(p - launch.fiber->stack) < stacks.bytes()) return;  // local memory
    Buffer* buffer = buffer_at(p, bytes);
    if (__builtin_expect(!buffer, 0)) {
        if (is_in_window(p)) return access_window(p, bytes, kind, pc);
        if (kind == kRead && is_constant(p)) return;
        fault(kOutOfBounds, kind, pc, p, bytes);
    }
    if (__builtin_expect((uintptr_t)p & (bytes - 1), 0)) fault(kMisaligned, kind, pc, p, bytes);
    if (kind != kRead && !buffer->writable) fault(kReadOnlyWrite, kind, pc, p, bytes);
    if (launch.level < kRaces) return;
    check_global(*buffer, (size_t)(p - buffer->begin), bytes, kind, pc);
    if (launch.level != kTrace) return;
    copy_counts.atomics += kind == kAtomic;
    trace_access(pc, kind != kRead, false, bytes, trace_address(*buffer, p));
}

static __attribute__((noinline)) void trace_plain_read(size_t offset, unsigned bytes, uint32_t pc) {
    trace_access(pc, false, true, bytes, (uint64_t)offset, note_read(*shared.shadow, offset, bytes, pc));
}

static __attribute__((always_inline)) inline void access(char* p, unsigned bytes, AccessKind kind, uint32_t pc) {
    if (__builtin_expect(!launch.fiber, 0)) return;
    count_tick(pc);
    ptrdiff_t offset = shared_offset(p);
    if (offset < 0) return access_elsewhere(p, bytes, kind, pc);
    bool aligned = !(offset & (bytes - 1));
    if (launch.level == kBounds) {
        if (aligned && shared_room((size_t)offset, bytes)) return;
    } else if (kind == kRead && aligned && (size_t)offset < shared.limit && is_plain_read((size_t)offset, bytes)) {
        if (launch.level == kTrace) trace_plain_read((size_t)offset, bytes, pc);
        return;
    }
    access_shared((size_t)offset, bytes, kind, pc);
}

// A structure copied as a whole: in the widest pieces that a GPU would use for its size.
static void access_range(char* p, size_t bytes, AccessKind kind, uint32_t pc) {
    unsigned piece = 16;
    while (piece > 1 && (((uintptr_t)p | bytes) & (piece - 1))) piece /= 2;
    if (piece > 4 && bytes % 16) piece = 4;
    for (size_t done = 0; done < bytes; done += piece) access(p + done, piece, kind, pc);
}

// What the compiler knows may be unaligned (memcpy, packed structures) is no fault; a GPU would go byte by byte.
static inline void access_unaligned(char* p, unsigned bytes, AccessKind kind, uint32_t pc) {
    if ((uintptr_t)p & (bytes - 1))
        access_range(p, bytes, kind, pc);
    else
        access(p, bytes, kind, pc);
}
