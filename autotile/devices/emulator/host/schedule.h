// Runs the blocks of a cluster in turns, and each: warp after warp, each lane until it waits, exits or faults. On one
// operating-system thread, so that a run is the same each time; `backward` turns the order round, which changes the
// result of a kernel with a race.
#pragma once
#include "matrices.h"
#include "memory.h"

// --------------------------------------------------------------------------------------------- asynchronous copies

static void land(const PendingCopy& copy) {
    for (unsigned i = 0; i < copy.bytes; i += 4) __builtin_memcpy(copy.target + i, (const char*)copy.words + i, 4);
}

// Lands the thread's copies of all groups below `group`, in the order of their issue.
static void land_copies(uint32_t group, bool only_check) {
    Array<PendingCopy>& copies = launch.fiber->copies;
    size_t kept = 0;
    for (size_t i = 0; i < copies.size; i++) {
        const PendingCopy& copy = copies[i];
        if (copy.group >= group) {
            copies[kept++] = copy;
            continue;
        }
        if (launch.level >= kRaces) check_landing(copy, (size_t)shared_offset(copy.target), !only_check);
        if (!only_check) land(copy);
    }
    copies.size = kept;
}

static void check_copy(char* target, const char* source, unsigned bytes, unsigned copied, uint32_t pc) {
    if (bytes != 4 && bytes != 8 && bytes != 16) fault(kBadCopySize, kWrite, pc, target, bytes);
    ptrdiff_t offset = shared_offset(target);
    if (offset < 0 || !shared_room((size_t)offset, bytes)) fault(kOutOfBounds, kWrite, pc, target, bytes);
    if ((uintptr_t)target & (bytes - 1)) fault(kMisaligned, kWrite, pc, target, bytes);
    uint32_t word = 0;
    if (copied) {
        Buffer* buffer = buffer_at(source, copied);
        if (!buffer) fault(kOutOfBounds, kRead, pc, source, copied);
        if ((uintptr_t)source & (bytes - 1)) fault(kMisaligned, kRead, pc, source, bytes);
        if (launch.level >= kRaces) {
            for (unsigned done = 0; done < copied;) {  // a partial copy reads 1, 2 or 4 bytes at its end
                unsigned piece = copied == bytes            ? bytes
                                 : (copied - done) % 4 == 0 ? 4
                                 : (copied - done) % 2 == 0 ? 2
                                                            : 1;
                check_global(*buffer, (size_t)(source + done - buffer->begin), piece, kRead, pc);
                done += piece;
            }
        }
        if (launch.level == kTrace) {
            uint64_t address = trace_address(*buffer, source);
            word = (uint32_t)(address / 4) | 0x80000000u;  // never 0, in the same bank
            trace_access(pc, false, false, copied, address, (uint32_t)offset / 4 | 0x80000000u);
        }
    }
    if (launch.level >= kRaces) {
        Shadow& shadow = *shared.shadow;
        unsigned needed = narrow_shift((size_t)offset, bytes);
        if (needed < shadow.shift) refine_shadow(shadow, needed);
        if (launch.level == kTrace) note_write(shadow, (size_t)offset, bytes, pc, false);
        for (size_t i = (size_t)offset >> shadow.shift; i <= ((size_t)offset + bytes - 1) >> shadow.shift; i++)
            check_shared_write(shadow, i, (size_t)offset, pc, false);
    }
    if (launch.level == kTrace) trace_access(pc, true, true, bytes, (uint64_t)offset, word);
}

// ------------------------------------------------------------------------------------------------ warp-wide operations

static void warp_bounds(uint32_t thread, uint32_t& first, uint32_t& last) {
    first = thread / kWarpLanes * kWarpLanes;
    last = first + kWarpLanes < launch.thread_count ? first + kWarpLanes : launch.thread_count;
}

