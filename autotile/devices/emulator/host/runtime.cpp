// The CPU side of a kernel compiled as host C++: linked into the same library, it runs the threads as fibers and
// watches every access through the callbacks that -fsanitize=thread plants (libtsan itself is not linked).
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#ifdef __linux__
#include <elf.h>
#include <link.h>
#endif

#include "call_sites.h"
#include "faults.h"
#include "schedule.h"

// ---------------------------------------------------------------------------- what the kernel's built-in functions
// call

extern "C" int autotile_barrier(uint32_t op, int predicate, uint32_t line, uint32_t site) {
    Fiber& fiber = *launch.fiber;
    count_tick(AUTOTILE_CALLER);
    fiber.op = op, fiber.value = predicate != 0, fiber.line = line, fiber.site = site;
    fiber.state = kAtBarrier;
    yield_to_scheduler();
    return (int)launch.fiber->result;
}

static uint64_t meet_warp(uint32_t mask, uint32_t op, uint64_t value, uint32_t source_lane, uint32_t pc) {
    Fiber& fiber = *launch.fiber;
    fiber.mask = mask, fiber.op = op, fiber.value = value, fiber.source_lane = source_lane;
    fiber.pc = pc;
    fiber.state = kAtWarp;
    yield_to_scheduler();
    return launch.fiber->result;
}

extern "C" uint64_t autotile_warp(uint32_t mask, uint32_t op, uint64_t value, uint32_t source_lane) {
    count_tick(AUTOTILE_CALLER);
    return meet_warp(mask, op, value, source_lane, AUTOTILE_CALLER);
}

extern "C" uint32_t autotile_shared_address(const void* address) {
    ptrdiff_t offset = shared_offset((const char*)address);
    return offset < 0 ? kNoSharedAddress : (uint32_t)offset;
}

extern "C" void* autotile_from_shared_address(uint32_t address) { return shared.begin + address; }

// The lanes read when all have come, so that a store which is not ordered with it is one before the read; and they take
// the rows when all have read, so that no row is taken which is not there.
extern "C" void autotile_load_matrices(uint32_t address, uint32_t count, uint32_t transposed, uint32_t* registers) {
    uint32_t pc = AUTOTILE_CALLER;
    uint32_t form = count << 1 | transposed;
    count_tick(pc);
    if (launch.level >= kRaces) meet_warp(kAllLanes, kGatherForMatrices, 0, form, pc);
    MatrixRow row{shared.begin + address, registers};
    if (launch.thread % kWarpLanes < kMatrixRows * count) {
        if (address >= shared.limit) fault(kOutOfBounds, kRead, pc, row.begin, kMatrixRowBytes);
        access(row.begin, kMatrixRowBytes, kRead, pc);
        if (launch.level == kTrace) sites[find_site(pc, false, true, kMatrixRowBytes)].matrices = true;
    }
    meet_warp(kAllLanes, kLoadMatrices, (uint64_t)&row, form, pc);
}

extern "C" uint32_t autotile_active_lanes(void) {
    uint32_t first, last, lanes = 0;
    warp_bounds(launch.thread, first, last);
    for (uint32_t i = first; i < last; i++)
        if (fibers[i].state != kDone) lanes |= 1u << (i - first);
    return lanes;
}

extern "C" uint64_t autotile_atomic_load(const void* address, uint32_t bytes) {
    if (launch.instrumented) access((char*)address, bytes, kAtomic, AUTOTILE_CALLER);
    if (shared_offset((const char*)address) < 0 && !is_in_window((const char*)address)) acquire_global();
    uint64_t value = 0;
    if (bytes == 8) __builtin_memcpy(&value, address, 8);
    if (bytes == 4) __builtin_memcpy(&value, address, 4);
    if (bytes == 2) __builtin_memcpy(&value, address, 2);
    return value;
}

extern "C" void autotile_atomic_store(void* address, uint32_t bytes, uint64_t value) {
    if (bytes == 8) __builtin_memcpy(address, &value, 8);
    if (bytes == 4) __builtin_memcpy(address, &value, 4);
    if (bytes == 2) __builtin_memcpy(address, &value, 2);
}

extern "C" void autotile_fence(void) { global_orders[launch.rank].fenced = true; }

// A barrier in two halves stands at its wait in one order of the blocks and at its arrival in the other, so that what
// races with either side of it shows in one of them.
extern "C" void autotile_cluster_barrier(uint32_t op, uint32_t line) {
    Fiber& fiber = *launch.fiber;
    count_tick(AUTOTILE_CALLER);
    fiber.pc = AUTOTILE_CALLER;
    if (fiber.arrived != (op == kClusterWait)) {
        report_split(fiber.arrived ? kArrivedTwice : kWaitedAlone, fiber.pc);
        stop_launch();
    }
    if (op != kClusterSync) {
        fiber.arrived = op == kClusterArrive;
        if (fiber.arrived != launch.backward) return;
    }
    fiber.line = fiber.site = line;
    fiber.state = kAtCluster;
    yield_to_scheduler();
}

