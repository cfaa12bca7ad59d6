// __half: 16 bits in memory, arithmetic through float (which rounds once, as the hardware does: 24 bits of mantissa are
// more than twice 11 and two).
#pragma once
#include "autotile_float16.h"

struct __half {
    uint16_t bits;
    __half() = default;
    AUTOTILE_INLINE __half(float value) : bits(autotile_half_from_float(value)) {}
    AUTOTILE_INLINE __half(double value) : __half(autotile_round_to_odd(value)) {}
    AUTOTILE_INLINE __half(int value) : __half((double)value) {}
    AUTOTILE_INLINE __half(unsigned value) : __half((double)value) {}
    AUTOTILE_INLINE operator float() const { return autotile_float_from_half(bits); }
};
AUTOTILE_FLOAT16(__half, __half2, half)
typedef __half half;
typedef __half2 half2;

static AUTOTILE_INLINE __half __float2half(float x) { return __half(x); }
static AUTOTILE_INLINE __half __float2half_rn(float x) { return __half(x); }
static AUTOTILE_INLINE __half __double2half(double x) { return __half(x); }
static AUTOTILE_INLINE __half __int2half_rn(int x) { return __half(x); }
static AUTOTILE_INLINE float __half2float(__half x) { return (float)x; }
static AUTOTILE_INLINE __half2 __floats2half2_rn(float x, float y) { return __half2(__half(x), __half(y)); }
static AUTOTILE_INLINE __half2 __float22half2_rn(float2 v) { return __half2(__half(v.x), __half(v.y)); }
static AUTOTILE_INLINE __half2 __float2half2_rn(float x) { return __half2(__half(x), __half(x)); }
static AUTOTILE_INLINE float2 __half22float2(__half2 v) { return float2((float)v.x, (float)v.y); }
static AUTOTILE_INLINE __half2 __halves2half2(__half x, __half y) { return __half2(x, y); }
static AUTOTILE_INLINE __half2 __half2half2(__half x) { return __half2(x, x); }
static AUTOTILE_INLINE __half __low2half(__half2 v) { return v.x; }
static AUTOTILE_INLINE __half __high2half(__half2 v) { return v.y; }
