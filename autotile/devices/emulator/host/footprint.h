// Which sectors of global memory a block touches in all, each counted once, and in how long runs they lie: what a cache
// can keep for it, and how far DRAM can go on where it is. A cluster counts as one block. Also how far ahead its
// asynchronous copies run.
#pragma once
#include "reuse.h"

struct Interval {
    uint64_t first, last;  // sectors
};

// Sums over the blocks; `joined` are runs of a block that go on where one of the block before it ends, or the other way
// round, `pairs` the blocks that had one before them, and `paired_runs` the runs of these.
struct Footprint {
    uint64_t blocks, sectors, runs, pairs, paired_runs, joined;
};
static Footprint footprints[2];  // of loads, of stores

// Of all threads: copies, waits for copies, and the groups that these waits left on their way; atomic operations, which
// are counted as stores; and accesses that were too many to be logged.
struct CopyCounts {
    uint64_t copies, waits, left, atomics, dropped;
};
static CopyCounts copy_counts;

static constexpr size_t kMaxIntervals = 1 << 18;
static Array<Interval> touched_sectors[2], sectors_before[2];
static int64_t block_before;

static void reset_footprints() {
    for (int way = 0; way < 2; way++) {
        footprints[way] = Footprint{};
        touched_sectors[way].clear();
        sectors_before[way].clear();
    }
    copy_counts = CopyCounts{};
    block_before = -1;
    reset_reuses();
}

static int by_first(const void* a, const void* b) {
    uint64_t x = ((const Interval*)a)->first, y = ((const Interval*)b)->first;
    return x < y ? -1 : x > y;
}

// Sorted, and what touches or overlaps made one.
static void join_intervals(Array<Interval>& intervals) {
    if (!intervals.size) return;
    qsort(intervals.data, intervals.size, sizeof(Interval), by_first);
    size_t kept = 0;
    for (size_t i = 1; i < intervals.size; i++) {
        if (intervals[i].first <= intervals[kept].last + 1) {
            if (intervals[i].last > intervals[kept].last) intervals[kept].last = intervals[i].last;
        } else {
            intervals[++kept] = intervals[i];
        }
    }
    intervals.size = kept + 1;
}

static void note_sectors(bool store, uint64_t first, uint64_t last) {
    Array<Interval>& intervals = touched_sectors[store];
    if (intervals.size) {
        Interval& newest = intervals[intervals.size - 1];
        if (first >= newest.first && first <= newest.last + 1) {
            if (last > newest.last) newest.last = last;
            return;
        }
    }
    if (intervals.size == kMaxIntervals) join_intervals(intervals);
    intervals.push(Interval{first, last});
}

static size_t count_joined(Array<Interval>& mine, Array<Interval>& others) {
    size_t joined = 0, j = 0;
    for (size_t i = 0; i < mine.size; i++) {
        while (j < others.size && others[j].last + 1 < mine[i].first) j++;
        if (j == others.size) break;
        size_t next = j + (others[j].last + 1 == mine[i].first ? 1 : 0);
        bool behind = next != j, ahead = next < others.size && mine[i].last + 1 == others[next].first;
        joined += behind || ahead;
    }
    return joined;
}

// The block (or the cluster that begins with it) is done.
static void end_footprint(int64_t block) {
    bool follows = block_before >= 0 && block_before + launch.cluster_blocks == block;
    for (int way = 0; way < 2; way++) {
        Footprint& f = footprints[way];
        join_intervals(touched_sectors[way]);
        f.blocks++;
        f.runs += touched_sectors[way].size;
        for (size_t i = 0; i < touched_sectors[way].size; i++) f.sectors += touched_sectors[way][i].last - touched_sectors[way][i].first + 1;
        if (follows) {
            f.pairs++;
            f.paired_runs += touched_sectors[way].size;
            f.joined += count_joined(touched_sectors[way], sectors_before[way]);
        }
        Array<Interval> kept = sectors_before[way];
        sectors_before[way] = touched_sectors[way];
        touched_sectors[way] = kept;
        touched_sectors[way].clear();
    }
    block_before = block;
}

static void release_footprints() {
    for (int way = 0; way < 2; way++) {
        touched_sectors[way].release();
        sectors_before[way].release();
    }
}
