#include "real.h"

// Exponentials. x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r, and a scaling by 2^n in two steps, as 2^n alone
// exists neither for the largest results nor for the smallest. Errors: exp and exp2 1.0 ulp, expm1 1.5; results that
// would be subnormal are 0.

// (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2.
inline float exp_terms(float r) {
    float p = 0.0001989118f;
    p = fma(r, p, 0.0013933821f);
    p = fma(r, p, 0.0083333105f);
    p = fma(r, p, 0.041666463f);
    p = fma(r, p, 0.16666667f);
    return fma(r, p, 0.5f);
}

// (n, r) of the reduction.
inline Pair exp_reduce(float x) {
    const float n = rint(x * M_LOG2E_F);
    return pair_of(n, fma(-n, LN_2_LOW, fma(-n, LN_2_HIGH, x)));
}

// Two normal numbers whose product is p 2^n, even if the product is not normal.
inline Pair halve_scale(float p, float n) {
    const float half_n = rint(n * 0.5f);
    return pair_of(p * power_of_two(half_n), power_of_two(n - half_n));
}

// e^(x + low) 2^shift as a product of two numbers, for a `low` much smaller than 1. A caller that multiplies the first
// by a large factor gets normal results right whose exponential alone would be flushed to zero.
inline Pair exp_parts(float x, float low, float shift) {
    const Pair reduced = exp_reduce(at_most(at_least(x, -120.0f), 90.0f));
    const float r = reduced.low + low;
    const float p = fma(r * r, exp_terms(r), r) + 1.0f;
    // NaN has no exponent; the product is NaN by p.
    const float n = isnan(x) ? 0.0f : reduced.high;
    return halve_scale(p, n + shift);
}

inline float exp_precise(float x) {
    const Pair parts = exp_parts(x, -0.0f, -0.0f);
    return parts.high * parts.low;
}

// 2^(x + low), for a `low` much smaller than 1.
inline float exp2_sum(float x, float low) {
    const float within = at_most(at_least(x, -151.0f), 129.0f);
    const float n = rint(within);
    const float r = (within - n) + low;
    float p = 1.5297324e-5f;
    p = fma(r, p, 0.00015461445f);
    p = fma(r, p, 0.0013333502f);
    p = fma(r, p, 0.009618057f);
    p = fma(r, p, 0.05550411f);
    p = fma(r, p, 0.2402265f);
    p = fma(r, p, 0.6931472f);
    const Pair parts = halve_scale(fma(r, p, 1.0f), isnan(x) ? 0.0f : n);
    return parts.high * parts.low;
}

inline float expm1_precise(float x) {
    const Pair reduced = exp_reduce(at_most(at_least(x, -20.0f), 89.0f));
    const float r = reduced.low;
    const float e = fma(r * r, exp_terms(r), r);
    // Half of it, as 2^n itself does not exist for the largest results.
    const float scale = power_of_two(isnan(x) ? 0.0f : reduced.high - 1.0f);
    const float part = fma(scale, e, scale - 0.5f);
    // Keeps -0.
    return fabs(x) < 1e-20f ? x : part + part;
}

#ifdef FAST_MATH
inline float unary_exp(float x) { return fast::exp(x); }
inline float unary_exp2(float x) { return fast::exp2(x); }
#else
inline float unary_exp(float x) { return exp_precise(x); }
inline float unary_exp2(float x) { return exp2_sum(x, -0.0f); }
#endif
inline float unary_expm1(float x) { return expm1_precise(x); }
