// CUDA C++ as host C++: what a kernel's source finds before its first line. It includes next to nothing, because it is
// compiled anew with every variant.
#pragma once
#include "abi.h"
#include "cuda_vectors.h"

#define AUTOTILE_EMULATOR 1
#define __CUDACC__ 1
#define __CUDA_ARCH__ 800

// ------------------------------------------------------------------------------------------------------------ keywords

#define __global__ __attribute__((noinline))
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__
#define __launch_bounds__(...)
#define __cluster_dims__(...)  // source.py reads it
#define __maxnreg__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
// Shared arrays are statics between the fences (fence.cpp). `used`, because the compiler must not conclude that nobody
// but the kernel writes them: the runtime poisons them.
#define __shared__ static __attribute__((used, aligned(16)))
// source.py puts these where __shared__ stands in a declaration that has a storage class of its own.
#define autotile_shared_static __attribute__((used, aligned(16)))
#define autotile_shared_extern
// Of the functions before and after the kernel, whose arrays are not the kernel's.
#ifdef __APPLE__
#define autotile_shared_step __shared__
#define AUTOTILE_STEPS_SECTION
#else
#define autotile_shared_step static __attribute__((used, aligned(16), section(".bss.autotile_steps")))
// The linker keeps the order in which an object names its sections: the kernel's arrays first.
#define AUTOTILE_STEPS_SECTION                                          \
    asm(".pushsection .bss\n.popsection\n"                              \
        ".pushsection .bss.autotile_steps,\"aw\",@nobits\n.balign 16\n" \
        ".hidden autotile_steps_begin\n.globl autotile_steps_begin\nautotile_steps_begin:\n.popsection\n");
#endif
#ifndef __clang__
#define __builtin_assume(condition) ((void)0)
#endif
#define __trap() autotile_trap()
#define __brkpt() autotile_trap()
#define assert(condition) ((condition) ? (void)0 : autotile_trap())
// Standard output belongs to autotile's own data.
#define printf(...) 0

// ---------------------------------------------------------------------------------------------------------- indices

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};

struct AutotileKernelIndices {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
    unsigned cluster_blocks;
};
static_assert(sizeof(AutotileKernelIndices) == sizeof(AutotileBuiltins), "the runtime writes what the kernel reads");

// const, although the runtime writes them: they never change within a thread, so the compiler may keep them in
// registers across a barrier.
extern "C" const AutotileKernelIndices autotile_builtins;
#define threadIdx autotile_builtins.thread
#define blockIdx autotile_builtins.block
#define blockDim autotile_builtins.block_dim
#define gridDim autotile_builtins.grid_dim
enum { warpSize = 32 };

// --------------------------------------------------------------------------------------------------- synchronisation

// The counter tells two barriers on one line apart.
#define __syncthreads() ((void)autotile_barrier(kBarrier, 0, __LINE__, __COUNTER__))
#define __syncthreads_count(p) autotile_barrier(kBarrierCount, (p) != 0, __LINE__, __COUNTER__)
#define __syncthreads_and(p) autotile_barrier(kBarrierAnd, (p) != 0, __LINE__, __COUNTER__)
#define __syncthreads_or(p) autotile_barrier(kBarrierOr, (p) != 0, __LINE__, __COUNTER__)

static AUTOTILE_INLINE void __syncwarp(unsigned mask = 0xffffffffu) { autotile_warp(mask, kSyncWarp, 0, 0); }
static AUTOTILE_INLINE void __threadfence() { autotile_fence(); }
static AUTOTILE_INLINE void __threadfence_system() { autotile_fence(); }
static AUTOTILE_INLINE void __threadfence_block() { asm volatile("" ::: "memory"); }
static AUTOTILE_INLINE void __nanosleep(unsigned) {}
static AUTOTILE_INLINE unsigned __activemask() { return autotile_active_lanes(); }
static AUTOTILE_INLINE unsigned __ballot_sync(unsigned mask, int p) {
    return (unsigned)autotile_warp(mask, kBallot, p != 0, 0);
}
static AUTOTILE_INLINE int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
static AUTOTILE_INLINE int __all_sync(unsigned mask, int p) { return __ballot_sync(mask, !p) == 0; }

