// How soon a block comes back to a sector that it has loaded: what decides whether a cache still holds it. Warps run one
// after the other here and side by side on a GPU, so that time is told by how many requests a warp has made of its own.
#pragma once
#include "state.h"

static constexpr unsigned kReuseBuckets = 24;
// Sectors that were loaded again by a request that is 0, 1, 2 to 3, 4 to 7, … requests away, in a warp's own count.
static uint64_t reuses[kReuseBuckets];

struct LastUse {
    uint64_t sector;  // + 1; 0: free
    uint32_t progress, round;
};
static constexpr unsigned kReuseBits = 17;
static LastUse last_uses[1u << kReuseBits];  // the newest of those that share a place
static uint32_t reuse_round;                 // of the block: what another one left does not count
static uint32_t load_progress[kMaxClusterBlocks * kMaxThreads / kWarpLanes];

static void reset_reuses() {
    for (uint64_t& count : reuses) count = 0;
}

static void begin_reuses() {
    reuse_round++;
    for (uint32_t& progress : load_progress) progress = 0;
}

static inline uint32_t& progress_of_warp() {
    return load_progress[(launch.rank * kMaxThreads + launch.thread) / kWarpLanes];
}

static void note_use(uint64_t sector, uint32_t progress) {
    LastUse& last = last_uses[(sector * 0x9E3779B97F4A7C15ull) >> (64 - kReuseBits)];
    if (last.sector == sector + 1 && last.round == reuse_round) {
        uint32_t apart = progress > last.progress ? progress - last.progress : last.progress - progress;
        unsigned bucket = apart ? 32 - (unsigned)__builtin_clz(apart) : 0;
        reuses[bucket < kReuseBuckets ? bucket : kReuseBuckets - 1]++;
    }
    last = LastUse{sector + 1, progress, reuse_round};
}
