// Races in shared memory, between the threads of a block and between the blocks of a cluster, and reads of what nobody
// has written.
#pragma once
#include "state.h"

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

// The first reader of one unit since the cluster's last barrier. Blocks take turns, so that whoever writes after
// readers of other blocks comes after this one, too.
struct ClusterCell {
    uint32_t epoch, pc, thread;
};

// What is known of the shared memory of one block.
struct Shadow {
    // A cell covers 4 bytes until the kernel makes a narrower access: two halves in one word are no race.
    unsigned shift;
    Array<SharedCell> cells;     // those of the gap and beyond the limit are never written
    Array<ClusterCell> readers;  // in a cluster alone
};
static Shadow shadows[kMaxClusterBlocks];

// One range for the addresses of a block's shared memory: the static arrays, a gap up to the arena, the dynamic ones.
struct Shared {
    char* begin;
    size_t static_bytes, dynamic_offset, limit;
    Shadow* shadow;  // the running block's
};
static Shared shared;

static void reset_shadow(Shadow& shadow) {
    shadow.shift = 2;
    size_t count = (shared.limit >> shadow.shift) + 8;
    shadow.cells.reserve(count);
    shadow.cells.size = count;
    SharedCell blank{};
    blank.writer = blank.reader[0] = blank.reader[1] = kNoThread;
    for (size_t i = 0; i < count; i++) shadow.cells[i] = blank;
    if (launch.cluster_blocks == 1) return;
    shadow.readers.reserve(count);
    shadow.readers.size = count;
    for (size_t i = 0; i < count; i++) shadow.readers[i] = ClusterCell{};
}

template <class T>
static void split_cells(Array<T>& cells, size_t factor) {
    size_t coarse = cells.size;
    launch.busy = true;
    cells.reserve(coarse * factor);
    launch.busy = false;
    for (size_t i = coarse; i-- > 0;)
        for (size_t k = factor; k-- > 0;) cells[i * factor + k] = cells[i];
    cells.size = coarse * factor;
}

static void refine_shadow(Shadow& shadow, unsigned shift) {
    size_t factor = (size_t)1 << (shadow.shift - shift);
    split_cells(shadow.cells, factor);
    if (launch.cluster_blocks > 1) split_cells(shadow.readers, factor);
    shadow.shift = shift;
}

static inline unsigned narrow_shift(size_t offset, unsigned bytes) {
    return ((offset | bytes) & 1) ? 0 : ((offset | bytes) & 2) ? 1 : 2;
}

static inline uint16_t warp_epoch() {
    return (uint16_t)(launch.fiber->warp_epoch > 0xffff ? 0xffff : launch.fiber->warp_epoch);
}

// Is an access of `other` in this epoch unordered with what the running thread does now?
static inline bool unordered(uint16_t other, uint16_t other_warp_epoch) {
    if (other == launch.thread || other == kNoThread) return false;
    return other / kWarpLanes != launch.thread / kWarpLanes || warp_epoch() <= other_warp_epoch;
}

static void report_shared_race(DiagnosticOp op, uint32_t pc, uint32_t other_pc, uint16_t other, uint32_t other_epoch,
                               size_t offset) {
    Diagnostic& d = report(kSharedRace, op, pc, other_pc);
    int64_t other_block = block_at(other_epoch).block;
    bool across = other / kWarpLanes != launch.thread / kWarpLanes || other_block != launch.block;
    if (d.count > 1 && (d.across_warps || !across)) return;
    // A pair from two warps shows better than one from a single warp that the block's barrier is missing.
    d.thread = (int32_t)launch.thread, d.other_thread = other;
    d.block = launch.block, d.other_block = other_block;
    d.across_warps = across;
    d.address = offset;
}

// Of several on one line the first is told: its thread with its place.
static void report_unwritten(uint32_t pc, size_t offset) {
    Diagnostic& d = report(kUninitialisedShared, kLoad, pc);
    if (d.count == 1) d.address = offset;
}

static inline uint64_t settled_for_all() { return (uint64_t)launch.epoch << 32 | 0xffffffffu; }
static inline uint64_t settled_for_warp() {
    return (uint64_t)launch.epoch << 32 | (launch.thread / kWarpLanes) << 16 | warp_epoch();
}

// Readers of two warps conflict with any later writer of the epoch; two readers of one warp, in its present epoch, do
// so with any that a third reader of that warp would conflict with. Then the next readers have nothing to add.
static inline void settle(SharedCell& cell) {
    if (cell.reader[0] == kNoThread || cell.reader[1] == kNoThread) return;
    uint32_t warp = cell.reader[0] / kWarpLanes;
    if (warp != cell.reader[1] / kWarpLanes)
        cell.settled = settled_for_all();
    else if (warp == launch.thread / kWarpLanes && cell.read_warp_epoch[0] == warp_epoch() &&
             cell.read_warp_epoch[1] == warp_epoch())
        cell.settled = settled_for_warp();
}

static inline bool follows_write(const SharedCell& cell) {
    if (cell.write_epoch != launch.epoch) return beside_cluster(cell.write_epoch);
    return unordered(cell.writer & ~kAtomicWriter, cell.write_warp_epoch);
}

static void record_cluster_read(ClusterCell& cell, uint32_t pc) {
    if (cell.epoch < launch.phase_epoch) cell = ClusterCell{launch.epoch, pc, launch.thread};
}

