// Every access of the kernel passes here: bounds and alignment at all levels, races and unwritten shared memory above.
#pragma once
#include <time.h>

#include "state.h"
#include "trace.h"

enum AccessKind : uint32_t { kRead, kWrite, kAtomic };

// ---------------------------------------------------------------------------------------------------- time limit

static double now_s() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool overdue() {
    return launch.overdue_ticks || now_s() > launch.deadline_s;
}

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

// -------------------------------------------------------------------------------------------------- shared memory

// Last writer and last two readers of one unit of shared memory. Epochs order the threads of a block; inside a warp
// the warp's epochs do. `settled` says for whom the readers need no more recording, see settle().
struct SharedCell {
    uint64_t settled;
    uint32_t write_epoch, write_pc;
    uint32_t read_epoch, read_pc[2];
    uint16_t writer, reader[2];
    uint16_t write_warp_epoch, read_warp_epoch[2];
};
static constexpr uint16_t kAtomicWriter = 0x8000;
static constexpr uint16_t kNoThread = 0x7fff;

// One range for the addresses of a block's shared memory: the static arrays, a gap up to the arena, the dynamic ones.
struct Shared {
    char* begin;
    size_t static_bytes, dynamic_offset, limit;
    // A cell covers 4 bytes until the kernel makes a narrower access: two halves in one word are no race.
    unsigned shift;
    Array<SharedCell> cells;  // those of the gap and beyond the limit are never written
};
static Shared shared;

static void reset_shared_cells() {
    shared.shift = 2;
    size_t count = (shared.limit >> shared.shift) + 8;
    shared.cells.reserve(count);
    shared.cells.size = count;
    SharedCell blank{};
    blank.writer = blank.reader[0] = blank.reader[1] = kNoThread;
    for (size_t i = 0; i < count; i++) shared.cells[i] = blank;
}

static void refine_shared_cells(unsigned shift) {
    size_t factor = (size_t)1 << (shared.shift - shift);
    size_t coarse = shared.cells.size;
    launch.busy = true;
    shared.cells.reserve(coarse * factor);
    launch.busy = false;
    for (size_t i = coarse; i-- > 0;)
        for (size_t k = factor; k-- > 0;) shared.cells[i * factor + k] = shared.cells[i];
    shared.cells.size = coarse * factor;
    shared.shift = shift;
}

static inline unsigned narrow_shift(size_t offset, unsigned bytes) {
    return ((offset | bytes) & 1) ? 0 : ((offset | bytes) & 2) ? 1 : 2;
}

static inline uint16_t warp_epoch() { return (uint16_t)(launch.fiber->warp_epoch > 0xffff ? 0xffff : launch.fiber->warp_epoch); }

// Is an access of `other` in this epoch unordered with what the running thread does now?
static inline bool unordered(uint16_t other, uint16_t other_warp_epoch) {
    if (other == launch.thread || other == kNoThread) return false;
    return other / kWarpLanes != launch.thread / kWarpLanes || warp_epoch() <= other_warp_epoch;
}

static void report_shared_race(DiagnosticOp op, uint32_t pc, uint32_t other_pc, uint16_t other, size_t offset) {
    Diagnostic& d = report(kSharedRace, op, pc, other_pc);
    bool across = other / kWarpLanes != launch.thread / kWarpLanes;
    if (d.count > 1 && (d.across_warps || !across)) return;
    // A pair from two warps shows better than one from a single warp that the block's barrier is missing.
    d.thread = (int32_t)launch.thread, d.other_thread = other;
    d.block = d.other_block = launch.block;
    d.across_warps = across;
    d.address = offset;
}

static inline uint64_t settled_for_all() { return (uint64_t)launch.epoch << 32 | 0xffffffffu; }
static inline uint64_t settled_for_warp() {
    return (uint64_t)launch.epoch << 32 | (launch.thread / kWarpLanes) << 16 | warp_epoch();
}

// Readers of two warps conflict with any later writer of the epoch; two readers of one warp, in its present epoch, do so
// with any that a third reader of that warp would conflict with. Then the next readers have nothing to add.
static inline void settle(SharedCell& cell) {
    if (cell.reader[0] == kNoThread || cell.reader[1] == kNoThread) return;
    uint32_t warp = cell.reader[0] / kWarpLanes;
    if (warp != cell.reader[1] / kWarpLanes)
        cell.settled = settled_for_all();
    else if (warp == launch.thread / kWarpLanes && cell.read_warp_epoch[0] == warp_epoch() && cell.read_warp_epoch[1] == warp_epoch())
        cell.settled = settled_for_warp();
}

