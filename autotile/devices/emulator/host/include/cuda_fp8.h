// __nv_fp8_e4m3 and __nv_fp8_e5m2: 8 bits in memory. They have no arithmetic on a GPU either, only conversions, which
// take what is too large to the greatest number.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
enum __nv_saturation_t { __NV_SATFINITE = 1 };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

#define AUTOTILE_FP8(T, name)                                                          \
    struct T {                                                                         \
        __nv_fp8_storage_t __x;                                                        \
        T() = default;                                                                 \
        explicit AUTOTILE_INLINE T(float value) : __x(autotile_##name##_from_float(value)) {} \
        explicit AUTOTILE_INLINE T(double value) : T(autotile_round_to_odd(value)) {}  \
        explicit AUTOTILE_INLINE T(int value) : T((float)value) {}                     \
        explicit AUTOTILE_INLINE T(__half value) : T((float)value) {}                  \
        explicit AUTOTILE_INLINE T(__nv_bfloat16 value) : T((float)value) {}           \
        explicit AUTOTILE_INLINE operator float() const { return autotile_float_from_##name(__x); } \
        explicit AUTOTILE_INLINE operator double() const { return (float)*this; }      \
        explicit AUTOTILE_INLINE operator __half() const { return __half((float)*this); } \
        explicit AUTOTILE_INLINE operator __nv_bfloat16() const { return __nv_bfloat16((float)*this); } \
    };                                                                                 \
    static_assert(sizeof(T) == 1, "8 bits");
AUTOTILE_FP8(__nv_fp8_e4m3, e4m3)
AUTOTILE_FP8(__nv_fp8_e5m2, e5m2)

static AUTOTILE_INLINE __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t,
                                                                __nv_fp8_interpretation_t type) {
    return type == __NV_E4M3 ? autotile_e4m3_from_float(x) : autotile_e5m2_from_float(x);
}
