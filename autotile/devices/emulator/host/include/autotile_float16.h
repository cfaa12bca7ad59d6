// What __half and __nv_bfloat16 have in common.
#pragma once

// A double becomes a 16-bit float in one rounding if float, on the way, rounds to odd: no tie can arise that was none.
static AUTOTILE_INLINE float autotile_round_to_odd(double value) {
    float rounded = (float)value;
    uint32_t bits;
    __builtin_memcpy(&bits, &rounded, 4);
    if ((double)rounded == value || value != value || (bits & 0x7fffffff) == 0x7f800000 || (bits & 1)) return rounded;
    bool above = __builtin_fabs((double)rounded) > __builtin_fabs(value);
    bits += above ? -1 : 1;
    __builtin_memcpy(&rounded, &bits, 4);
    return rounded;
}

// T: the type; T2: its pair; name: as the conversions between bits and values spell it.
#define AUTOTILE_FLOAT16(T, T2, name)                                                                    \
    static_assert(sizeof(T) == 2, "16 bits");                                                            \
    static AUTOTILE_INLINE T operator+(T a, T b) { return T((float)a + (float)b); }                      \
    static AUTOTILE_INLINE T operator-(T a, T b) { return T((float)a - (float)b); }                      \
    static AUTOTILE_INLINE T operator*(T a, T b) { return T((float)a * (float)b); }                      \
    static AUTOTILE_INLINE T operator/(T a, T b) { return T((float)a / (float)b); }                      \
    static AUTOTILE_INLINE T operator-(T a) { return T(-(float)a); }                                     \
    static AUTOTILE_INLINE T& operator+=(T& a, T b) { return a = a + b; }                                \
    static AUTOTILE_INLINE T& operator-=(T& a, T b) { return a = a - b; }                                \
    static AUTOTILE_INLINE T& operator*=(T& a, T b) { return a = a * b; }                                \
    static AUTOTILE_INLINE T& operator/=(T& a, T b) { return a = a / b; }                                \
    static AUTOTILE_INLINE bool operator==(T a, T b) { return (float)a == (float)b; }                    \
    static AUTOTILE_INLINE bool operator!=(T a, T b) { return (float)a != (float)b; }                    \
    static AUTOTILE_INLINE bool operator<(T a, T b) { return (float)a < (float)b; }                      \
    static AUTOTILE_INLINE bool operator>(T a, T b) { return (float)a > (float)b; }                      \
    static AUTOTILE_INLINE bool operator<=(T a, T b) { return (float)a <= (float)b; }                    \
    static AUTOTILE_INLINE bool operator>=(T a, T b) { return (float)a >= (float)b; }                    \
    static AUTOTILE_INLINE T __hadd(T a, T b) { return a + b; }                                          \
    static AUTOTILE_INLINE T __hsub(T a, T b) { return a - b; }                                          \
    static AUTOTILE_INLINE T __hmul(T a, T b) { return a * b; }                                          \
    static AUTOTILE_INLINE T __hdiv(T a, T b) { return a / b; }                                          \
    static AUTOTILE_INLINE T __hneg(T a) { return -a; }                                                  \
    static AUTOTILE_INLINE T __habs(T a) { return T(__builtin_fabsf((float)a)); }                        \
    static AUTOTILE_INLINE T __hmax(T a, T b) { return T(fmaxf((float)a, (float)b)); }                   \
    static AUTOTILE_INLINE T __hmin(T a, T b) { return T(fminf((float)a, (float)b)); }                   \
    static AUTOTILE_INLINE T __hfma(T a, T b, T c) { return T((double)(float)a * (float)b + (float)c); } \
    static AUTOTILE_INLINE bool __hlt(T a, T b) { return a < b; }                                        \
    static AUTOTILE_INLINE bool __hgt(T a, T b) { return a > b; }                                        \
    static AUTOTILE_INLINE bool __hisnan(T a) { return (float)a != (float)a; }                           \
    static AUTOTILE_INLINE unsigned short __##name##_as_ushort(T a) { return a.bits; }                   \
    static AUTOTILE_INLINE short __##name##_as_short(T a) { return (short)a.bits; }                      \
    static AUTOTILE_INLINE T __ushort_as_##name(unsigned short bits) {                                   \
        T result;                                                                                        \
        result.bits = bits;                                                                              \
        return result;                                                                                   \
    }                                                                                                    \
    struct __attribute__((aligned(4))) T2 {                                                              \
        T x, y;                                                                                          \
        T2() = default;                                                                                  \
        AUTOTILE_INLINE T2(T x_, T y_) : x(x_), y(y_) {}                                                 \
        AUTOTILE_INLINE T2(const T2& other) { *this = other; }                                           \
        AUTOTILE_INLINE T2& operator=(const T2& other) {                                                 \
            AutotileBits4 bits = *(const AutotileBits4*)&other;                                          \
            AUTOTILE_WHOLE_4(bits);                                                                      \
            *(AutotileBits4*)this = bits;                                                                \
            return *this;                                                                                \
        }                                                                                                \
    };                                                                                                   \
    static AUTOTILE_INLINE T2 operator+(const T2& a, const T2& b) { return T2(a.x + b.x, a.y + b.y); }   \
    static AUTOTILE_INLINE T2 operator-(const T2& a, const T2& b) { return T2(a.x - b.x, a.y - b.y); }   \
    static AUTOTILE_INLINE T2 operator*(const T2& a, const T2& b) { return T2(a.x * b.x, a.y * b.y); }   \
    static AUTOTILE_INLINE T2& operator+=(T2& a, const T2& b) { return a = a + b; }                      \
    static AUTOTILE_INLINE T2& operator*=(T2& a, const T2& b) { return a = a * b; }                      \
    static AUTOTILE_INLINE T2 __hadd2(const T2& a, const T2& b) { return a + b; }                        \
    static AUTOTILE_INLINE T2 __hsub2(const T2& a, const T2& b) { return a - b; }                        \
    static AUTOTILE_INLINE T2 __hmul2(const T2& a, const T2& b) { return a * b; }                        \
    static AUTOTILE_INLINE T2 __hfma2(const T2& a, const T2& b, const T2& c) {                           \
        return T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));                                         \
    }                                                                                                    \
    static AUTOTILE_INLINE float __low2float(const T2& v) { return (float)v.x; }                         \
    static AUTOTILE_INLINE float __high2float(const T2& v) { return (float)v.y; }
