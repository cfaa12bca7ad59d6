// Counts what a warp's accesses cost: 32-byte sectors of global memory, wavefronts (passes over the 32 banks) of
// shared.
#pragma once
#include "footprint.h"

// One access instruction of the host's code. `merged`: requests that the GPU's machine code makes of several of its own.
// `group` and `widest` say which accesses may merge and how far (see merging.h), 0 for none. `example` holds the
// addresses of the `example_lanes` lanes of the first request that cost `worst`. `matrices`: its accesses are an ldmatrix's.
struct Site {
    uint64_t pc;
    uint32_t store, shared, bytes, merged;
    uint64_t requests, lanes, total, ideal, worst, used_bytes, lines;
    uint32_t group, widest, example_lanes, matrices;
    uint64_t example[kWarpLanes];
};

// `source`: of a read of shared memory, the place that wrote what it read, if the last barrier alone kept the two apart;
// of an asynchronous copy's store, which word of global memory it comes from, of its load, which word of shared memory it
// goes to; else 0.
struct Logged {
    uint32_t site, source;
    uint64_t address;
};

static constexpr size_t kMaxSites = 8192;
static Site sites[kMaxSites];
static uint32_t site_count;
static uint16_t site_table[2 * kMaxSites];  // index + 1, open addressing
static Array<Logged> lane_logs[kWarpLanes];
// A lane that logs more between two barriers is cut there, like all its neighbours, to bound the memory.
static constexpr size_t kMaxLogged = 1 << 18;

// The last sites that were asked for: most accesses find theirs here.
struct RecentSite {
    uint32_t pc, kind, site;
};
static constexpr uint32_t kRecentSites = 1024;
static RecentSite recent_sites[kRecentSites];

static void reset_trace() {
    site_count = 0;
    for (uint16_t& entry : site_table) entry = 0;
    for (RecentSite& recent : recent_sites) recent = RecentSite{};
    for (Array<Logged>& log : lane_logs) log.clear();
}

// The width that the GPU's machine code gives the accesses of one instruction; in the order of `pc`.
struct Widening {
    uint32_t pc, store, shared, group, bytes;
};
static const Widening* widenings;
static uint32_t widening_count;

static void widen(Site& site) {
    uint32_t low = 0, high = widening_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (widenings[middle].pc < site.pc)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < widening_count && widenings[low].pc == site.pc; low++) {
        const Widening& w = widenings[low];
        if (w.store == site.store && w.shared == site.shared && w.bytes > site.bytes)
            site.group = w.group, site.widest = w.bytes;
    }
}

static __attribute__((noinline)) uint32_t find_site(uint64_t pc, bool store, bool shared_space, unsigned bytes, bool merged = false) {
    uint64_t key = pc * 64 + store * 32 + shared_space * 31 + bytes;
    size_t slot = (key * 0x9E3779B97F4A7C15ull) >> 50;
    for (;; slot = (slot + 1) % (2 * kMaxSites)) {
        if (!site_table[slot]) break;
        const Site& s = sites[site_table[slot] - 1];
        if (s.pc == pc && s.store == store && s.shared == shared_space && s.bytes == bytes && s.merged == merged)
            return site_table[slot] - 1u;
    }
    if (site_count == kMaxSites) return kMaxSites - 1;
    // Field by field: a structure of this size would be set and copied through this library's own memset and memcpy,
    // which check what a thread does.
    Site& fresh = sites[site_count];
    fresh.pc = pc, fresh.store = store, fresh.shared = shared_space, fresh.bytes = bytes, fresh.merged = merged;
    fresh.requests = fresh.lanes = fresh.total = fresh.ideal = fresh.worst = fresh.used_bytes = fresh.lines = 0;
    fresh.group = fresh.widest = fresh.example_lanes = fresh.matrices = 0;
    if (!merged) widen(fresh);
    site_table[slot] = (uint16_t)(site_count + 1);
    return site_count++;
}

static __attribute__((noinline)) void grow_log(Array<Logged>& log) {
    launch.busy = true;
    log.reserve(log.capacity ? 2 * log.capacity : 256);
    launch.busy = false;
}

static inline void trace_access(uint32_t pc, bool store, bool shared_space, unsigned bytes, uint64_t address,
                                uint32_t source = 0) {
    Array<Logged>& log = lane_logs[launch.thread % kWarpLanes];
    if (log.size >= kMaxLogged) {
        copy_counts.dropped++;
        return;
    }
    RecentSite& recent = recent_sites[(pc ^ pc >> 10) % kRecentSites];
    uint32_t kind = bytes << 2 | (uint32_t)store << 1 | (uint32_t)shared_space;
    if (recent.pc != pc || recent.kind != kind)
        recent = RecentSite{pc, kind, find_site(pc, store, shared_space, bytes)};
    if (log.size == log.capacity) grow_log(log);
    log.data[log.size++] = Logged{recent.site, source, address};
}

// A small set in the order of arrival: the newest is the likeliest to come again.
struct Distinct {
    uint64_t items[kWarpLanes * 4];
    unsigned size = 0;
    void add(uint64_t item) {
        for (unsigned i = size; i-- > 0;)
            if (items[i] == item) return;
        items[size++] = item;
    }
};

