// Matrices that the lanes of a warp hold together: ldmatrix and mma, by the layouts of the PTX manual ("Matrix fragments
// for mma"). Called by the scheduler when all lanes have come.
#pragma once
#include "small_floats.h"
#include "state.h"

static constexpr uint32_t kAllLanes = 0xffffffffu;
static constexpr unsigned kMatrixRows = 8, kMatrixColumns = 8, kMatrixRowBytes = 16;
// What is not in shared memory has this address there, beyond every array's end.
static constexpr uint32_t kNoSharedAddress = 0xfffff000u;

// What a lane brings to ldmatrix: the row that it names, and where its registers lie.
struct MatrixRow {
    char* begin;
    uint32_t* registers;
};

static bool of_matrices(uint32_t first, uint32_t members) {
    for (uint32_t l = 0; l < kWarpLanes; l++)
        if ((members >> l & 1) && fibers[first + l].op >= kGatherForMatrices) return true;
    return false;
}

// Lane l takes of each matrix the l % 4-th pair of row l / 4, or, `transposed`, of column l / 4.
static void load_matrices(const Fiber* lanes, uint32_t count, bool transposed) {
    for (uint32_t matrix = 0; matrix < count; matrix++) {
        const uint16_t* rows[kMatrixRows];
        for (uint32_t i = 0; i < kMatrixRows; i++)
            rows[i] = (const uint16_t*)((const MatrixRow*)lanes[kMatrixRows * matrix + i].value)->begin;
        for (uint32_t l = 0; l < kWarpLanes; l++) {
            uint32_t line = l / 4, pair = l % 4 * 2;
            uint32_t low = transposed ? rows[pair][line] : rows[line][pair];
            uint32_t high = transposed ? rows[pair + 1][line] : rows[line][pair + 1];
            ((const MatrixRow*)lanes[l].value)->registers[matrix] = high << 16 | low;
        }
    }
}

// How an element of A or B is stored, and what it is summed up in.
struct Half {
    typedef uint16_t Stored;
    typedef float Sum;
    static float value(Stored bits) { return autotile_float_from_half(bits); }
};
struct Bfloat16 {
    typedef uint16_t Stored;
    typedef float Sum;
    static float value(Stored stored) {
        uint32_t bits = (uint32_t)stored << 16;
        float result;
        __builtin_memcpy(&result, &bits, 4);
        return result;
    }
};
struct Tf32 {
    typedef uint32_t Stored;
    typedef float Sum;
    static float value(Stored bits) {
        bits &= 0xffffe000u;  // the hardware does not look at the rest
        float result;
        __builtin_memcpy(&result, &bits, 4);
        return result;
    }
};
struct Int8 {
    typedef int8_t Stored;
    typedef uint32_t Sum;  // which wraps
    static uint32_t value(Stored stored) { return (uint32_t)(int32_t)stored; }
};
struct E4m3 {
    typedef uint8_t Stored;
    typedef float Sum;
    static float value(Stored bits) { return autotile_float_from_e4m3(bits); }
};
struct E5m2 {
    typedef uint8_t Stored;
    typedef float Sum;
    static float value(Stored bits) { return autotile_float_from_e5m2(bits); }
};
struct Double {
    typedef double Stored;
    typedef double Sum;
    static double value(Stored stored) { return stored; }
};

// A row of B, and of sums.
template <class Sum>
struct Columns {
    typedef Sum Row __attribute__((vector_size(kMatrixColumns * sizeof(Sum))));

    static void add(Row& sums, Sum a, const Row& b) { sums += a * b; }
};
template <>
void Columns<double>::add(Row& sums, double a, const Row& b) {
    for (unsigned i = 0; i < kMatrixColumns; i++) sums[i] = __builtin_fma(a, b[i], sums[i]);
}