static uint64_t reduce(uint32_t op, uint64_t a, uint64_t b) {
    uint32_t ua = (uint32_t)a, ub = (uint32_t)b;
    switch (op) {
        case kReduceAdd:
            return ua + ub;
        case kReduceMinSigned:
            return (int32_t)ua < (int32_t)ub ? ua : ub;
        case kReduceMaxSigned:
            return (int32_t)ua > (int32_t)ub ? ua : ub;
        case kReduceMinUnsigned:
            return ua < ub ? ua : ub;
        case kReduceMaxUnsigned:
            return ua > ub ? ua : ub;
        case kReduceAnd:
            return ua & ub;
        case kReduceOr:
            return ua | ub;
        default:
            return ua ^ ub;
    }
}

static uint64_t warp_result(uint32_t lane, uint32_t first, uint32_t members) {
    Fiber& me = fibers[first + lane];
    uint64_t result = 0;
    if (me.op >= kGatherForMatrices) return 0;
    switch (me.op) {
        case kSyncWarp:
            return 0;
        case kShuffle:
            if (members >> me.source_lane & 1) return fibers[first + me.source_lane].value;
            launch.thread = first + lane;
            {
                Diagnostic& d = report(kInactiveLane, kLoad, me.pc);
                d.thread = (int32_t)launch.thread, d.other_thread = (int32_t)(first + me.source_lane);
            }
            return me.value;
        case kBallot:
            for (uint32_t l = 0; l < kWarpLanes; l++)
                if ((members >> l & 1) && fibers[first + l].value) result |= 1u << l;
            return result;
        case kMatchAny:
            for (uint32_t l = 0; l < kWarpLanes; l++)
                if ((members >> l & 1) && fibers[first + l].value == me.value) result |= 1u << l;
            return result;
        default:
            break;
    }
    bool any = false;
    for (uint32_t l = 0; l < kWarpLanes; l++) {
        if (!(members >> l & 1)) continue;
        result = any ? reduce(me.op, result, fibers[first + l].value) : fibers[first + l].value;
        any = true;
    }
    return result;
}

// Lets go of every group of lanes whose members have all arrived; lanes that have exited are not waited for.
static bool release_warp(uint32_t first, uint32_t last) {
    uint32_t alive = 0, waiting = 0;
    for (uint32_t i = first; i < last; i++) {
        if (fibers[i].state != kDone) alive |= 1u << (i - first);
        if (fibers[i].state == kAtWarp) waiting |= 1u << (i - first);
    }
    bool released = false;
    for (uint32_t lane = 0; lane < kWarpLanes; lane++) {
        if (!(waiting >> lane & 1)) continue;
        uint32_t mask = fibers[first + lane].mask, members = 0, epoch = 0;
        for (uint32_t l = 0; l < kWarpLanes; l++)
            if ((waiting & mask) >> l & 1 && fibers[first + l].mask == mask) members |= 1u << l;
        if (members != (mask & alive) || !(members >> lane & 1)) continue;
        if (of_matrices(first, members) && !work_on_matrices(first, members)) continue;
        for (uint32_t l = 0; l < kWarpLanes; l++) {
            if (!(members >> l & 1)) continue;
            fibers[first + l].result = warp_result(l, first, members);
            if (fibers[first + l].warp_epoch > epoch) epoch = fibers[first + l].warp_epoch;
        }
        for (uint32_t l = 0; l < kWarpLanes; l++) {
            if (!(members >> l & 1)) continue;
            Fiber& fiber = fibers[first + l];
            // Only __syncwarp orders memory; shuffles and votes do not.
            if (fiber.op == kSyncWarp) fiber.warp_epoch = epoch + 1;
            fiber.state = kReady;
        }
        waiting &= ~members;
        released = true;
    }
    return released;
}

static void resume(uint32_t thread) {
    Fiber& fiber = fibers[thread];
    launch.thread = thread;
    launch.fiber = &fiber;
    autotile_builtins.thread = fiber.thread;
    switch_context(launch.scheduler, fiber.context);
    launch.fiber = nullptr;
}

// Until every lane is done, at the block's barrier, or stuck.
static void run_warp(uint32_t first, uint32_t last) {
    do {
        for (uint32_t k = first; k < last; k++) {
            uint32_t thread = launch.backward ? last - 1 - (k - first) : k;
            if (fibers[thread].state != kReady) continue;
            resume(thread);
            if (launch.stopped) return;
        }
    } while (release_warp(first, last));
    if (launch.level == kTrace) count_warp(last - first);
}

