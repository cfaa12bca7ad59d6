// What barriers keep in order: pairs of accesses of two warps to one place of shared memory, between which lies one
// barrier and no other (or one that was passed several times).
#pragma once
#include "shared_memory.h"

struct Protection {
    uint32_t line, op, first_pc, pc;
    uint64_t count;
};

struct BarrierPasses {
    uint64_t line, passes;
};

static constexpr size_t kMaxProtections = 16384;
static Protection protections[kMaxProtections];
static uint32_t protection_count;
static uint16_t protection_table[2 * kMaxProtections];  // index + 1, open addressing
static constexpr size_t kMaxBarriers = 256;
static BarrierPasses barrier_passes[kMaxBarriers];
static size_t barrier_count;

// Between what happened in these epochs and now lies the barrier of `line` alone.
struct Guard {
    uint32_t line, first_epoch;

    void pass(uint32_t barrier_line, uint32_t epoch_before) {
        if (line != barrier_line) line = barrier_line, first_epoch = epoch_before;
    }
};
static Guard block_guards[kMaxClusterBlocks];  // for the accesses of one block
static Guard cluster_guard;                    // for those of two blocks, which the cluster's barriers alone order
static uint32_t last_epochs[kMaxClusterBlocks];

static void reset_protections() {
    for (size_t i = 0; protection_count && i < 2 * kMaxProtections; i++) protection_table[i] = 0;
    protection_count = 0;
    barrier_count = 0;
}

static void begin_guard() {
    block_guards[launch.rank] = Guard{0, launch.epoch};
    cluster_guard = Guard{0, launch.cluster_epoch};
}

static void count_passes(uint32_t line, uint32_t blocks) {
    size_t i = 0;
    while (i < barrier_count && barrier_passes[i].line != line) i++;
    if (i == kMaxBarriers) return;
    if (i == barrier_count) barrier_passes[barrier_count++] = BarrierPasses{line, 0};
    barrier_passes[i].passes += blocks;
}

// The running block has come into a new epoch.
static void note_barrier(uint32_t line) {
    block_guards[launch.rank].pass(line, launch.epoch - 1);
    count_passes(line, 1);
}

// `epoch_before` is the first since the cluster's barrier before this one.
static void note_cluster_barrier(uint32_t line, uint32_t epoch_before) {
    for (uint32_t rank = 0; rank < launch.cluster_blocks; rank++) block_guards[rank].pass(line, last_epochs[rank]);
    cluster_guard.pass(line, epoch_before);
    count_passes(line, launch.cluster_blocks);
}

static void note_protection(DiagnosticOp op, uint32_t line, uint32_t first_pc, uint32_t pc, uint32_t count = 1) {
    uint64_t key = ((uint64_t)first_pc << 32 | pc) + ((uint64_t)line << 4 | op) * 0xff51afd7ed558ccdull;
    size_t slot = (key * 0x9E3779B97F4A7C15ull) >> 49;
    for (; protection_table[slot]; slot = (slot + 1) % (2 * kMaxProtections)) {
        Protection& p = protections[protection_table[slot] - 1];
        if (p.pc != pc || p.first_pc != first_pc || p.line != line || p.op != op) continue;
        p.count += count;
        return;
    }
    if (protection_count == kMaxProtections) return;
    protections[protection_count] = Protection{line, op, first_pc, pc, count};
    protection_table[slot] = (uint16_t)++protection_count;
}

// The line of the one barrier between an access of `thread` in `epoch` and what the running thread does now; 0 where
// there is none or more than one, or where both are of one warp.
static inline uint32_t only_barrier(uint32_t epoch, uint32_t thread) {
    if (launch.cluster_blocks > 1 && block_at(epoch).block != launch.block)
        return epoch >= cluster_guard.first_epoch && epoch < launch.phase_epoch ? cluster_guard.line : 0;
    const Guard& guard = block_guards[launch.rank];
    bool kept = epoch >= guard.first_epoch && epoch < launch.epoch;
    return kept && thread / kWarpLanes != launch.thread / kWarpLanes ? guard.line : 0;
}

// Where it was written what is read now, for note_warp_reads() to count, or 0. What was written in several places, or is
// ordered by the cluster's barrier, is counted here.
static inline uint32_t note_read(const Shadow& shadow, size_t offset, unsigned bytes, uint32_t pc) {
    uint32_t first = 0;
    const SharedCell* last = &shadow.cells.data[(offset + bytes - 1) >> shadow.shift];
    for (const SharedCell* cell = &shadow.cells.data[offset >> shadow.shift]; cell <= last; cell++) {
        if (cell->write_pc == first) continue;
        uint32_t line = only_barrier(cell->write_epoch, cell->writer & ~kAtomicWriter);
        if (!line) continue;
        if (!first && line == block_guards[launch.rank].line)
            first = cell->write_pc;
        else
            note_protection(kReadAfterWrite, line, cell->write_pc, pc);
    }
    return first;
}

// Before the write is recorded.
static void note_write(const Shadow& shadow, size_t offset, unsigned bytes, uint32_t pc, bool atomic) {
    uint32_t noted = 0;
    size_t last = (offset + bytes - 1) >> shadow.shift;
    for (size_t i = offset >> shadow.shift; i <= last; i++) {
        const SharedCell& cell = shadow.cells.data[i];
        for (int r = 0; r < 2; r++) {
            uint32_t line = cell.reader[r] == kNoThread ? 0 : only_barrier(cell.read_epoch, cell.reader[r]);
            if (!line) continue;
            if (cell.read_pc[r] != noted) note_protection(kWriteAfterRead, line, noted = cell.read_pc[r], pc);
            break;
        }
        bool both_atomic = atomic && (cell.writer & kAtomicWriter);
        if (cell.read_epoch >= cell.write_epoch || both_atomic || cell.write_pc == noted) continue;
        uint32_t line = only_barrier(cell.write_epoch, cell.writer & ~kAtomicWriter);
        if (line) note_protection(kWriteAfterWrite, line, noted = cell.write_pc, pc);
    }
}

static uint32_t note_shared(const Shadow& shadow, size_t offset, unsigned bytes, AccessKind kind, uint32_t pc) {
    if (kind == kRead) return note_read(shadow, offset, bytes, pc);
    note_write(shadow, offset, bytes, pc, kind == kAtomic);
    return 0;
}