extern "C" void* autotile_map_shared(const void* address, uint32_t rank) {
    ptrdiff_t offset = shared_offset((const char*)address);
    if (offset < 0 || rank >= launch.cluster_blocks)
        fault(kBadRank, kRead, AUTOTILE_CALLER, offset < 0 ? (const char*)address : nullptr, rank);
    return rank == launch.rank ? (void*)address : (void*)(window(rank) + offset);
}

extern "C" uint32_t autotile_shared_rank(const void* address) {
    if (is_in_window((const char*)address)) return window_rank((const char*)address);
    if (shared_offset((const char*)address) < 0) fault(kBadRank, kRead, AUTOTILE_CALLER, (const char*)address, 0);
    return launch.rank;
}

extern "C" void autotile_copy_async(void* target, const void* source, size_t bytes, size_t zero_bytes) {
    uint32_t pc = AUTOTILE_CALLER;
    Fiber& fiber = *launch.fiber;
    count_tick(pc);
    if (zero_bytes > bytes) fault(kBadCopySize, kWrite, pc, (char*)target, (unsigned)zero_bytes);
    unsigned copied = (unsigned)(bytes - zero_bytes);
    check_copy((char*)target, (const char*)source, (unsigned)bytes, copied, pc);
    PendingCopy copy{};
    copy.target = (char*)target;
    copy.bytes = (uint32_t)bytes, copy.group = fiber.open_group, copy.pc = pc;
    copy.issue_epoch = launch.epoch, copy.issue_warp_epoch = fiber.warp_epoch;
    if (copied == 16)
        __builtin_memcpy(copy.words, source, 16);
    else
        copy_bytes((char*)copy.words, (const char*)source, copied);  // a memcpy would count as the kernel's own access
    copy_counts.copies++;
    launch.busy = true;
    fiber.copies.push(copy);
    launch.busy = false;
}

extern "C" void autotile_copy_commit(void) { launch.fiber->open_group++; }

extern "C" void autotile_copy_wait(size_t pending_groups) {
    uint32_t committed = launch.fiber->open_group;
    copy_counts.waits++, copy_counts.left += pending_groups;
    if (pending_groups < committed) land_copies(committed - (uint32_t)pending_groups, false);
}

extern "C" void autotile_trap(void) { fault(kTrap, kRead, AUTOTILE_CALLER, nullptr, 0); }

// ------------------------------------------------------------------------------------------------- the library's face

struct LaunchBuffer {
    void* begin;
    uint64_t bytes;
    uint32_t unit_shift, writable;
};

struct LaunchRequest {
    uint32_t grid[3], block[3];
    uint32_t shared_bytes, level, backward, buffer_count;
    const LaunchBuffer* buffers;
    void** arguments;
    const int64_t* blocks;  // linear numbers, of each cluster's first block, or null for all
    int64_t block_count;
    double limit_s;
    uint32_t entry, cluster_blocks;
    const Widening* widenings;
    uint64_t widening_count;
};

static void find_image() {
    Dl_info info;
    if (!image_base && dladdr((void*)&autotile_shared_rank, &info)) image_base = (uintptr_t)info.dli_fbase;
}

static void add_constants() {
    if (constants.size) return;
#ifdef __linux__
    for_each_segment([](const auto& segment, char* begin) {
        bool read_only = segment.p_type == PT_LOAD && !(segment.p_flags & PF_W);
        if (read_only || segment.p_type == PT_GNU_RELRO)
            constants.push(ReadableRange{begin, begin + segment.p_memsz});
    });
#else
    constants.push(ReadableRange{(char*)image_base, autotile_shared_begin});
#endif
}

extern "C" {
// Of the text's first function, or of any other.
AUTOTILE_EXPORT uint64_t autotile_static_shared_bytes(uint32_t entry) {
    char* end = entry == 0 && autotile_steps_begin ? autotile_steps_begin : autotile_shared_end;
    return (uint64_t)(end - (autotile_shared_begin + 1024));
}
}

static void prepare_memory(const LaunchRequest& request) {
    find_image();
    add_constants();
    shared.begin = autotile_shared_begin + 1024;
    shared.static_bytes = autotile_static_shared_bytes(request.entry);
    shared.dynamic_offset = (size_t)(autotile_dynamic_shared - shared.begin);
    shared.limit = shared.dynamic_offset + request.shared_bytes;
    buffers.clear();
    for (uint32_t i = 0; i < request.buffer_count; i++) {
        const LaunchBuffer& given = request.buffers[i];
        Buffer buffer{};
        buffer.begin = (char*)given.begin, buffer.end = buffer.begin + given.bytes;
        buffer.writable = given.writable, buffer.shift = given.unit_shift;
        if (launch.level >= kRaces) allocate_cells(buffer);
        buffers.push(buffer);
    }
    for (uint32_t rank = 0; launch.level >= kRaces && rank < launch.cluster_blocks; rank++) reset_shadow(shadows[rank]);
    shared.shadow = shadows;
    reset_trace();
    reset_footprints();
    reset_protections();
    widenings = request.widenings, widening_count = (uint32_t)request.widening_count;
    block_starts.clear();
    diagnostic_count = 0;
}

