#include "exp.h"

// The error function and the Gaussian error linear unit, which MSL does not have.
//
// Near 0, a polynomial. Elsewhere erfc x = e^(-x^2) g(t) / (x + K) with t = (x - K) / (x + K): g is smooth up to
// infinity, so that one polynomial suffices, and the tail keeps its relative accuracy. The square enters the
// exponential with its rounding error. Errors: erf 1.5 ulp, gelu 4.0.

// erf x / x - 1 of x^2 for |x| <= 1.
inline float erf_terms(float square) {
    float p = -9.667045e-6f;
    p = fma(square, p, 0.00011265959f);
    p = fma(square, p, -0.00084840803f);
    p = fma(square, p, 0.0052210316f);
    p = fma(square, p, -0.02686543f);
    p = fma(square, p, 0.11283782f);
    p = fma(square, p, -0.37612638f);
    return fma(square, p, 0.12837917f);
}

inline float unary_erf(float x) {
    const float a = at_most(fabs(x), 4.0f);
    const Pair square = exact_product(a, a);
    const float near = fma(a, erf_terms(square.high), a);
    const float inverse = 1.0f / (a + 2.5f);
    const float t = (a - 2.5f) * inverse;
    float g = -0.0042331037f;
    g = fma(t, g, 0.008481813f);
    g = fma(t, g, 0.02833813f);
    g = fma(t, g, -0.17125738f);
    g = fma(t, g, 0.4539133f);
    g = fma(t, g, -0.8046518f);
    g = fma(t, g, 1.0540318f) * inverse;
    const Pair e = exp_parts(-square.high, -square.low, -0.0f);
    const float far = 1.0f - (e.high * g) * e.low;
    return copysign(a < 1.0f ? near : far, x);
}

// x P(x), P the normal distribution: x - w above 0 and -w below, w = |x| P(-|x|).
inline float unary_gelu(float x) {
    const float a = at_most(fabs(x), 15.0f);
    const Pair whole = exact_product(a, a);
    const float square = whole.high * 0.5f, low = whole.low * 0.5f;
    const float t = (a - 3.5f) / (a + 3.5f);
    float g = 0.0002116851f;
    g = fma(t, g, 6.55626e-7f);
    g = fma(t, g, -0.0017869943f);
    g = fma(t, g, 0.001654049f);
    g = fma(t, g, 0.011935377f);
    g = fma(t, g, -0.049324356f);
    g = fma(t, g, 0.09968763f);
    g = fma(t, g, -0.12506813f);
    g = fma(t, g, 0.08942711f);
    g = fma(t, g, 0.37220803f);
    const Pair e = exp_parts(-square, -low, -0.0f);
    const float far = (e.high * g) * e.low;
    const float z = a * M_SQRT1_2_F;
    const float erf = fma(z, erf_terms(square), z);
    const float near = a * (0.5f - 0.5f * erf);
    const float w = z < 0.5f ? near : far;
    return x < 0.0f ? -w : x - w;
}