static inline void check_shared_read(SharedCell& cell, size_t offset, uint32_t pc) {
    uint32_t epoch = launch.epoch;
    if (cell.write_epoch < launch.block_first_epoch) {
        report(kUninitialisedShared, kLoad, pc).address = offset;
    } else if (cell.write_epoch == epoch && unordered(cell.writer & ~kAtomicWriter, cell.write_warp_epoch)) {
        report_shared_race(kReadAfterWrite, pc, cell.write_pc, cell.writer & ~kAtomicWriter, offset);
    }
    uint16_t me = (uint16_t)launch.thread;
    int slot = 0;
    cell.settled = 0;
    if (cell.read_epoch != epoch) {
        cell.read_epoch = epoch;
        cell.reader[1] = kNoThread;
    } else if (cell.reader[0] == me) {
        slot = 0;
    } else if (cell.reader[1] == me || cell.reader[1] == kNoThread) {
        slot = 1;
    } else if (cell.reader[0] / kWarpLanes != cell.reader[1] / kWarpLanes) {
        return settle(cell);
    } else {
        cell.reader[0] = cell.reader[1], cell.read_pc[0] = cell.read_pc[1];
        cell.read_warp_epoch[0] = cell.read_warp_epoch[1];
        slot = 1;
    }
    cell.reader[slot] = me;
    cell.read_pc[slot] = pc;
    cell.read_warp_epoch[slot] = warp_epoch();
    settle(cell);
}

static inline void check_shared_write(SharedCell& cell, size_t offset, uint32_t pc, bool atomic) {
    uint32_t epoch = launch.epoch;
    bool both_atomic = atomic && (cell.writer & kAtomicWriter);
    if (cell.write_epoch == epoch && !both_atomic && unordered(cell.writer & ~kAtomicWriter, cell.write_warp_epoch))
        report_shared_race(kWriteAfterWrite, pc, cell.write_pc, cell.writer & ~kAtomicWriter, offset);
    if (cell.read_epoch == epoch) {
        for (int i = 0; i < 2; i++) {
            if (!unordered(cell.reader[i], cell.read_warp_epoch[i])) continue;
            report_shared_race(kWriteAfterRead, pc, cell.read_pc[i], cell.reader[i], offset);
            break;
        }
    }
}

static inline void record_shared_write(SharedCell& cell, uint32_t pc, bool atomic) {
    cell.write_epoch = launch.epoch;
    cell.write_pc = pc;
    cell.writer = (uint16_t)(launch.thread | (atomic ? kAtomicWriter : 0));
    cell.write_warp_epoch = warp_epoch();
}

static __attribute__((noinline)) void check_shared(size_t offset, unsigned bytes, AccessKind kind, uint32_t pc) {
    unsigned needed = narrow_shift(offset, bytes);
    if (needed < shared.shift) refine_shared_cells(needed);
    size_t last = (offset + bytes - 1) >> shared.shift;
    for (size_t i = offset >> shared.shift; i <= last; i++) {
        SharedCell& cell = shared.cells[i];
        if (kind == kRead) {
            check_shared_read(cell, offset, pc);
        } else {
            if (kind == kAtomic && cell.write_epoch < launch.block_first_epoch)
                report(kUninitialisedShared, kLoad, pc).address = offset;
            check_shared_write(cell, offset, pc, kind == kAtomic);
            record_shared_write(cell, pc, kind == kAtomic);
        }
    }
}

// Most reads see what was written before the last barrier and has readers enough: they need no more than this. What is
// out of bounds has never been written, so it does not pass either.
static __attribute__((always_inline)) inline bool is_plain_read(size_t offset, unsigned bytes) {
    if (bytes >> shared.shift == 0) return false;
    uint32_t first_epoch = launch.block_first_epoch, past_epochs = launch.epoch - first_epoch;
    uint64_t for_all = settled_for_all(), for_warp = settled_for_warp();
    const SharedCell* cell = &shared.cells[offset >> shared.shift];
    for (unsigned n = bytes >> shared.shift; n > 0; n--, cell++) {
        if (cell->write_epoch - first_epoch >= past_epochs) return false;
        if (cell->settled != for_all && cell->settled != for_warp) return false;
    }
    return true;
}