static void check_cluster_write(const ClusterCell& cell, size_t offset, uint32_t pc) {
    if (beside_cluster(cell.epoch))
        report_shared_race(kWriteAfterRead, pc, cell.pc, (uint16_t)cell.thread, cell.epoch, offset);
}

static inline void check_shared_read(SharedCell& cell, size_t offset, uint32_t pc) {
    uint32_t epoch = launch.epoch;
    if (cell.write_epoch < launch.cluster_epoch) {
        report_unwritten(pc, offset);
    } else if (follows_write(cell)) {
        report_shared_race(kReadAfterWrite, pc, cell.write_pc, cell.writer & ~kAtomicWriter, cell.write_epoch, offset);
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

static inline void check_shared_write(Shadow& shadow, size_t index, size_t offset, uint32_t pc, bool atomic) {
    SharedCell& cell = shadow.cells[index];
    uint32_t epoch = launch.epoch;
    bool both_atomic = atomic && (cell.writer & kAtomicWriter);
    if (!both_atomic && follows_write(cell))
        report_shared_race(kWriteAfterWrite, pc, cell.write_pc, cell.writer & ~kAtomicWriter, cell.write_epoch, offset);
    if (cell.read_epoch == epoch) {
        for (int i = 0; i < 2; i++) {
            if (!unordered(cell.reader[i], cell.read_warp_epoch[i])) continue;
            report_shared_race(kWriteAfterRead, pc, cell.read_pc[i], cell.reader[i], epoch, offset);
            break;
        }
    }
    if (launch.cluster_blocks > 1) check_cluster_write(shadow.readers[index], offset, pc);
}

static inline void record_shared_write(SharedCell& cell, uint32_t pc, bool atomic) {
    cell.write_epoch = launch.epoch;
    cell.write_pc = pc;
    cell.writer = (uint16_t)(launch.thread | (atomic ? kAtomicWriter : 0));
    cell.write_warp_epoch = warp_epoch();
}

static __attribute__((noinline)) void check_shared(Shadow& shadow, size_t offset, unsigned bytes, AccessKind kind,
                                                   uint32_t pc) {
    unsigned needed = narrow_shift(offset, bytes);
    if (needed < shadow.shift) refine_shadow(shadow, needed);
    size_t last = (offset + bytes - 1) >> shadow.shift;
    for (size_t i = offset >> shadow.shift; i <= last; i++) {
        SharedCell& cell = shadow.cells[i];
        if (kind == kRead) {
            check_shared_read(cell, offset, pc);
            if (launch.cluster_blocks > 1) record_cluster_read(shadow.readers[i], pc);
        } else {
            if (kind == kAtomic && cell.write_epoch < launch.cluster_epoch)
                report_unwritten(pc, offset);
            check_shared_write(shadow, i, offset, pc, kind == kAtomic);
            record_shared_write(cell, pc, kind == kAtomic);
        }
    }
}

// Most reads see what was written before the last barrier and has readers enough: they need no more than this. What is
// out of bounds has never been written, so it does not pass either.
static __attribute__((always_inline)) inline bool is_plain_read(size_t offset, unsigned bytes) {
    const Shadow& shadow = *shared.shadow;
    if (bytes >> shadow.shift == 0) return false;
    uint32_t first_epoch = launch.cluster_epoch, past_epochs = launch.epoch - first_epoch;
    uint64_t for_all = settled_for_all(), for_warp = settled_for_warp();
    const SharedCell* cell = &shadow.cells.data[offset >> shadow.shift];
    for (unsigned n = bytes >> shadow.shift; n > 0; n--, cell++) {
        if (cell->write_epoch - first_epoch >= past_epochs) return false;
        if (cell->settled != for_all && cell->settled != for_warp) return false;
    }
    return true;
}

// The bytes of an asynchronous copy change at some time between its issue and its landing: whoever touched them since
// the issue saw the old or the new ones by chance.
static void check_landing(const PendingCopy& copy, size_t offset, bool record) {
    Shadow& shadow = *shared.shadow;
    unsigned needed = narrow_shift(offset, copy.bytes);
    if (needed < shadow.shift) refine_shadow(shadow, needed);
    size_t last = (offset + copy.bytes - 1) >> shadow.shift;
    for (size_t i = offset >> shadow.shift; i <= last; i++) {
        SharedCell& cell = shadow.cells[i];
        bool read_since = cell.read_epoch > copy.issue_epoch;
        for (int r = 0; r < 2 && cell.read_epoch == copy.issue_epoch; r++)
            read_since |= cell.reader[r] != kNoThread && cell.reader[r] != launch.thread &&
                          (cell.reader[r] / kWarpLanes != launch.thread / kWarpLanes ||
                           cell.read_warp_epoch[r] >= copy.issue_warp_epoch);
        if (read_since) {
            Diagnostic& d = report(kSharedRace, kReadBeforeWait, cell.read_pc[0], copy.pc);
            d.thread = cell.reader[0], d.other_thread = (int32_t)launch.thread;
            d.block = block_at(cell.read_epoch).block, d.other_block = launch.block, d.address = offset;
        }
        if (cell.write_epoch > copy.issue_epoch &&
            (cell.writer != launch.thread || block_at(cell.write_epoch).block != launch.block))
            report_shared_race(kWriteAfterWrite, copy.pc, cell.write_pc, cell.writer & ~kAtomicWriter, cell.write_epoch,
                               offset);
        if (!record) continue;
        if (!read_since) check_shared_write(shadow, i, offset, copy.pc, false);
        record_shared_write(cell, copy.pc, false);
    }
}
