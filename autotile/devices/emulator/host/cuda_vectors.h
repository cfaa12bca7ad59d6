// CUDA's vector types. One that is as wide as a machine access must be loaded and stored whole, or the trace would show
// four narrow accesses where the GPU makes one: copies go through an empty asm that the optimiser cannot split.
#pragma once
#include <stdint.h>

#define AUTOTILE_INLINE __attribute__((always_inline)) inline

typedef float AutotileBits16 __attribute__((vector_size(16), may_alias));
typedef uint64_t AutotileBits8 __attribute__((may_alias));
typedef uint32_t AutotileBits4 __attribute__((may_alias));
typedef uint16_t AutotileBits2 __attribute__((may_alias));

#ifdef __aarch64__
#define AUTOTILE_WHOLE_16(bits) asm("" : "+w"(bits))
#else
#define AUTOTILE_WHOLE_16(bits) asm("" : "+x"(bits))
#endif
#define AUTOTILE_WHOLE_8(bits) asm("" : "+r"(bits))
#define AUTOTILE_WHOLE_4(bits) asm("" : "+r"(bits))
#define AUTOTILE_WHOLE_2(bits) asm("" : "+r"(bits))

#define AUTOTILE_COPIES(name, width)                     \
    AUTOTILE_INLINE name(const name& other) {            \
        AutotileBits##width bits = other.bits_;          \
        AUTOTILE_WHOLE_##width(bits);                    \
        bits_ = bits;                                    \
    }                                                    \
    AUTOTILE_INLINE name& operator=(const name& other) { \
        AutotileBits##width bits = other.bits_;          \
        AUTOTILE_WHOLE_##width(bits);                    \
        bits_ = bits;                                    \
        return *this;                                    \
    }

#define AUTOTILE_VECTOR2(name, T, width)                       \
    struct __attribute__((aligned(width))) name {              \
        union {                                                \
            struct {                                           \
                T x, y;                                        \
            };                                                 \
            AutotileBits##width bits_;                         \
        };                                                     \
        name() = default;                                      \
        AUTOTILE_INLINE name(T x_, T y_ = 0) : x(x_), y(y_) {} \
        AUTOTILE_COPIES(name, width)                           \
    };                                                         \
    static AUTOTILE_INLINE name make_##name(T x, T y) { return name(x, y); }

#define AUTOTILE_VECTOR4(name, T, width)                                                         \
    struct __attribute__((aligned(width))) name {                                                \
        union {                                                                                  \
            struct {                                                                             \
                T x, y, z, w;                                                                    \
            };                                                                                   \
            AutotileBits##width bits_;                                                           \
        };                                                                                       \
        name() = default;                                                                        \
        AUTOTILE_INLINE name(T x_, T y_ = 0, T z_ = 0, T w_ = 0) : x(x_), y(y_), z(z_), w(w_) {} \
        AUTOTILE_COPIES(name, width)                                                             \
    };                                                                                           \
    static AUTOTILE_INLINE name make_##name(T x, T y, T z, T w) { return name(x, y, z, w); }

// Without an access of their own on a GPU either: one, three or four members, each accessed alone.
#define AUTOTILE_PLAIN1(name, T) \
    struct name {                \
        T x;                     \
    };                           \
    static inline name make_##name(T x) { return name{x}; }
#define AUTOTILE_PLAIN3(name, T) \
    struct name {                \
        T x, y, z;               \
    };                           \
    static inline name make_##name(T x, T y, T z) { return name{x, y, z}; }

// Thirty-two bytes: two accesses of sixteen.
#define AUTOTILE_VECTOR32(name, T, pair)                                                         \
    struct __attribute__((aligned(16))) name {                                                   \
        union {                                                                                  \
            struct {                                                                             \
                T x, y, z, w;                                                                    \
            };                                                                                   \
            AutotileBits16 bits_[2];                                                             \
        };                                                                                       \
        name() = default;                                                                        \
        AUTOTILE_INLINE name(T x_, T y_ = 0, T z_ = 0, T w_ = 0) : x(x_), y(y_), z(z_), w(w_) {} \
        AUTOTILE_INLINE name(const name& other) { *this = other; }                               \
        AUTOTILE_INLINE name& operator=(const name& other) {                                     \
            AutotileBits16 low = other.bits_[0], high = other.bits_[1];                          \
            AUTOTILE_WHOLE_16(low);                                                              \
            AUTOTILE_WHOLE_16(high);                                                             \
            bits_[0] = low, bits_[1] = high;                                                     \
            return *this;                                                                        \
        }                                                                                        \
    };                                                                                           \
    static AUTOTILE_INLINE name make_##name(T x, T y, T z, T w) { return name(x, y, z, w); }

#define AUTOTILE_FAMILY(prefix, T, width2, width4) \
    AUTOTILE_PLAIN1(prefix##1, T)                  \
    AUTOTILE_VECTOR2(prefix##2, T, width2)         \
    AUTOTILE_PLAIN3(prefix##3, T)                  \
    AUTOTILE_VECTOR4(prefix##4, T, width4)
#define AUTOTILE_FAMILY_64(prefix, T)  \
    AUTOTILE_PLAIN1(prefix##1, T)      \
    AUTOTILE_VECTOR2(prefix##2, T, 16) \
    AUTOTILE_PLAIN3(prefix##3, T)      \
    AUTOTILE_VECTOR32(prefix##4, T, prefix##2)

AUTOTILE_FAMILY(char, signed char, 2, 4)
AUTOTILE_FAMILY(uchar, unsigned char, 2, 4)
AUTOTILE_FAMILY(short, short, 4, 8)
AUTOTILE_FAMILY(ushort, unsigned short, 4, 8)
AUTOTILE_FAMILY(int, int, 8, 16)
AUTOTILE_FAMILY(uint, unsigned, 8, 16)
AUTOTILE_FAMILY(float, float, 8, 16)
AUTOTILE_FAMILY_64(double, double)
AUTOTILE_FAMILY_64(longlong, long long)
AUTOTILE_FAMILY_64(ulonglong, unsigned long long)
AUTOTILE_FAMILY_64(long, long)
AUTOTILE_FAMILY_64(ulong, unsigned long)