static AUTOTILE_INLINE int autotile_lane() {
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % warpSize);
}

template <class T>
AUTOTILE_INLINE T autotile_shuffle(unsigned mask, T value, int source) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    bits = autotile_warp(mask, kShuffle, bits, (unsigned)source);
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}
template <class T>
AUTOTILE_INLINE T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
    return autotile_shuffle(mask, value, (autotile_lane() & ~(width - 1)) | (source & (width - 1)));
}
template <class T>
AUTOTILE_INLINE T __shfl_xor_sync(unsigned mask, T value, int distance, int width = warpSize) {
    int lane = autotile_lane(), source = lane ^ distance;
    return autotile_shuffle(mask, value, (source & ~(width - 1)) > (lane & ~(width - 1)) ? lane : source);
}
template <class T>
AUTOTILE_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = warpSize) {
    int lane = autotile_lane(), source = lane + (int)distance;
    return autotile_shuffle(mask, value, (lane & (width - 1)) + (int)distance >= width ? lane : source);
}
template <class T>
AUTOTILE_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = warpSize) {
    int lane = autotile_lane(), source = lane - (int)distance;
    return autotile_shuffle(mask, value, source < (lane & ~(width - 1)) ? lane : source);
}
template <class T>
AUTOTILE_INLINE unsigned __match_any_sync(unsigned mask, T value) {
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return (unsigned)autotile_warp(mask, kMatchAny, bits, 0);
}
static AUTOTILE_INLINE unsigned autotile_reduce(unsigned mask, unsigned value, unsigned op) {
    return (unsigned)autotile_warp(mask, op, value, 0);
}
static AUTOTILE_INLINE unsigned __reduce_add_sync(unsigned m, unsigned v) { return autotile_reduce(m, v, kReduceAdd); }
static AUTOTILE_INLINE int __reduce_add_sync(unsigned m, int v) {
    return (int)autotile_reduce(m, (unsigned)v, kReduceAdd);
}
static AUTOTILE_INLINE unsigned __reduce_min_sync(unsigned m, unsigned v) {
    return autotile_reduce(m, v, kReduceMinUnsigned);
}
static AUTOTILE_INLINE int __reduce_min_sync(unsigned m, int v) {
    return (int)autotile_reduce(m, (unsigned)v, kReduceMinSigned);
}
static AUTOTILE_INLINE unsigned __reduce_max_sync(unsigned m, unsigned v) {
    return autotile_reduce(m, v, kReduceMaxUnsigned);
}
static AUTOTILE_INLINE int __reduce_max_sync(unsigned m, int v) {
    return (int)autotile_reduce(m, (unsigned)v, kReduceMaxSigned);
}
static AUTOTILE_INLINE unsigned __reduce_and_sync(unsigned m, unsigned v) { return autotile_reduce(m, v, kReduceAnd); }
static AUTOTILE_INLINE unsigned __reduce_or_sync(unsigned m, unsigned v) { return autotile_reduce(m, v, kReduceOr); }
static AUTOTILE_INLINE unsigned __reduce_xor_sync(unsigned m, unsigned v) { return autotile_reduce(m, v, kReduceXor); }

// ------------------------------------------------------------------------------------------------------- addresses

// Of shared memory: the distance from where a block's own begins, which lies on a bound of 1024 bytes.
static AUTOTILE_INLINE size_t __cvta_generic_to_shared(const void* p) { return autotile_shared_address(p); }
static AUTOTILE_INLINE void* __cvta_shared_to_generic(size_t p) { return autotile_from_shared_address((uint32_t)p); }
static AUTOTILE_INLINE size_t __cvta_generic_to_global(const void* p) { return (size_t)p; }
static AUTOTILE_INLINE void* __cvta_global_to_generic(size_t p) { return (void*)p; }