// Whether lane n accesses `first + n * stride`: the common shapes need no sets.
static bool has_stride(const Logged* const* lanes, unsigned count, uint64_t stride) {
    uint64_t expected = lanes[0]->address;
    for (unsigned i = 1; i < count; i++)
        if (lanes[i]->address != (expected += stride)) return false;
    return true;
}

static void add_cost(Site& site, const Logged* const* lanes, unsigned count, uint64_t cost) {
    site.total += cost;
    if (cost <= site.worst) return;
    site.worst = cost;
    site.example_lanes = count;
    for (unsigned i = 0; i < count; i++) site.example[i] = lanes[i]->address;
}

// A copy of 16 bytes a lane passes L1 by, and a sector of it that comes to lie across a boundary of shared memory is moved
// twice. Boundaries lie as far apart as the bytes that the request takes of a line (32, 64 or 128): so it is on an H200.
static unsigned split_sectors(const Logged* const* lanes, unsigned count) {
    Distinct sectors, pieces;
    for (unsigned i = 0; i < count; i++) {
        unsigned of_line = 0;
        for (unsigned k = 0; k < count; k++) of_line += lanes[k]->address >> 7 == lanes[i]->address >> 7;
        unsigned apart = of_line <= 2 ? 32 : of_line <= 4 ? 64 : 128;
        uint64_t target = (uint64_t)(lanes[i]->source & 0x7fffffffu) * 4;
        sectors.add(lanes[i]->address >> 5);
        pieces.add(lanes[i]->address >> 5 << 12 | target / apart);
    }
    return pieces.size - sectors.size;
}

static void count_sectors(Site& site, const Logged* const* lanes, unsigned count, unsigned bytes) {
    uint64_t touched, wanted_bytes;
    uint32_t progress = site.store ? 0 : ++progress_of_warp();
    if (has_stride(lanes, count, bytes)) {
        uint64_t first = lanes[0]->address >> 5, last = (lanes[count - 1]->address + bytes - 1) >> 5;
        note_sectors(site.store, first, last);
        for (uint64_t s = first; !site.store && s <= last; s++) note_use(s, progress);
        touched = last - first + 1;
        site.lines += (last >> 2) - (first >> 2) + 1;
        wanted_bytes = (uint64_t)count * bytes;
    } else {
        Distinct sectors, lines, addresses;
        for (unsigned i = 0; i < count; i++) {
            uint64_t first = lanes[i]->address >> 5, last = (lanes[i]->address + bytes - 1) >> 5;
            for (uint64_t s = first; s <= last; s++) sectors.add(s);
            addresses.add(lanes[i]->address);
        }
        for (unsigned i = 0; i < sectors.size; i++) {
            note_sectors(site.store, sectors.items[i], sectors.items[i]);
            if (!site.store) note_use(sectors.items[i], progress);
            lines.add(sectors.items[i] >> 2);
        }
        site.lines += lines.size;
        touched = sectors.size, wanted_bytes = (uint64_t)addresses.size * bytes;
    }
    if (bytes == 16 && lanes[0]->source) touched += split_sectors(lanes, count);
    site.used_bytes += wanted_bytes;
    site.ideal += (wanted_bytes + 31) / 32;
    add_cost(site, lanes, count, touched);
}

// Passes over the banks for lanes that go together: the most distinct words that one bank must give.
struct Passes {
    unsigned passes = 0, words = 0;
};

static Passes bank_passes(const Logged* const* lanes, unsigned count, unsigned bytes) {
    uint32_t words[32][kWarpLanes];
    uint8_t used[32] = {};
    Passes result;
    for (unsigned i = 0; i < count; i++) {
        uint64_t first = lanes[i]->address >> 2, last = (lanes[i]->address + bytes - 1) >> 2;
        for (uint64_t word = first; word <= last; word++) {
            unsigned bank = word % 32, k = 0;
            while (k < used[bank] && words[bank][k] != (uint32_t)word) k++;
            if (k < used[bank]) continue;
            words[bank][used[bank]++] = (uint32_t)word;
            result.words++;
            if (used[bank] > result.passes) result.passes = used[bank];
        }
    }
    return result;
}

// Two halves of a wide access go together when every lane shares its address with lane^1, or every lane with lane^2.
static bool halves_merge(const Logged* const* lanes, unsigned count) {
    for (unsigned distance = 1; distance <= 2; distance++) {
        bool pairs = true;
        for (unsigned i = 0; i < count && pairs; i++) {
            unsigned other = i ^ distance;
            pairs = other >= count || lanes[i]->address == lanes[other]->address;
        }
        if (pairs) return true;
    }
    return false;
}

// The matrices of an ldmatrix go one by one, whatever their rows.
static unsigned wide_passes(const Logged* const* lanes, unsigned count, unsigned bytes, bool matrices) {
    unsigned step = bytes == 8 ? kWarpLanes : kWarpLanes / 2, passes = 0;
    for (unsigned first = 0; first < count; first += step) {
        unsigned here = count - first < step ? count - first : step;
        unsigned together = !matrices && halves_merge(lanes + first, here) ? here : step / 2;
        for (unsigned part = 0; part < here; part += together)
            passes += bank_passes(lanes + first + part, here - part < together ? here - part : together, bytes).passes;
    }
    return passes;
}

