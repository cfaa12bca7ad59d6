// Races in global memory: between the threads of a block, and between blocks, which nothing orders.
#pragma once
#include "shared_memory.h"

// A stamp names a thread in an epoch: epoch << 10 | thread, 0 for nobody. Epochs rise over the whole launch, and each
// is one block's.
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

// What the running block did to order itself with blocks that it shares no barrier with.
struct GlobalOrder {
    bool fenced, acquired;
};
static GlobalOrder global_orders[kMaxClusterBlocks];

static void acquire_global() {
    GlobalOrder& order = global_orders[launch.rank];
    order.acquired = true;
    if (!order.fenced) return;
    for (size_t i = block_starts.size; i-- > 0 && block_starts[i].first_epoch >= launch.cluster_epoch;)
        if (block_starts[i].block == launch.block) block_starts[i].released = true;
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
    // A cluster's barrier orders global memory as well.
    if (epoch < launch.run_epoch) return epoch < launch.cluster_epoch || epoch >= launch.phase_epoch;
    if (epoch != launch.epoch || thread == launch.thread) return false;
    return thread / kWarpLanes != launch.thread / kWarpLanes || launch.fiber->warp_epoch == 0;
}

static void report_global_race(DiagnosticOp op, uint32_t pc, uint32_t other_pc, uint32_t stamp, bool several,
                               char* address) {
    BlockStart& other = block_at(stamp >> kThreadBits);
    bool other_block = (stamp >> kThreadBits) < launch.run_epoch;
    if (other_block && other.released && global_orders[launch.rank].acquired) return;
    Diagnostic& d = report(kGlobalRace, op, pc, other_pc & ~kFlag);
    if (d.count > 1) return;
    d.other_thread = several ? -1 : (int32_t)(stamp & (kMaxThreads - 1));
    d.other_block = other_block ? other.block : launch.block;
    d.address = (uint64_t)address;
}

static inline void check_global_cell(GlobalCell& cell, uint32_t stamp, AccessKind kind, uint32_t pc, char* address) {
    bool both_atomic = kind == kAtomic && (cell.write_pc & kFlag);
    if (cell.write_stamp != stamp && !both_atomic && unordered_stamp(cell.write_stamp))
        report_global_race(kind == kRead ? kReadAfterWrite : kWriteAfterWrite, pc, cell.write_pc, cell.write_stamp,
                           false, address);
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
