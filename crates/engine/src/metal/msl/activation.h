#include "exp.h"
#include "log.h"

// The activations of neural networks.
//
// All take the exponential of a number that is not positive, so that nothing overflows, and multiply before the
// last step of its scaling, so that a normal result is right where the exponential alone would be flushed to zero.
// Results that would be subnormal are zero. silu, gelu_tanh and mish of -infinity are their limit, -0. Errors:
// sigmoid 2.0 ulp, elu 2.0, softplus, log_sigmoid and silu 3.0, gelu_tanh and mish 4.0.

inline float unary_sigmoid(float x) {
#ifdef FAST_MATH
    return 1.0f / (1.0f + fast::exp(-x));
#else
    const float e = exp_precise(-fabs(x));
    const bool negative = x < 0.0f;
    const float bottom = 1.0f + e;
    const float lost = (1.0f - bottom) + e;
    const float q = (negative ? e : 1.0f) / bottom;
    // The reciprocal of `bottom`, without another division, corrects its rounding error.
    const float inverse = negative ? 1.0f - q : q;
    return fma(-q, lost * inverse, q);
#endif
}

// x sigmoid(v) for a v of the sign of x, given |v| in two parts.
inline float gate(float x, Pair v) {
    const Pair e = exp_parts(-v.high, -v.low, -0.0f);
    const float below = (at_least(x, -1000.0f) * e.high) * e.low;
    return (x < 0.0f ? below : x) / (e.high * e.low + 1.0f);
}

inline float unary_silu(float x) { return gate(x, pair_of(fabs(x), 0.0f)); }

// 2 sqrt(2/pi) (x + 0.044715 x^3) in two parts: in the tail its absolute error becomes a relative one.
inline float unary_gelu_tanh(float x) {
    const float a = at_most(fabs(x), 30.0f);
    const Pair square = exact_product(a, a);
    const Pair cubic = exact_product(square.high, 0.0713548139f);
    const float cubic_low = cubic.low + (square.low * 0.0713548139f + square.high * 2.39883247e-9f);
    const Pair sum = exact_sum(cubic.high, 1.59576917f);
    const float sum_low = sum.low + (cubic_low + -4.53406805e-8f);
    const Pair product = exact_product(a, sum.high);
    return gate(x, pair_of(product.high, product.low + a * sum_low));
}

inline float unary_softplus(float x) { return at_least(x, 0.0f) + log1p_precise(exp_precise(-fabs(x))); }

inline float unary_log_sigmoid(float x) { return -unary_softplus(-x); }

// x tanh(softplus x) is x n / (n + 2) with n = e^x (e^x + 2).
inline float unary_mish(float x) {
    // At 40 the factor is 1, and n exists.
    const Pair parts = exp_parts(at_most(x, 40.0f), -0.0f, -0.0f);
    const float e = parts.high * parts.low;
    const float n = e * (e + 2.0f);
    const float below = ((at_least(x, -1000.0f) * parts.high) * (e + 2.0f)) * parts.low;
    const bool negative = x < 0.0f;
    const float quotient = (negative ? below : n) / (n + 2.0f);
    return negative ? quotient : x * quotient;
}

inline float unary_elu(float x, float alpha) {
    const float below = alpha * expm1_precise(x);
    return x > 0.0f ? x : below;
}
