// The arithmetic built-ins. <math.h> costs more to parse than a kernel, so the functions are declared here, as libm has
// them; include/math.h keeps a kernel's own #include from bringing the long one in.
#pragma once
#include <stdint.h>

#ifdef __APPLE__
#define AUTOTILE_NOEXCEPT
#else
#define AUTOTILE_NOEXCEPT noexcept
#endif

#define AUTOTILE_MATH1(name)                           \
    extern "C" double name(double) AUTOTILE_NOEXCEPT;  \
    extern "C" float name##f(float) AUTOTILE_NOEXCEPT; \
    static AUTOTILE_INLINE float name(float x) { return name##f(x); }
#define AUTOTILE_MATH2(name)                                  \
    extern "C" double name(double, double) AUTOTILE_NOEXCEPT; \
    extern "C" float name##f(float, float) AUTOTILE_NOEXCEPT; \
    static AUTOTILE_INLINE float name(float x, float y) { return name##f(x, y); }
AUTOTILE_MATH1(sqrt)
AUTOTILE_MATH1(cbrt)
AUTOTILE_MATH1(exp)
AUTOTILE_MATH1(exp2)
AUTOTILE_MATH1(expm1)
AUTOTILE_MATH1(log)
AUTOTILE_MATH1(log2)
AUTOTILE_MATH1(log10)
AUTOTILE_MATH1(log1p)
AUTOTILE_MATH1(sin)
AUTOTILE_MATH1(cos)
AUTOTILE_MATH1(tan)
AUTOTILE_MATH1(asin)
AUTOTILE_MATH1(acos)
AUTOTILE_MATH1(atan)
AUTOTILE_MATH1(sinh)
AUTOTILE_MATH1(cosh)
AUTOTILE_MATH1(tanh)
AUTOTILE_MATH1(erf)
AUTOTILE_MATH1(erfc)
AUTOTILE_MATH1(floor)
AUTOTILE_MATH1(ceil)
AUTOTILE_MATH1(trunc)
AUTOTILE_MATH1(round)
AUTOTILE_MATH1(rint)
AUTOTILE_MATH1(nearbyint)
AUTOTILE_MATH1(fabs)
AUTOTILE_MATH2(pow)
AUTOTILE_MATH2(fmod)
AUTOTILE_MATH2(atan2)
AUTOTILE_MATH2(hypot)
AUTOTILE_MATH2(copysign)
AUTOTILE_MATH2(fmin)
AUTOTILE_MATH2(fmax)
extern "C" double fma(double, double, double) AUTOTILE_NOEXCEPT;
extern "C" float fmaf(float, float, float) AUTOTILE_NOEXCEPT;
static AUTOTILE_INLINE float fma(float a, float b, float c) { return fmaf(a, b, c); }

static AUTOTILE_INLINE int abs(int x) { return x < 0 ? -x : x; }
static AUTOTILE_INLINE long long abs(long long x) { return x < 0 ? -x : x; }
static AUTOTILE_INLINE float abs(float x) { return __builtin_fabsf(x); }
static AUTOTILE_INLINE double abs(double x) { return __builtin_fabs(x); }
static AUTOTILE_INLINE int isnan(float x) { return x != x; }
static AUTOTILE_INLINE int isnan(double x) { return x != x; }
static AUTOTILE_INLINE int isinf(float x) { return __builtin_isinf(x) != 0; }
static AUTOTILE_INLINE int isinf(double x) { return __builtin_isinf(x) != 0; }
static AUTOTILE_INLINE int isfinite(float x) { return __builtin_isfinite(x); }
static AUTOTILE_INLINE int isfinite(double x) { return __builtin_isfinite(x); }
static AUTOTILE_INLINE float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static AUTOTILE_INLINE float rsqrt(float x) { return 1.0f / sqrtf(x); }
static AUTOTILE_INLINE double rsqrt(double x) { return 1.0 / sqrt(x); }
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__
#define DBL_MAX __DBL_MAX__
#define INT_MAX __INT_MAX__
#define INT_MIN (-__INT_MAX__ - 1)
#define UINT_MAX 0xffffffffu

#define AUTOTILE_MINMAX(T)                                           \
    static AUTOTILE_INLINE T min(T a, T b) { return b < a ? b : a; } \
    static AUTOTILE_INLINE T max(T a, T b) { return a < b ? b : a; }
AUTOTILE_MINMAX(int)
AUTOTILE_MINMAX(unsigned)
AUTOTILE_MINMAX(long)
AUTOTILE_MINMAX(unsigned long)
AUTOTILE_MINMAX(long long)
AUTOTILE_MINMAX(unsigned long long)
static AUTOTILE_INLINE unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
static AUTOTILE_INLINE unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
static AUTOTILE_INLINE unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
static AUTOTILE_INLINE unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
static AUTOTILE_INLINE float min(float a, float b) { return fminf(a, b); }
static AUTOTILE_INLINE float max(float a, float b) { return fmaxf(a, b); }
static AUTOTILE_INLINE double min(double a, double b) { return fmin(a, b); }
static AUTOTILE_INLINE double max(double a, double b) { return fmax(a, b); }
static AUTOTILE_INLINE double min(float a, double b) { return fmin((double)a, b); }
static AUTOTILE_INLINE double min(double a, float b) { return fmin(a, (double)b); }
static AUTOTILE_INLINE double max(float a, double b) { return fmax((double)a, b); }
static AUTOTILE_INLINE double max(double a, float b) { return fmax(a, (double)b); }

// These round on their own: the compiler must not fuse them with what stands around them.
#ifdef __aarch64__
#define AUTOTILE_ROUNDED(x) asm("" : "+w"(x))
#else
#define AUTOTILE_ROUNDED(x) asm("" : "+x"(x))
#endif
#define AUTOTILE_ALONE(name, T, expression)   \
    static AUTOTILE_INLINE T name(T a, T b) { \
        T result = expression;                \
        AUTOTILE_ROUNDED(result);             \
        return result;                        \
    }
AUTOTILE_ALONE(__fadd_rn, float, a + b)
AUTOTILE_ALONE(__fsub_rn, float, a - b)
AUTOTILE_ALONE(__fmul_rn, float, a* b)
AUTOTILE_ALONE(__fdiv_rn, float, a / b)
AUTOTILE_ALONE(__dadd_rn, double, a + b)
AUTOTILE_ALONE(__dsub_rn, double, a - b)
AUTOTILE_ALONE(__dmul_rn, double, a* b)
AUTOTILE_ALONE(__ddiv_rn, double, a / b)
static AUTOTILE_INLINE float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static AUTOTILE_INLINE double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
static AUTOTILE_INLINE float __fsqrt_rn(float x) { return sqrtf(x); }
static AUTOTILE_INLINE float __frcp_rn(float x) { return 1.0f / x; }
static AUTOTILE_INLINE float __frsqrt_rn(float x) { return rsqrtf(x); }
static AUTOTILE_INLINE float __fdividef(float a, float b) { return a / b; }
static AUTOTILE_INLINE float __expf(float x) { return expf(x); }
static AUTOTILE_INLINE float __exp2f(float x) { return exp2f(x); }
static AUTOTILE_INLINE float __logf(float x) { return logf(x); }
static AUTOTILE_INLINE float __log2f(float x) { return log2f(x); }
static AUTOTILE_INLINE float __sinf(float x) { return sinf(x); }
static AUTOTILE_INLINE float __cosf(float x) { return cosf(x); }
static AUTOTILE_INLINE float __powf(float x, float y) { return powf(x, y); }
static AUTOTILE_INLINE float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }

static AUTOTILE_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
static AUTOTILE_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static AUTOTILE_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static AUTOTILE_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static AUTOTILE_INLINE int __ffs(int x) { return __builtin_ffs(x); }
static AUTOTILE_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
static AUTOTILE_INLINE unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
static AUTOTILE_INLINE int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static AUTOTILE_INLINE unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static AUTOTILE_INLINE int __mul24(int a, int b) { return (int)((unsigned)(a << 8 >> 8) * (unsigned)(b << 8 >> 8)); }
static AUTOTILE_INLINE unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
static AUTOTILE_INLINE unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned nibble = selector >> 4 * i & 15, byte = (unsigned)(bytes >> 8 * (nibble & 7)) & 255;
        if (nibble & 8) byte = byte & 128 ? 255 : 0;  // bit 3 asks for the sign, replicated
        result |= byte << 8 * i;
    }
    return result;
}
static AUTOTILE_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) << (shift & 31) >> 32);
}
static AUTOTILE_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
static AUTOTILE_INLINE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
static AUTOTILE_INLINE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
static AUTOTILE_INLINE int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8) c += (int)(signed char)(a >> i) * (int)(signed char)(b >> i);
    return c;
}
static AUTOTILE_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
    return c;
}