// A lane's registers are those of A, of B and of C, one behind the other. Register r of A holds elements of row l / 4, or
// of the one 8 below where r is odd and A has 16; with the four lanes of a row it is a piece of that row. B is the same
// with its columns for rows, of which there are 8. The sums take the place of C, in pairs.
template <class A, class B>
static void multiply_matrices(const Fiber* lanes, unsigned rows, unsigned row_bytes) {
    typedef typename A::Stored Stored;
    typedef typename A::Sum Sum;
    typedef typename Columns<Sum>::Row Row;
    constexpr unsigned kRegisterBytes = sizeof(Stored) < 4 ? 4 : sizeof(Stored);
    constexpr unsigned kEach = kRegisterBytes / sizeof(Stored), kMostDepth = sizeof(Stored) < 8 ? 32 / sizeof(Stored) : 16;
    unsigned depth = row_bytes / sizeof(Stored), halves = rows / 8, pieces = row_bytes / (4 * kRegisterBytes);
    Sum a[16][kMostDepth];
    Row b[kMostDepth], sums[16];
    for (unsigned l = 0; l < kWarpLanes; l++) {
        unsigned row = l / 4, column = l % 4 * 2;
        const char* registers = (const char*)lanes[l].value;
        const Stored* of_a = (const Stored*)registers;
        const typename B::Stored* of_b = (const typename B::Stored*)(registers + halves * pieces * kRegisterBytes);
        const Sum* of_c = (const Sum*)(registers + (halves + 1) * pieces * kRegisterBytes);
        for (unsigned i = 0; i < pieces * kEach; i++) {
            unsigned piece = i / kEach, k = 4 * kEach * piece + l % 4 * kEach + i % kEach;
            for (unsigned half = 0; half < halves; half++)
                a[row + 8 * half][k] = A::value(of_a[(halves * piece + half) * kEach + i % kEach]);
            b[k][row] = B::value(of_b[i]);
        }
        for (unsigned i = 0; i < 2 * halves; i++) sums[row + 8 * (i / 2)][column + i % 2] = of_c[i];
    }
    for (unsigned row = 0; row < rows; row++)
        for (unsigned k = 0; k < depth; k++) Columns<Sum>::add(sums[row], a[row][k], b[k]);
    for (unsigned l = 0; l < kWarpLanes; l++) {
        Sum* of_c = (Sum*)((char*)lanes[l].value + (halves + 1) * pieces * kRegisterBytes);
        for (unsigned i = 0; i < 2 * halves; i++) of_c[i] = sums[l / 4 + 8 * (i / 2)][l % 4 * 2 + i % 2];
    }
}

static void multiply(const Fiber* lanes, uint32_t form) {
    unsigned rows = form >> 8 & 255, row_bytes = form >> 16;
    switch ((AutotileElements)(form & 255)) {
        case AutotileElements::kF16:
            return multiply_matrices<Half, Half>(lanes, rows, row_bytes);
        case AutotileElements::kBf16:
            return multiply_matrices<Bfloat16, Bfloat16>(lanes, rows, row_bytes);
        case AutotileElements::kTf32:
            return multiply_matrices<Tf32, Tf32>(lanes, rows, row_bytes);
        case AutotileElements::kS8:
            return multiply_matrices<Int8, Int8>(lanes, rows, row_bytes);
        case AutotileElements::kE4m3:
            return multiply_matrices<E4m3, E4m3>(lanes, rows, row_bytes);
        case AutotileElements::kE5m2:
            return multiply_matrices<E5m2, E5m2>(lanes, rows, row_bytes);
        case AutotileElements::kE4m3E5m2:
            return multiply_matrices<E4m3, E5m2>(lanes, rows, row_bytes);
        case AutotileElements::kE5m2E4m3:
            return multiply_matrices<E5m2, E4m3>(lanes, rows, row_bytes);
        case AutotileElements::kF64:
            return multiply_matrices<Double, Double>(lanes, rows, row_bytes);
    }
}

// False where not all lanes have come to one and the same instruction: they wait, and are found to be stuck.
static bool work_on_matrices(uint32_t first, uint32_t members) {
    const Fiber* lanes = fibers + first;
    if (members != kAllLanes) return false;
    for (uint32_t l = 1; l < kWarpLanes; l++)
        if (lanes[l].op != lanes[0].op || lanes[l].source_lane != lanes[0].source_lane) return false;
    uint32_t form = lanes[0].source_lane;
    if (lanes[0].op == kLoadMatrices) load_matrices(lanes, form >> 1, form & 1);
    if (lanes[0].op == kMultiplyMatrices) multiply(lanes, form);
    return true;
}