// ---------------------------------------------------------------------------------------------------- block barriers

static uint32_t thread_of(const Fiber& fiber) { return (uint32_t)(&fiber - every_fiber) % kMaxThreads; }
static int64_t block_of(const Fiber& fiber) {
    return launch.block - launch.rank + (uint32_t)(&fiber - every_fiber) / kMaxThreads;
}

// `waiting` of `threads` are at a barrier (`of_cluster` or the block's), one of them `at`; `odd` waits at another, or
// has returned.
static void report_divergence(uint32_t waiting, uint32_t threads, const Fiber& at, const Fiber& odd, bool of_cluster) {
    uint32_t other_line = odd.state == kDone ? 0 : odd.line;
    for (size_t i = 0; i < diagnostic_count; i++) {
        Diagnostic& d = diagnostics[i];
        if (d.kind == kBarrierDivergence && d.line == at.line && d.other_line == other_line) {
            d.count++;
            return;
        }
    }
    // A key of its own for report(), which merges what has the same places.
    Diagnostic& d =
        report(kBarrierDivergence, kLoad, 0, 0x80000000u | (at.site << 12) | (other_line ? odd.site & 0xfff : 0xfff));
    d.other_pc = 0;
    d.line = at.line, d.other_line = other_line;
    d.thread = (int32_t)thread_of(at), d.other_thread = (int32_t)thread_of(odd);
    d.block = block_of(at), d.other_block = of_cluster ? block_of(odd) : -1;
    d.waiting = waiting, d.bytes = threads;
}

static void report_deadlock(uint32_t stuck) {
    Diagnostic& d = report(kDeadlock, kLoad, fibers[stuck].pc);
    d.thread = (int32_t)stuck;
    d.bytes = fibers[stuck].op >= kGatherForMatrices;
    launch.stopped = true;
}

static void combine_predicates(uint32_t waiting) {
    uint32_t set = 0;
    for (uint32_t i = 0; i < launch.thread_count; i++)
        if (fibers[i].state == kAtBarrier && fibers[i].value) set++;
    for (uint32_t i = 0; i < launch.thread_count; i++) {
        Fiber& fiber = fibers[i];
        if (fiber.state != kAtBarrier) continue;
        fiber.result = fiber.op == kBarrierAnd ? set == waiting : fiber.op == kBarrierOr ? set != 0 : set;
    }
}

// True while the block goes on: not when all of it is done, or at the cluster's barrier.
static bool pass_barrier() {
    uint32_t waiting = 0;
    const Fiber *at = nullptr, *done = nullptr, *odd = nullptr, *at_cluster = nullptr;
    for (uint32_t i = 0; i < launch.thread_count; i++) {
        Fiber& fiber = fibers[i];
        if (fiber.state == kAtWarp) return report_deadlock(i), false;
        if (fiber.state == kDone) done = &fiber;
        if (fiber.state == kAtCluster) at_cluster = &fiber;
        if (fiber.state != kAtBarrier) continue;
        if (!waiting++) at = &fiber;
        if (!odd && fiber.site != at->site) odd = &fiber;
    }
    if (!waiting) return false;
    const Fiber* other = at_cluster ? at_cluster : done ? done : odd;
    if (other) report_divergence(waiting, launch.thread_count, *at, *other, false);
    if (at_cluster) return launch.stopped = true, false;  // each would wait for the other
    combine_predicates(waiting);
    for (uint32_t i = 0; i < launch.thread_count; i++) {
        if (fibers[i].state == kAtBarrier) fibers[i].state = kReady;
        fibers[i].warp_epoch = 0;
    }
    launch.epoch++;
    if (launch.level == kTrace) note_barrier(at->line);
    return true;
}