static unsigned distinct_addresses(const Logged* const* lanes, unsigned count) {
    Distinct addresses;
    for (unsigned i = 0; i < count; i++) addresses.add(lanes[i]->address);
    return addresses.size;
}

// An asynchronous copy reads its data from the banks of L1, 128 bytes wide as well, and what conflicts there takes passes
// of its own. Exact for copies of 4 and 8 bytes on an H200; those of 16, which pass L1 by, take that many or more, as
// their data arrive.
static unsigned copy_passes(const Logged* const* lanes, unsigned count, unsigned bytes) {
    unsigned step = bytes <= 4 ? kWarpLanes : 128 / bytes, passes = 0;
    for (unsigned first = 0; first < count; first += step) {
        Logged sources[kWarpLanes];
        const Logged* read[kWarpLanes];
        unsigned size = 0;
        for (unsigned i = first; i < count && i < first + step; i++) {
            if (!lanes[i]->source) continue;
            sources[size].address = (uint64_t)lanes[i]->source * 4;
            read[size] = &sources[size];
            size++;
        }
        if (size > 1) passes += bank_passes(read, size, bytes).passes - 1;
    }
    return passes;
}

// 64-bit accesses go by half warps, 128-bit by quarters. NVIDIA does not publish the rule; it gives the counts of an
// H200 to the last one wherever they could be compared.
static void count_wavefronts(Site& site, const Logged* const* lanes, unsigned count, unsigned bytes) {
    Passes all;
    if (bytes == 4 && has_stride(lanes, count, 0))
        all.passes = all.words = 1;
    else if (bytes == 4 && has_stride(lanes, count, 4))
        all.passes = 1, all.words = count;
    else
        all = bank_passes(lanes, count, bytes);
    unsigned passes = bytes <= 4 ? all.passes : wide_passes(lanes, count, bytes, site.matrices);
    if (site.store) passes += copy_passes(lanes, count, bytes);
    site.used_bytes += bytes < 4 ? (uint64_t)distinct_addresses(lanes, count) * bytes : all.words * 4ull;
    site.ideal += (all.words + 31) / 32;
    add_cost(site, lanes, count, passes);
}

static void count_request(uint32_t site_index, const Logged* const* lanes, unsigned count) {
    Site& site = sites[site_index];
    site.requests++;
    site.lanes += count;
    if (site.shared)
        count_wavefronts(site, lanes, count, site.bytes);
    else
        count_sectors(site, lanes, count, site.bytes);
}

// Lanes that took the same way have the same log: one request an entry.
static bool lanes_agree(unsigned lane_count) {
    for (unsigned lane = 1; lane < lane_count; lane++) {
        if (lane_logs[lane].size != lane_logs[0].size) return false;
        for (size_t i = 0; i < lane_logs[0].size; i++)
            if (lane_logs[lane][i].site != lane_logs[0][i].site) return false;
    }
    return true;
}

// Lanes that went different ways: the n-th access of each lane to a site makes one request. Linear in the accesses:
// they are counted by site and lane, laid out in that order, and read across the lanes.
static void count_divergent(unsigned lane_count) {
    static uint32_t counts[kMaxSites][kWarpLanes], starts[kMaxSites][kWarpLanes];
    static Array<uint32_t> touched;
    static Array<const Logged*> ordered;
    touched.clear();
    uint32_t total = 0;
    for (unsigned lane = 0; lane < lane_count; lane++) {
        for (size_t i = 0; i < lane_logs[lane].size; i++, total++) {
            uint32_t site = lane_logs[lane][i].site;
            bool known = false;
            for (unsigned l = 0; l <= lane && !known; l++) known = counts[site][l] != 0;
            if (!known) touched.push(site);
            counts[site][lane]++;
        }
    }
    ordered.reserve(total);
    uint32_t position = 0;
    for (size_t t = 0; t < touched.size; t++) {
        for (unsigned lane = 0; lane < lane_count; lane++) {
            starts[touched[t]][lane] = position;
            position += counts[touched[t]][lane];
            counts[touched[t]][lane] = 0;
        }
    }
    for (unsigned lane = 0; lane < lane_count; lane++) {
        for (size_t i = 0; i < lane_logs[lane].size; i++) {
            uint32_t site = lane_logs[lane][i].site;
            ordered[starts[site][lane] + counts[site][lane]++] = &lane_logs[lane][i];
        }
    }
    for (size_t t = 0; t < touched.size; t++) {
        uint32_t site = touched[t];
        for (uint32_t nth = 0;; nth++) {
            const Logged* lanes[kWarpLanes];
            unsigned count = 0;
            for (unsigned lane = 0; lane < lane_count; lane++)
                if (nth < counts[site][lane]) lanes[count++] = ordered[starts[site][lane] + nth];
            if (!count) break;
            count_request(site, lanes, count);
        }
        for (unsigned lane = 0; lane < lane_count; lane++) counts[site][lane] = 0;
    }
}
