// Floats of 16 and 8 bits, without a table and without the processor's own conversions.
#pragma once
#include "abi.h"

// IEEE binary16, rounded to nearest even, without a table and without F16C.
extern "C" uint16_t autotile_half_from_float(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return 0x7fff;                      // NaN, as CUDA gives it
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00);  // 65520 and above round to infinity
    if (magnitude >= 0x38800000) {                                  // normal: rebias, round 13 bits away
        uint32_t rounded = magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1);
        return (uint16_t)(sign | rounded >> 13);
    }
    if (magnitude < 0x33000000) return (uint16_t)sign;  // below half of the smallest denormal
    uint32_t shift = 126 - (magnitude >> 23), mantissa = (magnitude & 0x7fffff) | 0x800000;
    uint32_t kept = mantissa >> shift, rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
    kept += rest > half || (rest == half && (kept & 1));
    return (uint16_t)(sign | kept);
}

extern "C" float autotile_float_from_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 0x3ff, bits;
    if (exponent == 31) {
        bits = sign | 0x7f800000 | mantissa << 13;
    } else if (exponent) {
        bits = sign | (exponent + 112) << 23 | mantissa << 13;
    } else {
        float value = (float)mantissa * 0x1p-24f;  // exact
        return sign ? -value : value;
    }
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}

extern "C" float autotile_float_from_e5m2(uint8_t bits) { return autotile_float_from_half((uint16_t)(bits << 8)); }

// No infinities: all exponents hold numbers, and the greatest magnitude is NaN.
extern "C" float autotile_float_from_e4m3(uint8_t bits) {
    uint32_t exponent = bits >> 3 & 15, mantissa = bits & 7;
    if ((bits & 0x7f) == 0x7f) return __builtin_nanf("");
    float value = exponent ? (float)(mantissa | 8) * (float)(1u << exponent) * 0x1p-10f : (float)mantissa * 0x1p-9f;
    return bits & 0x80 ? -value : value;
}

// Rounded to nearest even in steps of the last bit; what is too large becomes the `largest`, also an infinity. NaN is
// 0x7f, as CUDA gives it.
static uint8_t fp8_from_float(float value, int mantissa_bits, int bias, uint32_t largest) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    uint32_t sign = bits >> 24 & 0x80, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return 0x7f;
    int exponent = (int)(magnitude >> 23) - 127;
    if (exponent > 15) return (uint8_t)(sign | largest);
    if (exponent < 1 - bias) exponent = 1 - bias;  // where the steps stay the same
    uint32_t step_bits = (uint32_t)(127 + mantissa_bits - exponent) << 23;
    float steps_a_unit;
    __builtin_memcpy(&steps_a_unit, &step_bits, 4);
    float steps = __builtin_fabsf(value) * steps_a_unit;  // exact
    uint32_t whole = (uint32_t)steps;
    float rest = steps - (float)whole;
    whole += rest > 0.5f || (rest == 0.5f && (whole & 1));
    uint32_t code = ((uint32_t)(exponent + bias - 1) << mantissa_bits) + whole;
    return (uint8_t)(sign | (code < largest ? code : largest));
}

extern "C" uint8_t autotile_e4m3_from_float(float value) { return fp8_from_float(value, 3, 7, 0x7e); }

extern "C" uint8_t autotile_e5m2_from_float(float value) { return fp8_from_float(value, 2, 15, 0x7b); }