#define AUTOTILE_SAME_BITS(name, From, To)             \
    static AUTOTILE_INLINE To name(From value) {       \
        To result;                                     \
        __builtin_memcpy(&result, &value, sizeof(To)); \
        return result;                                 \
    }
AUTOTILE_SAME_BITS(__float_as_int, float, int)
AUTOTILE_SAME_BITS(__float_as_uint, float, unsigned)
AUTOTILE_SAME_BITS(__int_as_float, int, float)
AUTOTILE_SAME_BITS(__uint_as_float, unsigned, float)
AUTOTILE_SAME_BITS(__double_as_longlong, double, long long)
AUTOTILE_SAME_BITS(__longlong_as_double, long long, double)
static AUTOTILE_INLINE int __float2int_rn(float x) { return (int)rintf(x); }
static AUTOTILE_INLINE int __double2int_rn(double x) {  // to the nearest, the nearest end for what fits no int, 0 for NaN
    const double whole = rint(x);
    return x != x ? 0 : whole >= 2147483647.0 ? INT_MAX : whole <= -2147483648.0 ? INT_MIN : (int)whole;
}
static AUTOTILE_INLINE int __float2int_rz(float x) { return (int)x; }
static AUTOTILE_INLINE int __float2int_rd(float x) { return (int)floorf(x); }
static AUTOTILE_INLINE int __float2int_ru(float x) { return (int)ceilf(x); }
static AUTOTILE_INLINE unsigned __float2uint_rn(float x) { return (unsigned)rintf(x); }
static AUTOTILE_INLINE float __int2float_rn(int x) { return (float)x; }
static AUTOTILE_INLINE float __uint2float_rn(unsigned x) { return (float)x; }

// Beside those of 16 bits that the runtime has.
static AUTOTILE_INLINE uint16_t autotile_bfloat16_from_float(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;  // NaN, as CUDA gives it
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static AUTOTILE_INLINE float autotile_float_from_bfloat16(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
}