// The bytes of an asynchronous copy change at some time between its issue and its landing: whoever touched them since the
// issue saw the old or the new ones by chance.
static void check_landing(const PendingCopy& copy, size_t offset, bool record) {
    unsigned needed = narrow_shift(offset, copy.bytes);
    if (needed < shared.shift) refine_shared_cells(needed);
    size_t last = (offset + copy.bytes - 1) >> shared.shift;
    for (size_t i = offset >> shared.shift; i <= last; i++) {
        SharedCell& cell = shared.cells[i];
        bool read_since = cell.read_epoch > copy.issue_epoch;
        for (int r = 0; r < 2 && cell.read_epoch == copy.issue_epoch; r++)
            read_since |= cell.reader[r] != kNoThread && cell.reader[r] != launch.thread &&
                          (cell.reader[r] / kWarpLanes != launch.thread / kWarpLanes ||
                           cell.read_warp_epoch[r] >= copy.issue_warp_epoch);
        if (read_since) {
            Diagnostic& d = report(kSharedRace, kReadBeforeWait, cell.read_pc[0], copy.pc);
            d.thread = cell.reader[0], d.other_thread = (int32_t)launch.thread;
            d.block = d.other_block = launch.block, d.address = offset;
        }
        if (cell.write_epoch > copy.issue_epoch && cell.writer != launch.thread)
            report_shared_race(kWriteAfterWrite, copy.pc, cell.write_pc, cell.writer & ~kAtomicWriter, offset);
        if (!record) continue;
        if (!read_since) check_shared_write(cell, offset, copy.pc, false);
        record_shared_write(cell, copy.pc, false);
    }
}

// -------------------------------------------------------------------------------------------------- global memory

// A stamp names a thread in an epoch: epoch << 10 | thread, 0 for nobody. Epochs rise over the whole launch, so a stamp
// older than the running block's first epoch is another block's.
struct GlobalCell {
    uint32_t write_stamp, read_stamp, write_pc, read_pc;
};
static constexpr uint32_t kFlag = 0x80000000u;  // in write_pc: written atomically; in read_pc: read by several threads
static constexpr unsigned kThreadBits = 10;
static constexpr uint32_t kMaxEpoch = (1u << (32 - kThreadBits)) - 1;

struct Buffer {
    char *begin, *end;
    bool writable;
    unsigned shift;
    GlobalCell* cells;
    size_t cell_bytes;
};
static Array<Buffer> buffers;

struct BlockStart {
    uint32_t first_epoch;
    int64_t block;
    bool released;  // it ran __threadfence() and then an atomic: what it wrote is visible to who saw the atomic
};
static Array<BlockStart> block_starts;
static bool block_fenced, block_acquired;

static BlockStart& block_of(uint32_t stamp) {
    uint32_t epoch = stamp >> kThreadBits;
    size_t low = 0, high = block_starts.size;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        (block_starts[middle].first_epoch <= epoch ? low : high) = middle;
    }
    return block_starts[low];
}