// ------------------------------------------------------------------------------------------ loads and stores with
// hints

template <class T>
struct AutotileSame {
    typedef T type;
};

#define AUTOTILE_LOAD(name)              \
    template <class T>                   \
    AUTOTILE_INLINE T name(const T* p) { \
        return *p;                       \
    }
#define AUTOTILE_STORE(name)                                                       \
    template <class T>                                                             \
    AUTOTILE_INLINE void name(T* p, const typename AutotileSame<T>::type& value) { \
        *p = value;                                                                \
    }
AUTOTILE_LOAD(__ldg)
AUTOTILE_LOAD(__ldcs)
AUTOTILE_LOAD(__ldcg)
AUTOTILE_LOAD(__ldca)
AUTOTILE_LOAD(__ldlu)
AUTOTILE_LOAD(__ldcv)
AUTOTILE_STORE(__stcs)
AUTOTILE_STORE(__stcg)
AUTOTILE_STORE(__stwb)
AUTOTILE_STORE(__stwt)

// ------------------------------------------------------------------------------------------------------------ atomics

// Fibers are not interrupted, so a load and a store are atomic; the runtime only has to know that they are meant to be.
template <class T, class F>
AUTOTILE_INLINE T autotile_atomic(T* p, F next) {
    uint64_t bits = autotile_atomic_load(p, sizeof(T));
    T old, value;
    __builtin_memcpy((void*)&old, &bits, sizeof(T));
    value = next(old);
    bits = 0;
    __builtin_memcpy(&bits, (const void*)&value, sizeof(T));
    autotile_atomic_store(p, sizeof(T), bits);
    return old;
}
#define AUTOTILE_ATOMIC(name, expression)                                        \
    template <class T>                                                           \
    AUTOTILE_INLINE T name(T* p, typename AutotileSame<T>::type value) {         \
        return autotile_atomic(p, [&](T old) { return (T)(expression); });       \
    }                                                                            \
    template <class T>                                                           \
    AUTOTILE_INLINE T name##_block(T* p, typename AutotileSame<T>::type value) { \
        return name(p, value);                                                   \
    }
AUTOTILE_ATOMIC(atomicAdd, old + value)
AUTOTILE_ATOMIC(atomicSub, old - value)
AUTOTILE_ATOMIC(atomicMin, value < old ? value : old)
AUTOTILE_ATOMIC(atomicMax, value > old ? value : old)
AUTOTILE_ATOMIC(atomicAnd, old& value)
AUTOTILE_ATOMIC(atomicOr, old | value)
AUTOTILE_ATOMIC(atomicXor, old ^ value)
AUTOTILE_ATOMIC(atomicExch, ((void)old, value))
AUTOTILE_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
AUTOTILE_ATOMIC(atomicDec, (old == 0 || old > value) ? value : old - 1)
template <class T>
AUTOTILE_INLINE T atomicCAS(T* p, typename AutotileSame<T>::type expected, typename AutotileSame<T>::type value) {
    return autotile_atomic(p, [&](T old) { return old == expected ? value : old; });
}

#include "cuda_math.h"

// --------------------------------------------------------------------------------------------------- calling the
// kernel

template <size_t... I>
struct AutotileIndices {};
template <size_t N, size_t... I>
struct AutotileMakeIndices : AutotileMakeIndices<N - 1, N - 1, I...> {};
template <size_t... I>
struct AutotileMakeIndices<0, I...> {
    typedef AutotileIndices<I...> type;
};

template <class T>
struct AutotileDescribe {
    static constexpr uint32_t kind = kOpaque;
};
template <class T>
struct AutotileDescribe<T*> {
    static constexpr uint32_t kind = kPointer;
};
#define AUTOTILE_DESCRIBE(T, what)             \
    template <>                                \
    struct AutotileDescribe<T> {               \
        static constexpr uint32_t kind = what; \
    };
