// PTX instructions as functions: what ptx.py makes of asm statements. Their operands are in the order of the instruction,
// each as its constraint asks (autotile_in_…, autotile_out_…).
#pragma once
#include "cuda_host.h"

// ------------------------------------------------------------------------------------------------------------ operands

#define AUTOTILE_OPERAND(constraint, T)                                                                            \
    template <class X>                                                                                             \
    AUTOTILE_INLINE T autotile_in_##constraint(X x) {                                                              \
        static_assert(sizeof(X) == sizeof(T), "an asm operand has not the size that its constraint asks for");     \
        static_assert(AutotileIsFloat<X>::value == AutotileIsFloat<T>::value, "an asm operand has another type");  \
        return (T)x;                                                                                               \
    }                                                                                                              \
    template <class X>                                                                                             \
    AUTOTILE_INLINE T& autotile_out_##constraint(X& x) {                                                           \
        static_assert(sizeof(X) == sizeof(T), "an asm operand has not the size that its constraint asks for");     \
        static_assert(AutotileIsFloat<X>::value == AutotileIsFloat<T>::value, "an asm operand has another type");  \
        return (T&)x;                                                                                              \
    }

template <class T>
struct AutotileIsFloat {
    static constexpr bool value = AutotileDescribe<typename AutotileBare<T>::type>::kind == kFloating;
};
AUTOTILE_OPERAND(h, uint16_t)
AUTOTILE_OPERAND(r, uint32_t)
AUTOTILE_OPERAND(l, uint64_t)
AUTOTILE_OPERAND(f, float)
AUTOTILE_OPERAND(d, double)

// --------------------------------------------------------------------------------------------------------- conversions

// To the nearest, of two the one away from zero.
static AUTOTILE_INLINE void autotile_cvt_tf32(uint32_t& d, float a) {
    uint32_t bits = __float_as_uint(a);
    d = (a == a ? bits + 0x1000 : bits) & 0xffffe000u;
}
static AUTOTILE_INLINE void autotile_cvt_f16x2(uint32_t& d, float high, float low) {
    d = (uint32_t)autotile_half_from_float(high) << 16 | autotile_half_from_float(low);
}
static AUTOTILE_INLINE void autotile_cvt_bf16x2(uint32_t& d, float high, float low) {
    d = (uint32_t)autotile_bfloat16_from_float(high) << 16 | autotile_bfloat16_from_float(low);
}
static AUTOTILE_INLINE void autotile_cvt_e4m3x2(uint16_t& d, float high, float low) {
    d = (uint16_t)(autotile_e4m3_from_float(high) << 8 | autotile_e4m3_from_float(low));
}
static AUTOTILE_INLINE void autotile_cvt_e5m2x2(uint16_t& d, float high, float low) {
    d = (uint16_t)(autotile_e5m2_from_float(high) << 8 | autotile_e5m2_from_float(low));
}
static AUTOTILE_INLINE void autotile_prmt(uint32_t& d, uint32_t a, uint32_t b, uint32_t selector) {
    d = __byte_perm(a, b, selector);
}

// -------------------------------------------------------------------------------------------------- asynchronous copies

template <uint32_t kLeast>
AUTOTILE_INLINE void autotile_cp_async(uint64_t shared, uint64_t global, uint32_t bytes, uint32_t source_bytes) {
    uint32_t copied = bytes < kLeast ? 0 : bytes;  // which the runtime reports
    autotile_copy_async(autotile_from_shared_address((uint32_t)shared), (const void*)global, copied,
                        (size_t)bytes - source_bytes);
}
template <uint32_t kLeast>
AUTOTILE_INLINE void autotile_cp_async(uint64_t shared, uint64_t global, uint32_t bytes) {
    autotile_cp_async<kLeast>(shared, global, bytes, bytes);
}
static AUTOTILE_INLINE void autotile_cp_async_commit() { autotile_copy_commit(); }
static AUTOTILE_INLINE void autotile_cp_async_wait(uint32_t pending_groups) { autotile_copy_wait(pending_groups); }
static AUTOTILE_INLINE void autotile_cp_async_wait_all() {
    autotile_copy_commit();
    autotile_copy_wait(0);
}

