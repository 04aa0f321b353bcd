#include "exp.h"
#include "log.h"

// Hyperbolic functions and their inverses. Near 0, where exponentials would cancel, odd polynomials; elsewhere
// the exponential, and the logarithm of 1 + x for the inverses. Errors: sinh and cosh 2.0 ulp, tanh 1.5, the
// inverses 3.5.

// Half of e^a, which exists where e^a itself is too large.
inline float half_exp(float a) {
    const Pair parts = exp_parts(a, -0.0f, -1.0f);
    return parts.high * parts.low;
}

inline float sinh_precise(float x) {
    const float a = fabs(x), z = a * a;
    float p = 2.8062802e-6f;
    p = fma(z, p, 0.00019838102f);
    p = fma(z, p, 0.008333339f);
    p = fma(z, p, 0.16666667f);
    const float near = fma(a * z, p, a);
    const float e = half_exp(a);
    return copysign(a < 1.0f ? near : e - 0.25f / e, x);
}

inline float cosh_precise(float x) {
    const float e = half_exp(fabs(x));
    return e + 0.25f / e;
}

inline float tanh_precise(float x) {
    const float a = fabs(x), z = a * a;
    float p = 0.0022927448f;
    p = fma(z, p, -0.008343945f);
    p = fma(z, p, 0.021768918f);
    p = fma(z, p, -0.053959258f);
    p = fma(z, p, 0.13333304f);
    p = fma(z, p, -0.33333334f);
    const float near = fma(a * z, p, a);
    const float far = 1.0f - 2.0f / (exp_precise(a + a) + 1.0f);
    return copysign(a < 0.625f ? near : far, x);
}

// log(1 + small), or log(2 a) where a is so large that its square may overflow.
inline float log_sum(float a, float small) {
    const bool large = a > 0x1p60f;
    return log1p_precise(large ? a : small) + (large ? M_LN2_F : 0.0f);
}

inline float asinh_precise(float x) {
    const float a = fabs(x), z = a * a;
    return copysign(log_sum(a, a + z / (precise::sqrt(z + 1.0f) + 1.0f)), x);
}

inline float acosh_precise(float x) {
    const float t = x - 1.0f;
    const float result = log_sum(x, t + precise::sqrt(fma(t, t, t + t)));
    return x < 1.0f ? NAN : result;
}

inline float atanh_precise(float x) {
    const float a = fabs(x);
    return copysign(log1p_precise((a + a) / (1.0f - a)) * 0.5f, x);
}

#ifdef FAST_MATH
inline float unary_sinh(float x) { return fast::sinh(x); }
inline float unary_cosh(float x) { return fast::cosh(x); }
inline float unary_tanh(float x) { return fast::tanh(x); }
#else
inline float unary_sinh(float x) { return sinh_precise(x); }
inline float unary_cosh(float x) { return cosh_precise(x); }
inline float unary_tanh(float x) { return tanh_precise(x); }
#endif
inline float unary_asinh(float x) { return asinh_precise(x); }
inline float unary_acosh(float x) { return acosh_precise(x); }
inline float unary_atanh(float x) { return atanh_precise(x); }