// True while the cluster goes on.
static bool pass_cluster_barrier() {
    uint32_t waiting = 0;
    const Fiber *at = nullptr, *done = nullptr, *odd = nullptr;
    for (uint32_t rank = 0; rank < launch.cluster_blocks; rank++) {
        Fiber* of_block = every_fiber + rank * kMaxThreads;
        const Fiber* first = nullptr;
        for (Fiber* fiber = of_block; fiber < of_block + launch.thread_count; fiber++) {
            if (fiber->state == kDone) done = fiber;
            if (fiber->state != kAtCluster) continue;
            waiting++;
            if (!first) first = fiber;
            if (!at) at = fiber;
            // Two blocks may take two ways to the barrier.
            if (!odd && fiber->site != first->site) at = first, odd = fiber;
            fiber->state = kReady;
            fiber->warp_epoch = 0;
        }
    }
    if (!waiting) return false;
    launch.phase++;
    uint32_t phase_before = launch.phase_epoch;
    launch.phase_epoch = ++launch.epoch;
    if (launch.level == kTrace) note_cluster_barrier(at->line, phase_before);
    const Fiber* other = done ? done : odd;
    if (other) report_divergence(waiting, launch.cluster_blocks * launch.thread_count, *at, *other, true);
    return true;
}

static void fiber_main() {
    launch.entry->call(launch.arguments);
    if (launch.fiber->arrived) report_split(kNeverWaited, launch.fiber->pc);
    land_copies(UINT32_MAX, true);  // nobody waited for these: say so where somebody read their place
    launch.fiber->state = kDone;
    yield_to_scheduler();
    __builtin_trap();
}

static void start_fibers() {
    uint32_t thread = 0;
    const AutotileIndex& dim = autotile_builtins.block_dim;
    for (unsigned z = 0; z < dim.z; z++)
        for (unsigned y = 0; y < dim.y; y++)
            for (unsigned x = 0; x < dim.x; x++, thread++) {
                Fiber& fiber = fibers[thread];
                fiber.stack = stacks.low(launch.rank * launch.thread_count + thread);
                prepare_context(fiber.context, fiber.stack, stacks.bytes(), fiber_main);
                fiber.thread = AutotileIndex{x, y, z};
                fiber.state = kReady;
                fiber.arrived = false;
                fiber.warp_epoch = fiber.open_group = 0;
                fiber.copies.clear();
            }
}

static void resume_block(int64_t block) {
    const AutotileIndex& grid = autotile_builtins.grid_dim;
    autotile_builtins.block = AutotileIndex{(unsigned)(block % grid.x), (unsigned)(block / grid.x % grid.y),
                                            (unsigned)(block / ((int64_t)grid.x * grid.y))};
    launch.block = block;
    launch.run_epoch = ++launch.epoch;
    block_starts.push(BlockStart{launch.epoch, block, false});
}

// Until every thread is done, or at the cluster's barrier.
static void run_block() {
    uint32_t warps = (launch.thread_count + kWarpLanes - 1) / kWarpLanes;
    do {
        for (uint32_t k = 0; k < warps; k++) {
            uint32_t first, last;
            warp_bounds((launch.backward ? warps - 1 - k : k) * kWarpLanes, first, last);
            run_warp(first, last);
            if (launch.stopped) return;
        }
        if (overdue()) {
            report(kTimeout, kLoad, 0).thread = -1;
            launch.stopped = true;
            return;
        }
    } while (pass_barrier() && !launch.stopped);
}

static bool block_is_done() {
    for (uint32_t i = 0; i < launch.thread_count; i++)
        if (fibers[i].state != kDone) return false;
    return true;
}

static void run_cluster(int64_t first_block) {
    begin_cluster();
    launch.cluster_epoch = launch.phase_epoch = launch.epoch + 1;
    do {
        for (uint32_t k = 0; k < launch.cluster_blocks; k++) {
            take_turn(launch.backward ? launch.cluster_blocks - 1 - k : k);
            resume_block(first_block + launch.rank);
            if (launch.phase == 0) {
                if (launch.rank == (launch.backward ? launch.cluster_blocks - 1 : 0)) begin_reuses();
                global_orders[launch.rank] = GlobalOrder{};
                begin_guard();
                start_fibers();
            }
            run_block();
            last_epochs[launch.rank] = launch.epoch;
            if (launch.stopped) return;
            if (launch.cluster_blocks > 1) end_turn(block_is_done());
        }
    } while (pass_cluster_barrier());
    report_early_exits(first_block);
    if (launch.level == kTrace) end_footprint(first_block);
}
