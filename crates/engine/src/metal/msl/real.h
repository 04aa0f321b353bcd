// Tools of the elementary functions of float: constants in parts, and bit manipulation.
//
// The functions are those of the CPU backend (cpu/math): the same reductions and polynomials, in nothing but operations
// that IEEE 754 rounds exactly (+, -, *, /, sqrt, fma). So for normal operands and results their error is the CPU's and
// well below what MSL allows its own, and a program has the bits of its steps. A GPU flushes subnormal floats to zero,
// as operands and as results: there results differ from the CPU's, even if only an intermediate result is subnormal.
// Whether a result at the edge is flushed before or after it is rounded depends on the chip.

#include "arithmetic.h"

// A number as a sum of two floats, the second much smaller than the first.
struct Pair {
    float high;
    float low;
};

inline Pair pair_of(float high, float low) {
    Pair pair;
    pair.high = high;
    pair.low = low;
    return pair;
}

// The larger one, or `x` where it is NaN.
inline float at_least(float x, float low) { return low > x ? low : x; }

// The smaller one, or `x` where it is NaN.
inline float at_most(float x, float high) { return high < x ? high : x; }

// The product and its rounding error.
inline Pair exact_product(float a, float b) {
    const float product = a * b;
    return pair_of(product, fma(a, b, -product));
}

// The sum and its rounding error.
inline Pair exact_sum(float a, float b) {
    const float sum = a + b;
    const float part = sum - a;
    return pair_of(sum, (a - (sum - part)) + (b - part));
}

// 2 to an integer from -127 (which gives 0) to 127.
inline float power_of_two(float n) { return as_type<float>(uint(int(n) + 127) << 23); }

// For a positive normal number, (k, m) with x = 2^k m and sqrt(1/2) <= m < sqrt(2). Of zero, which subnormal numbers
// are, k is below every exponent.
inline Pair decompose(float x) {
    const uint root = 0x3f3504f3;
    const bool tiny = x < 0x1p-126f;
    const uint bits = as_type<uint>(tiny ? x * 0x1p23f : x) + (0x3f800000 - root);
    const int exponent = int(bits >> 23) - (tiny ? 127 + 23 : 127);
    return pair_of(float(exponent), as_type<float>((bits & 0x7fffff) + root));
}

// The number without the lower half of its significand: its square is exact.
inline float upper_half(float x) { return as_type<float>(as_type<uint>(x) & 0xfffff000); }

// ln 2 in two parts: the first times any exponent is exact.
#define LN_2_HIGH 0.69314575f
#define LN_2_LOW 1.4286068e-6f
// pi in two parts.
#define PI_HIGH 3.14159265f
#define PI_LOW -8.742278e-8f
