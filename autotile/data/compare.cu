// Compares an output with its reference on the GPU. One kernel for every element type, chosen by `type`:
// 1 half, 2 bfloat16, 3 float, 4 double, 5 and 6 floats of 8 bits, e4m3fn and e5m2: against a double reference, within
// a bound (one, or one an element);
// 16 + n: words of n bytes (1, 2, 4, 8 or 16), which must be equal to the last bit.
// The caller sets `outcome` to {0, ~0, 0} before.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct Outcome {
    unsigned long long wrong;      // elements beyond the bound
    unsigned long long first;      // index of the first of them
    unsigned long long worst_bits; // largest |output - reference| / bound, as the bits of a double
};

__device__ double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }

// Read through half, whose 5 bits of exponent and 10 of mantissa hold both kinds, so that CUDA 11.0 will do, which has no
// cuda_fp8.h: e5m2 is the upper byte of one; of e4m3fn, which has no infinity, the exponent counts from 7 and not from 15.
__device__ double e5m2(unsigned char bits) { return __half2float(__ushort_as_half(static_cast<unsigned short>(bits << 8))); }

__device__ double e4m3fn(unsigned char bits) {
    if ((bits & 0x7f) == 0x7f) return __longlong_as_double(0x7ff8000000000000ll);
    const double size = 256.0 * __half2float(__ushort_as_half(static_cast<unsigned short>((bits & 0x7f) << 7)));
    return bits & 0x80 ? -size : size;
}

__device__ double value_at(const void *data, long long i, int type) {
    if (type == 1) return __half2float(static_cast<const __half *>(data)[i]);
    if (type == 2) return __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[i]);
    if (type == 3) return static_cast<const float *>(data)[i];
    if (type == 5) return e4m3fn(static_cast<const unsigned char *>(data)[i]);
    if (type == 6) return e5m2(static_cast<const unsigned char *>(data)[i]);
    return static_cast<const double *>(data)[i];
}

// 0 where both are the same, NaN and infinity included; infinity where only one of them is finite.
__device__ double error_over_bound(double output, double reference, double bound) {
    if (output == reference || (isnan(output) && isnan(reference))) return 0.0;
    if (!isfinite(output) || !isfinite(reference)) return infinity();
    const double ratio = fabs(output - reference) / bound;
    return isnan(ratio) ? infinity() : ratio;
}

__device__ bool same_word(const void *a, const void *b, long long i, int bytes) {
    if (bytes == 1) return static_cast<const unsigned char *>(a)[i] == static_cast<const unsigned char *>(b)[i];
    if (bytes == 2) return static_cast<const unsigned short *>(a)[i] == static_cast<const unsigned short *>(b)[i];
    if (bytes == 4) return static_cast<const unsigned *>(a)[i] == static_cast<const unsigned *>(b)[i];
    const auto *x = static_cast<const unsigned long long *>(a), *y = static_cast<const unsigned long long *>(b);
    if (bytes == 8) return x[i] == y[i];
    return x[2 * i] == y[2 * i] && x[2 * i + 1] == y[2 * i + 1];
}

extern "C" __global__ void compare(const void *output, const void *reference, const double *bounds, double bound,
                                   long long count, int type, Outcome *outcome) {
    unsigned long long wrong = 0, first = ~0ull;
    double worst = 0.0;
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
        const double ratio = type >= 16
            ? (same_word(output, reference, i, type - 16) ? 0.0 : infinity())
            : error_over_bound(value_at(output, i, type), static_cast<const double *>(reference)[i],
                               bounds ? bounds[i] : bound);
        worst = fmax(worst, ratio);
        if (!(ratio <= 1.0)) {
            ++wrong;
            first = min(first, static_cast<unsigned long long>(i));
        }
    }
    if (wrong) {
        atomicAdd(&outcome->wrong, wrong);
        atomicMin(&outcome->first, first);
    }
    // Bits of doubles that are not negative are ordered as the doubles are.
    if (worst > 0.0) atomicMax(&outcome->worst_bits, static_cast<unsigned long long>(__double_as_longlong(worst)));
}
