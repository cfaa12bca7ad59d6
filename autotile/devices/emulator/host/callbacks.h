// The callbacks of -fsanitize=thread: every access of the instrumented kernel comes in here.
#pragma once
#include <string.h>

#include "memory.h"

#define AUTOTILE_ACCESS(bytes)                                                                                         \
    void __tsan_read##bytes(void* p) { access((char*)p, bytes, kRead, AUTOTILE_CALLER); }                              \
    void __tsan_write##bytes(void* p) { access((char*)p, bytes, kWrite, AUTOTILE_CALLER); }                            \
    void __tsan_volatile_read##bytes(void* p) { access((char*)p, bytes, kRead, AUTOTILE_CALLER); }                     \
    void __tsan_volatile_write##bytes(void* p) { access((char*)p, bytes, kWrite, AUTOTILE_CALLER); }                   \
    void __tsan_unaligned_read##bytes(void* p) { access_unaligned((char*)p, bytes, kRead, AUTOTILE_CALLER); }          \
    void __tsan_unaligned_write##bytes(void* p) { access_unaligned((char*)p, bytes, kWrite, AUTOTILE_CALLER); }        \
    void __tsan_unaligned_volatile_read##bytes(void* p) { access_unaligned((char*)p, bytes, kRead, AUTOTILE_CALLER); } \
    void __tsan_unaligned_volatile_write##bytes(void* p) {                                                             \
        access_unaligned((char*)p, bytes, kWrite, AUTOTILE_CALLER);                                                    \
    }                                                                                                                  \
    void __tsan_read_write##bytes(void* p) {                                                                           \
        access((char*)p, bytes, kRead, AUTOTILE_CALLER);                                                               \
        access((char*)p, bytes, kWrite, AUTOTILE_CALLER);                                                              \
    }                                                                                                                  \
    void __tsan_unaligned_read_write##bytes(void* p) {                                                                 \
        access_unaligned((char*)p, bytes, kRead, AUTOTILE_CALLER);                                                     \
        access_unaligned((char*)p, bytes, kWrite, AUTOTILE_CALLER);                                                    \
    }

// The compilers turn plain loops into calls of memcpy and memset; the empty asm keeps these from calling themselves.
static void copy_bytes(char* target, const char* source, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        target[i] = source[i];
        asm volatile("" ::: "memory");
    }
}

static void copy_checked(char* target, const char* source, size_t bytes, uint32_t pc) {
    if (bytes && launch.fiber && launch.instrumented) {
        access_range((char*)source, bytes, kRead, pc);
        access_range(target, bytes, kWrite, pc);
    }
    if (target <= source) return copy_bytes(target, source, bytes);
    for (size_t i = bytes; i-- > 0;) {
        target[i] = source[i];
        asm volatile("" ::: "memory");
    }
}

extern "C" {
AUTOTILE_ACCESS(1)
AUTOTILE_ACCESS(2)
AUTOTILE_ACCESS(4)
AUTOTILE_ACCESS(8)
AUTOTILE_ACCESS(16)
void __tsan_read_range(void* p, size_t bytes) { access_range((char*)p, bytes, kRead, AUTOTILE_CALLER); }
void __tsan_write_range(void* p, size_t bytes) { access_range((char*)p, bytes, kWrite, AUTOTILE_CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// Hidden in the library, so that the kernel's copies of whole structures are seen as well.
void* memcpy(void* target, const void* source, size_t bytes) {
    copy_checked((char*)target, (const char*)source, bytes, AUTOTILE_CALLER);
    return target;
}
void* memmove(void* target, const void* source, size_t bytes) {
    copy_checked((char*)target, (const char*)source, bytes, AUTOTILE_CALLER);
    return target;
}
void* memset(void* target, int value, size_t bytes) {
    if (bytes && launch.fiber && launch.instrumented) access_range((char*)target, bytes, kWrite, AUTOTILE_CALLER);
    for (size_t i = 0; i < bytes; i++) {
        ((char*)target)[i] = (char)value;
        asm volatile("" ::: "memory");
    }
    return target;
}
void* __tsan_memcpy(void* target, const void* source, size_t bytes) {
    copy_checked((char*)target, (const char*)source, bytes, AUTOTILE_CALLER);
    return target;
}
void* __tsan_memmove(void* target, const void* source, size_t bytes) {
    copy_checked((char*)target, (const char*)source, bytes, AUTOTILE_CALLER);
    return target;
}
void* __tsan_memset(void* target, int value, size_t bytes) { return memset(target, value, bytes); }
}