AUTOTILE_DESCRIBE(bool, kUnsigned)
AUTOTILE_DESCRIBE(char, kSigned)
AUTOTILE_DESCRIBE(signed char, kSigned)
AUTOTILE_DESCRIBE(short, kSigned)
AUTOTILE_DESCRIBE(int, kSigned)
AUTOTILE_DESCRIBE(long, kSigned)
AUTOTILE_DESCRIBE(long long, kSigned)
AUTOTILE_DESCRIBE(unsigned char, kUnsigned)
AUTOTILE_DESCRIBE(unsigned short, kUnsigned)
AUTOTILE_DESCRIBE(unsigned, kUnsigned)
AUTOTILE_DESCRIBE(unsigned long, kUnsigned)
AUTOTILE_DESCRIBE(unsigned long long, kUnsigned)
AUTOTILE_DESCRIBE(float, kFloating)
AUTOTILE_DESCRIBE(double, kFloating)

template <class T>
struct AutotileBare {
    typedef T type;
};
template <class T>
struct AutotileBare<const T> {
    typedef T type;
};
template <class T>
struct AutotileBare<T&> {
    typedef typename AutotileBare<T>::type type;
};

template <class... A>
struct AutotileKernel {
    static constexpr uint32_t count = sizeof...(A);
    // One more, since an array of none is no C++.
    static constexpr AutotileParameter parameters[count + 1] = {
        {AutotileDescribe<typename AutotileBare<A>::type>::kind, (uint32_t)sizeof(A)}..., {0, 0}};

    template <size_t... I>
    __attribute__((no_sanitize("thread"))) static void call(void (*kernel)(A...), void** arguments,
                                                            AutotileIndices<I...>) {
        kernel(*(typename AutotileBare<A>::type*)arguments[I]...);
        (void)arguments;
    }
    __attribute__((no_sanitize("thread"))) static void call(void (*kernel)(A...), void** arguments) {
        call(kernel, arguments, typename AutotileMakeIndices<sizeof...(A)>::type());
    }
};
template <class... A>
AutotileKernel<A...> autotile_kernel_type(void (*)(A...));

template <class A, class B>
struct AutotileEqual {
    static constexpr uint32_t value = 0;
};
template <class A>
struct AutotileEqual<A, A> {
    static constexpr uint32_t value = 1;
};

#ifdef __SANITIZE_THREAD__
#define AUTOTILE_INSTRUMENTED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define AUTOTILE_INSTRUMENTED 1
#endif
#endif
#ifndef AUTOTILE_INSTRUMENTED
#define AUTOTILE_INSTRUMENTED 0
#endif

// The last lines of every translation unit: AUTOTILE_CLUSTER and AUTOTILE_CALL for each function, and AUTOTILE_EMULATE
// with the entry of each.
#define AUTOTILE_CLUSTER(name, ...) static constexpr uint32_t autotile_cluster_##name[3] = {__VA_ARGS__};
#define AUTOTILE_CALL(name)                                                                     \
    __attribute__((no_sanitize("thread"))) static void autotile_call_##name(void** arguments) { \
        decltype(autotile_kernel_type(&name))::call(&name, arguments);                          \
    }
#define AUTOTILE_ENTRY(name)                                \
    {#name, &autotile_call_##name, autotile_cluster_##name, \
     AutotileEqual<AutotileMain, decltype(autotile_kernel_type(&name))>::value}
#define AUTOTILE_EMULATE(name, ...)                                                                           \
    typedef decltype(autotile_kernel_type(&name)) AutotileMain;                                               \
    extern "C" {                                                                                              \
    AUTOTILE_EXPORT extern const uint32_t autotile_instrumented = AUTOTILE_INSTRUMENTED;                      \
    AUTOTILE_EXPORT extern const uint32_t autotile_parameter_count = AutotileMain::count;                     \
    AUTOTILE_EXPORT const AutotileParameter* autotile_parameters() { return AutotileMain::parameters; }       \
    AUTOTILE_EXPORT extern const AutotileEntryPoint autotile_entries[] = {__VA_ARGS__, AutotileEntryPoint{}}; \
    }