// A hint to the caches, which faults nowhere.
static AUTOTILE_INLINE void autotile_prefetch(uint64_t) {}

// ------------------------------------------------------------------------------------------------------------- matrices

template <bool kTransposed>
AUTOTILE_INLINE void autotile_ldmatrix(uint32_t& d0, uint64_t address) {
    autotile_load_matrices((uint32_t)address, 1, kTransposed, &d0);
}
template <bool kTransposed>
AUTOTILE_INLINE void autotile_ldmatrix(uint32_t& d0, uint32_t& d1, uint64_t address) {
    uint32_t loaded[2];
    autotile_load_matrices((uint32_t)address, 2, kTransposed, loaded);
    d0 = loaded[0], d1 = loaded[1];
}
template <bool kTransposed>
AUTOTILE_INLINE void autotile_ldmatrix(uint32_t& d0, uint32_t& d1, uint32_t& d2, uint32_t& d3, uint64_t address) {
    uint32_t loaded[4];
    autotile_load_matrices((uint32_t)address, 4, kTransposed, loaded);
    d0 = loaded[0], d1 = loaded[1], d2 = loaded[2], d3 = loaded[3];
}

// The registers of A, of B and of C, in this order and without a gap; the sums come back in C. T: what is summed up in,
// R: a register of A and B.
template <uint32_t kForm, class T>
AUTOTILE_INLINE void autotile_multiply(T* registers) {
    autotile_warp(0xffffffffu, kMultiplyMatrices, (uint64_t)registers, kForm);
}
template <uint32_t kForm, class T, class R>
AUTOTILE_INLINE void autotile_mma(T& d0, T& d1, R a0, R b0, T c0, T c1) {
    struct {
        R a, b;
        T c[2];
    } registers = {a0, b0, {c0, c1}};
    autotile_multiply<kForm>(&registers);
    d0 = registers.c[0], d1 = registers.c[1];
}
template <uint32_t kForm, class T, class R>
AUTOTILE_INLINE void autotile_mma(T& d0, T& d1, T& d2, T& d3, R a0, R a1, R b0, T c0, T c1, T c2, T c3) {
    struct {
        R a[2], b;
        T c[4];
    } registers = {{a0, a1}, b0, {c0, c1, c2, c3}};
    autotile_multiply<kForm>(&registers);
    d0 = registers.c[0], d1 = registers.c[1], d2 = registers.c[2], d3 = registers.c[3];
}
template <uint32_t kForm, class T, class R>
AUTOTILE_INLINE void autotile_mma(T& d0, T& d1, T& d2, T& d3, R a0, R a1, R a2, R a3, R b0, R b1, T c0, T c1, T c2,
                                  T c3) {
    struct {
        R a[4], b[2];
        T c[4];
    } registers = {{a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}};
    autotile_multiply<kForm>(&registers);
    d0 = registers.c[0], d1 = registers.c[1], d2 = registers.c[2], d3 = registers.c[3];
}
template <uint32_t kForm, class T, class R>
AUTOTILE_INLINE void autotile_mma(T& d0, T& d1, T& d2, T& d3, R a0, R a1, R a2, R a3, R a4, R a5, R a6, R a7, R b0,
                                  R b1, R b2, R b3, T c0, T c1, T c2, T c3) {
    struct {
        R a[8], b[4];
        T c[4];
    } registers = {{a0, a1, a2, a3, a4, a5, a6, a7}, {b0, b1, b2, b3}, {c0, c1, c2, c3}};
    autotile_multiply<kForm>(&registers);
    d0 = registers.c[0], d1 = registers.c[1], d2 = registers.c[2], d3 = registers.c[3];
}
