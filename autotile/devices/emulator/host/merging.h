// Requests as the GPU's machine code makes them: its compiler may load or store in one instruction what the source says
// in several. Which lines, and how wide, is known from the machine code; here they are merged where every lane goes on
// right behind its last access.
#pragma once
#include "protections.h"
#include "trace.h"

// Accesses of one line, each right behind the one before in every lane. `entries` are their places in the lanes' logs.
struct Run {
    uint32_t group, bytes, target, count;
    uint32_t entries[32];
};
static constexpr unsigned kMostRuns = 32;
static Run runs[kMostRuns];
static unsigned run_count;

static void count_entry(uint32_t entry, uint32_t site, unsigned lane_count) {
    const Logged* lanes[kWarpLanes];
    for (unsigned lane = 0; lane < lane_count; lane++) lanes[lane] = &lane_logs[lane][entry];
    count_request(site, lanes, lane_count);
}

static bool is_aligned(uint32_t entry, unsigned bytes, unsigned lane_count) {
    for (unsigned lane = 0; lane < lane_count; lane++)
        if (lane_logs[lane][entry].address & (bytes - 1)) return false;
    return true;
}

static bool goes_on(const Run& run, uint32_t entry, unsigned lane_count) {
    uint32_t last = run.entries[run.count - 1];
    for (unsigned lane = 0; lane < lane_count; lane++)
        if (lane_logs[lane][entry].address != lane_logs[lane][last].address + run.bytes) return false;
    return true;
}

// As one request where the run has filled up, else as 8 bytes where so many are there, and the rest as they came.
static void close_run(unsigned index, unsigned lane_count) {
    const Run& run = runs[index];
    for (uint32_t done = 0; done < run.count;) {
        uint32_t entry = run.entries[done], left = (run.count - done) * run.bytes;
        uint32_t wide = left >= run.target ? run.target : left >= 8 ? 8 : 0, site = lane_logs[0][entry].site;
        if (wide > run.bytes) {
            const Site& narrow = sites[site];
            count_entry(entry, find_site(narrow.pc, narrow.store, narrow.shared, wide, true), lane_count);
            done += wide / run.bytes;
        } else {
            count_entry(entry, site, lane_count);
            done++;
        }
    }
    run_count--;
    for (unsigned i = index; i < run_count; i++) runs[i] = runs[i + 1];  // they stay in the order of their beginning
}

static void add_to_runs(uint32_t entry, unsigned lane_count) {
    const Site& site = sites[lane_logs[0][entry].site];
    for (unsigned i = 0; i < run_count; i++) {
        Run& run = runs[i];
        if (run.group != site.group || run.bytes != site.bytes || !goes_on(run, entry, lane_count)) continue;
        run.entries[run.count++] = entry;
        if (run.count * run.bytes == run.target) close_run(i, lane_count);
        return;
    }
    uint32_t target = site.widest;
    while (target > site.bytes && !is_aligned(entry, target, lane_count)) target /= 2;
    if (target < 8 || target <= site.bytes) return count_entry(entry, lane_logs[0][entry].site, lane_count);
    if (run_count == kMostRuns) close_run(0, lane_count);
    runs[run_count++] = Run{site.group, site.bytes, target, 1, {entry}};
}

// Reads of what other warps wrote before the last barrier, counted a warp at once.
static void note_warp_reads(unsigned lane_count) {
    uint32_t line = block_guards[launch.rank].line;
    for (unsigned lane = 0; lane < lane_count; lane++) {
        for (size_t i = 0; i < lane_logs[lane].size; i++) {
            const Logged& logged = lane_logs[lane][i];
            const Site& site = sites[logged.site];
            if (logged.source && site.shared && !site.store)
                note_protection(kReadAfterWrite, line, logged.source, (uint32_t)site.pc);
        }
    }
}

// The same where the lanes agree.
static void note_entry_reads(uint32_t entry, uint32_t pc, unsigned lane_count) {
    uint32_t source = lane_logs[0][entry].source, count = 1;
    for (unsigned lane = 1; lane < lane_count; lane++, count++) {
        uint32_t other = lane_logs[lane][entry].source;
        if (other == source) continue;
        if (source) note_protection(kReadAfterWrite, block_guards[launch.rank].line, source, pc, count);
        source = other, count = 0;
    }
    if (source) note_protection(kReadAfterWrite, block_guards[launch.rank].line, source, pc, count);
}

// Called when a warp has come to a barrier or its end.
static void count_warp(unsigned lane_count) {
    if (lanes_agree(lane_count)) {
        for (size_t i = 0; i < lane_logs[0].size; i++) {
            uint32_t site = lane_logs[0][i].site;
            if (sites[site].shared && !sites[site].store) note_entry_reads((uint32_t)i, (uint32_t)sites[site].pc, lane_count);
            if (sites[site].widest)
                add_to_runs((uint32_t)i, lane_count);
            else
                count_entry((uint32_t)i, site, lane_count);
        }
        while (run_count) close_run(0, lane_count);
    } else {
        note_warp_reads(lane_count);
        count_divergent(lane_count);
    }
    for (Array<Logged>& log : lane_logs) log.clear();
}