static void run_blocks(const LaunchRequest& request) {
    int64_t total = (int64_t)request.grid[0] * request.grid[1] * request.grid[2];
    int64_t count = request.blocks ? request.block_count : total / launch.cluster_blocks;
    for (int64_t i = 0; i < count && !launch.stopped; i++) {
        int64_t nth = request.backward ? count - 1 - i : i;
        run_cluster(request.blocks ? request.blocks[nth] : nth * launch.cluster_blocks);
    }
}

enum LaunchStatus { kLaunched, kBadBlock, kTooMuchShared, kNoStacks };

extern "C" {
AUTOTILE_EXPORT extern const uint32_t autotile_abi = AUTOTILE_ABI;

AUTOTILE_EXPORT int autotile_launch(const LaunchRequest* request) {
    uint64_t threads = (uint64_t)request->block[0] * request->block[1] * request->block[2];
    if (threads < 1 || threads > kMaxThreads) return kBadBlock;
    if (request->shared_bytes > kArenaBytes) return kTooMuchShared;
    uint32_t cluster_blocks = request->cluster_blocks;
    if (cluster_blocks < 1 || cluster_blocks > kMaxClusterBlocks) return kBadBlock;
    if (!stacks.reserve((unsigned)threads * cluster_blocks)) return kNoStacks;
    size_t shared_range = (size_t)(autotile_dynamic_shared - autotile_shared_begin) + kArenaBytes;
    if (cluster_blocks > 1 && !windows.reserve(shared_range)) return kNoStacks;
    launch = Launch{};
    launch.thread_count = (uint32_t)threads;
    launch.cluster_blocks = cluster_blocks;
    launch.level = (Level)request->level;
    launch.ticks_left = kTicksPerClock;
    launch.backward = request->backward;
    launch.instrumented = autotile_instrumented != 0;
    launch.entry = &autotile_entries[request->entry];
    launch.arguments = request->arguments;
    launch.deadline_s = now_s() + request->limit_s;
    autotile_builtins.block_dim = AutotileIndex{request->block[0], request->block[1], request->block[2]};
    autotile_builtins.grid_dim = AutotileIndex{request->grid[0], request->grid[1], request->grid[2]};
    autotile_builtins.cluster_blocks = cluster_blocks;
    prepare_memory(*request);
    catch_faults(request->limit_s);
    run_blocks(*request);
    release_faults();
    for (size_t i = 0; i < buffers.size; i++)
        if (buffers[i].cells) munmap(buffers[i].cells, buffers[i].cell_bytes);
    buffers.clear();
    return kLaunched;
}

AUTOTILE_EXPORT const Diagnostic* autotile_diagnostics(uint64_t* count) {
    *count = diagnostic_count;
    return diagnostics;
}

AUTOTILE_EXPORT const Site* autotile_sites(uint64_t* count) {
    *count = site_count;
    return sites;
}

AUTOTILE_EXPORT const Protection* autotile_protections(uint64_t* count) {
    *count = protection_count;
    return protections;
}

AUTOTILE_EXPORT const Footprint* autotile_footprints() { return footprints; }

AUTOTILE_EXPORT const uint64_t* autotile_reuses() { return reuses; }

AUTOTILE_EXPORT const CopyCounts* autotile_copy_counts() { return &copy_counts; }

AUTOTILE_EXPORT const BarrierPasses* autotile_barriers(uint64_t* count) {
    *count = barrier_count;
    return barrier_passes;
}

// The return addresses of all calls for an access that machine code may make wider.
AUTOTILE_EXPORT const uint32_t* autotile_call_sites(uint64_t* count) {
    find_image();
    find_call_sites();
    *count = call_sites.size;
    return call_sites.data;
}

struct SharedPlaces {
    void *fixed, *dynamic, *windows;  // windows: of a cluster's blocks, null without
    uint64_t window_stride;
};

AUTOTILE_EXPORT SharedPlaces autotile_shared_places() {
    return SharedPlaces{autotile_shared_begin + 1024, autotile_dynamic_shared, windows.begin, windows.stride};
}

// What a launch leaves behind to be fast the next time; called before the library is closed.
AUTOTILE_EXPORT void autotile_release() {
    stacks.release();
    windows.release();
    for (Fiber& fiber : every_fiber)
        if (fiber.copies.capacity) fiber.copies.release();  // most have never been touched
    for (Array<Logged>& log : lane_logs) log.release();
    release_footprints();
    for (Shadow& shadow : shadows) {
        shadow.cells.release();
        shadow.readers.release();
    }
    buffers.release();
    block_starts.release();
    constants.release();
    call_sites.release();
}
}
