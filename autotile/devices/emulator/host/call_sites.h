// Where the kernel's code calls for a plain load or store, found in the machine code itself: so that lines can be named
// before anything has run.
#pragma once
#ifdef __linux__
#include <link.h>
#endif

#include "callbacks.h"

// As relative() has it: the return address.
static Array<uint32_t> call_sites;

#define AUTOTILE_PLAIN(bytes)                                                                           \
    (const void*)__tsan_read##bytes, (const void*)__tsan_write##bytes, (const void*)__tsan_unaligned_read##bytes, \
        (const void*)__tsan_unaligned_write##bytes

// What is 16 bytes wide, volatile or atomic is never made wider.
static bool is_plain_callback(const char* target) {
    static const void* const plain[] = {AUTOTILE_PLAIN(1), AUTOTILE_PLAIN(2), AUTOTILE_PLAIN(4), AUTOTILE_PLAIN(8)};
    for (const void* callback : plain)
        if (target == callback) return true;
    return false;
}

// Calls with a distance in the instruction; on other processors than these none are found.
static void find_calls(const char* begin, const char* end) {
#if defined(__x86_64__)
    for (const char* p = begin; p + 5 <= end; p++) {
        if ((unsigned char)*p != 0xe8) continue;
        int32_t distance;
        __builtin_memcpy(&distance, p + 1, 4);
        if (is_plain_callback(p + 5 + distance)) call_sites.push(relative(p + 5));
    }
#elif defined(__aarch64__)
    for (const char* p = begin; p + 4 <= end; p += 4) {
        uint32_t word;
        __builtin_memcpy(&word, p, 4);
        if (word >> 26 != 0x25) continue;  // bl
        if (is_plain_callback(p + (int64_t)((int32_t)(word << 6) >> 6) * 4)) call_sites.push(relative(p + 4));
    }
#endif
}

#ifdef __linux__
// Calls `visit` with each segment of this library, and where it begins.
template <class Visit>
static void for_each_segment(Visit visit) {
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* given) {
            if (info->dlpi_addr != image_base) return 0;
            for (int i = 0; i < info->dlpi_phnum; i++)
                (*(Visit*)given)(info->dlpi_phdr[i], (char*)image_base + info->dlpi_phdr[i].p_vaddr);
            return 1;
        },
        &visit);
}
#endif

static void find_call_sites() {
    if (call_sites.size) return;
#ifdef __linux__
    for_each_segment([](const auto& segment, const char* begin) {
        if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X)) find_calls(begin, begin + segment.p_memsz);
    });
#endif
}
