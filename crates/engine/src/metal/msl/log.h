#include "real.h"

// Logarithms. x = 2^k (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), and log(1 + f) = f - f^2/2 + tail. Bases 2 and
// 10 multiply by a constant in two parts, so that the product is not rounded before the exponent is added.
// Errors: log, log2 and log10 1.0 ulp, log1p 1.5, logit 1.7.

// log(1 + f) - f + f^2/2, given f and f^2/2.
inline float log_tail(float f, float half_square) {
    float p = 0.06971612f;
    p = fma(f, p, -0.11479734f);
    p = fma(f, p, 0.1168542f);
    p = fma(f, p, -0.12425687f);
    p = fma(f, p, 0.14249058f);
    p = fma(f, p, -0.16667803f);
    p = fma(f, p, 0.20000716f);
    p = fma(f, p, -0.24999997f);
    p = fma(f, p, 0.3333333f);
    return (f + f) * half_square * p;
}

// Special values: NaN below 0, -infinity at 0, infinity and NaN unchanged.
inline float log_special(float x, float result) {
    result = x < INFINITY ? result : x;
    result = x == 0.0f ? -INFINITY : result;
    return x < 0.0f ? NAN : result;
}

// k ln 2 + log(1 + f).
inline float log_natural(float k, float f) {
    const float half_square = f * f * 0.5f;
    const float tail = fma(k, LN_2_LOW, log_tail(f, half_square));
    return fma(k, LN_2_HIGH, f - (half_square - tail));
}

// k unit + log(1 + f) factor, both constants in two parts.
inline float log_scaled(float k, float f, Pair unit, Pair factor) {
    const float half_square = f * f * 0.5f;
    const float tail = log_tail(f, half_square);
    const float high = upper_half(f - half_square);
    const float low = ((f - high) - half_square) + tail;
    // Both exact, and |whole| >= |part| or whole = 0.
    const float whole = k * unit.high;
    const float part = high * factor.high;
    const float sum = whole + part;
    const float error = (whole - sum) + part;
    float rest = fma(low, factor.low, k * unit.low + error);
    rest = fma(high, factor.low, rest);
    return sum + fma(low, factor.high, rest);
}

inline float log1p_precise(float x) {
    // The rounding error of 1 + x is added to f, which is x itself where k = 0.
    const Pair sum = exact_sum(x, 1.0f);
    const Pair parts = decompose(sum.high);
    const float unscale = power_of_two(1.0f - parts.high) * 0.5f;
    const float f = fma(sum.low, unscale, parts.low - 1.0f);
    const float result = log_special(sum.high, log_natural(parts.high, f));
    return x == 0.0f ? x : result;
}

#ifdef FAST_MATH
inline float unary_log(float x) { return fast::log(x); }
inline float unary_log2(float x) { return fast::log2(x); }
inline float unary_log10(float x) { return fast::log10(x); }
#else
inline float unary_log(float x) {
    const Pair parts = decompose(x);
    return log_special(x, log_natural(parts.high, parts.low - 1.0f));
}
inline float unary_log2(float x) {
    const Pair parts = decompose(x);
    const Pair unit = pair_of(1.0f, 0.0f), factor = pair_of(1.4423828f, 0.0003122284f);
    return log_special(x, log_scaled(parts.high, parts.low - 1.0f, unit, factor));
}
inline float unary_log10(float x) {
    const Pair parts = decompose(x);
    const Pair unit = pair_of(0.3010254f, 4.605039e-6f), factor = pair_of(0.4342041f, 9.038034e-5f);
    return log_special(x, log_scaled(parts.high, parts.low - 1.0f, unit, factor));
}
#endif
inline float unary_log1p(float x) { return log1p_precise(x); }

// log(x / (1 - x)). Around 1/2 the quotient is about 1, and its logarithm would lose what rounding it took away; there
// it is 2 artanh t = log(1 + 2 t / (1 - t)) with t = 2 x - 1, which is exact.
inline float unary_logit(float x) {
    const float apart = x - 0.5f;
    const float t = fabs(apart + apart);
    const bool near = t <= 0.5f;
    const float ratio = (near ? t + t : x) / (1.0f - (near ? t : x));
    const Pair sum = exact_sum(ratio, 1.0f);
    const float odds = near ? sum.high : ratio;
    const Pair parts = decompose(odds);
    // What the sum lost is 0 where the exponent is not 0, 1 or 2; the power of two must exist all the same.
    const float unscale = power_of_two(at_most(at_least(-parts.high, -2.0f), 0.0f));
    const float f = fma(near ? sum.low : 0.0f, unscale, parts.low - 1.0f);
    const float result = log_special(odds, log_natural(parts.high, f));
    return near ? copysign(result, apart) : result;
}