static void allocate_cells(Buffer& buffer) {
    buffer.cell_bytes = (((size_t)(buffer.end - buffer.begin) >> buffer.shift) + 2) * sizeof(GlobalCell);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
    flags |= MAP_NORESERVE;
#endif
    void* memory = mmap(nullptr, buffer.cell_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    buffer.cells = memory == MAP_FAILED ? nullptr : (GlobalCell*)memory;
}

static void refine_global_cells(Buffer& buffer, unsigned shift) {
    GlobalCell* coarse = buffer.cells;
    size_t coarse_bytes = buffer.cell_bytes, count = coarse_bytes / sizeof(GlobalCell);
    size_t factor = (size_t)1 << (buffer.shift - shift);
    launch.busy = true;
    buffer.shift = shift;
    allocate_cells(buffer);
    size_t fine = buffer.cells ? buffer.cell_bytes / sizeof(GlobalCell) : 0;
    for (size_t i = 0; i < count && i * factor < fine; i++) {
        if (!(coarse[i].write_stamp | coarse[i].read_stamp)) continue;
        for (size_t k = 0; k < factor && i * factor + k < fine; k++) buffer.cells[i * factor + k] = coarse[i];
    }
    munmap(coarse, coarse_bytes);
    launch.busy = false;
}

static inline bool unordered_stamp(uint32_t stamp) {
    if (!stamp) return false;
    uint32_t epoch = stamp >> kThreadBits, thread = stamp & (kMaxThreads - 1);
    if (epoch < launch.block_first_epoch) return true;
    if (epoch != launch.epoch || thread == launch.thread) return false;
    return thread / kWarpLanes != launch.thread / kWarpLanes || launch.fiber->warp_epoch == 0;
}

static void report_global_race(DiagnosticOp op, uint32_t pc, uint32_t other_pc, uint32_t stamp, bool several, char* address) {
    BlockStart& other = block_of(stamp);
    bool other_block = (stamp >> kThreadBits) < launch.block_first_epoch;
    if (other_block && other.released && block_acquired) return;
    Diagnostic& d = report(kGlobalRace, op, pc, other_pc & ~kFlag);
    if (d.count > 1) return;
    d.other_thread = several ? -1 : (int32_t)(stamp & (kMaxThreads - 1));
    d.other_block = other_block ? other.block : launch.block;
    d.address = (uint64_t)address;
}

static inline void check_global_cell(GlobalCell& cell, uint32_t stamp, AccessKind kind, uint32_t pc, char* address) {
    bool both_atomic = kind == kAtomic && (cell.write_pc & kFlag);
    if (cell.write_stamp != stamp && !both_atomic && unordered_stamp(cell.write_stamp))
        report_global_race(kind == kRead ? kReadAfterWrite : kWriteAfterWrite, pc, cell.write_pc, cell.write_stamp, false, address);
    if (kind == kRead) {
        if (cell.read_stamp == stamp) return;
        if (cell.read_stamp && unordered_stamp(cell.read_stamp)) {
            cell.read_pc |= kFlag;
        } else {
            cell.read_stamp = stamp;
            cell.read_pc = pc;
        }
        return;
    }
    bool several = cell.read_stamp == stamp && (cell.read_pc & kFlag);
    if (several || unordered_stamp(cell.read_stamp))
        report_global_race(kWriteAfterRead, pc, cell.read_pc, cell.read_stamp, several, address);
    cell.write_stamp = stamp;
    cell.write_pc = pc | (kind == kAtomic ? kFlag : 0);
}

static inline void check_global(Buffer& buffer, size_t offset, unsigned bytes, AccessKind kind, uint32_t pc) {
    if (!buffer.cells || launch.epoch > kMaxEpoch) return;
    unsigned needed = narrow_shift(offset, bytes);
    if (__builtin_expect(needed < buffer.shift, 0)) refine_global_cells(buffer, needed);
    if (!buffer.cells) return;
    uint32_t stamp = launch.epoch << kThreadBits | launch.thread;
    size_t last = (offset + bytes - 1) >> buffer.shift;
    for (size_t i = offset >> buffer.shift; i <= last; i++)
        check_global_cell(buffer.cells[i], stamp, kind, pc, buffer.begin + offset);
}

// ------------------------------------------------------------------------------------------------------ one access

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

[[noreturn]] static __attribute__((noinline)) void fault(DiagnosticKind kind, AccessKind access, uint32_t pc, const char* address, unsigned bytes) {
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
    if (launch.level >= kRaces) check_shared(offset, bytes, kind, pc);
    if (launch.level == kTrace) trace_access(pc, kind != kRead, true, bytes, (uint64_t)offset);
}

static __attribute__((noinline)) void access_elsewhere(char* p, unsigned bytes, AccessKind kind, uint32_t pc) {
    if ((size_t)(p - stacks.low(launch.thread)) < stacks.bytes()) return;  // local memory
    Buffer* buffer = buffer_at(p, bytes);
    if (__builtin_expect(!buffer, 0)) {
        if (kind == kRead && is_constant(p)) return;
        fault(kOutOfBounds, kind, pc, p, bytes);
    }
    if (__builtin_expect((uintptr_t)p & (bytes - 1), 0)) fault(kMisaligned, kind, pc, p, bytes);
    if (kind != kRead && !buffer->writable) fault(kReadOnlyWrite, kind, pc, p, bytes);
    if (launch.level < kRaces) return;
    check_global(*buffer, (size_t)(p - buffer->begin), bytes, kind, pc);
    if (launch.level == kTrace) trace_access(pc, kind != kRead, false, bytes, trace_address(*buffer, p));
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
        if (launch.level == kTrace) trace_access(pc, false, true, bytes, (uint64_t)offset);
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
