// __nv_bfloat16: the upper half of a float, arithmetic through float.
#pragma once
#include "autotile_float16.h"

struct __nv_bfloat16 {
    uint16_t bits;
    __nv_bfloat16() = default;
    AUTOTILE_INLINE __nv_bfloat16(float value) : bits(autotile_bfloat16_from_float(value)) {}
    AUTOTILE_INLINE __nv_bfloat16(double value) : __nv_bfloat16(autotile_round_to_odd(value)) {}
    AUTOTILE_INLINE __nv_bfloat16(int value) : __nv_bfloat16((double)value) {}
    AUTOTILE_INLINE __nv_bfloat16(unsigned value) : __nv_bfloat16((double)value) {}
    AUTOTILE_INLINE operator float() const { return autotile_float_from_bfloat16(bits); }
};
AUTOTILE_FLOAT16(__nv_bfloat16, __nv_bfloat162, bfloat16)
typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static AUTOTILE_INLINE __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
static AUTOTILE_INLINE __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
static AUTOTILE_INLINE __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
static AUTOTILE_INLINE float __bfloat162float(__nv_bfloat16 x) { return (float)x; }
static AUTOTILE_INLINE __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return __nv_bfloat162(__nv_bfloat16(x), __nv_bfloat16(y));
}
static AUTOTILE_INLINE __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
static AUTOTILE_INLINE __nv_bfloat162 __float2bfloat162_rn(float x) { return __floats2bfloat162_rn(x, x); }
static AUTOTILE_INLINE float2 __bfloat1622float2(__nv_bfloat162 v) { return float2((float)v.x, (float)v.y); }
static AUTOTILE_INLINE __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) {
    return __nv_bfloat162(x, y);
}
static AUTOTILE_INLINE __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return __nv_bfloat162(x, x); }
static AUTOTILE_INLINE __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
static AUTOTILE_INLINE __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
