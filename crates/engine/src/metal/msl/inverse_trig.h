#include "real.h"

// Inverse sine, cosine and tangent. Arc tangents are reduced to |t| <= tan pi/8 by one division, arc sines to
// |x| <= 1/2 by the half angle. Errors: asin and acos 2.5 ulp, atan 2.0, atan2 2.5.

// The arc tangent of a number not negative.
inline float atan_positive(float a) {
    // tan pi/8 and tan 3 pi/8.
    const bool middle = a > 0.41421357f;
    const bool large = a > 2.4142135f;
    const float top = large ? -1.0f : middle ? a - 1.0f : a;
    const float bottom = large ? a : middle ? a + 1.0f : 1.0f;
    const float base = large ? PI_HIGH * 0.5f : middle ? PI_HIGH * 0.25f : 0.0f;
    const float base_low = large ? PI_LOW * 0.5f : middle ? PI_LOW * 0.25f : 0.0f;
    const float t = top / bottom;
    const float z = t * t;
    float p = -0.06449835f;
    p = fma(z, p, 0.107430995f);
    p = fma(z, p, -0.14263897f);
    p = fma(z, p, 0.19999538f);
    p = fma(z, p, -0.3333333f);
    return base + (t + fma(t * z, p, base_low));
}

inline float binary_atan2(float y, float x) {
    const float a = fabs(y), b = fabs(x);
    const bool steep = a > b;
    const float low = steep ? b : a, high = steep ? a : b;
    // Two infinities count as equal numbers, two zeros as a vanishing ratio.
    float ratio = low == high ? 1.0f : low / high;
    ratio = high == 0.0f ? 0.0f : ratio;
    const float base_angle = atan_positive(ratio);
    const bool left = as_type<int>(x) < 0;
    const float base = steep ? PI_HIGH * 0.5f : left ? PI_HIGH : 0.0f;
    const float base_low = steep ? PI_LOW * 0.5f : left ? PI_LOW : 0.0f;
    const float angle = base + ((steep == left ? base_angle : -base_angle) + base_low);
    return isnan(x) || isnan(y) ? x + y : copysign(angle, y);
}

// The arc sine of a, or half the arc cosine of a where it is large.
inline float half_angle(float a) {
    const bool large = a > 0.5f;
    const float z = large ? (1.0f - a) * 0.5f : a * a;
    const float s = large ? precise::sqrt(z) : a;
    float p = 0.033690847f;
    p = fma(z, p, 0.017149238f);
    p = fma(z, p, 0.031100662f);
    p = fma(z, p, 0.044599403f);
    p = fma(z, p, 0.07500094f);
    p = fma(z, p, 0.16666666f);
    return fma(s * z, p, s);
}

#ifdef FAST_MATH
inline float unary_asin(float x) { return fast::asin(x); }
inline float unary_acos(float x) { return fast::acos(x); }
inline float unary_atan(float x) { return fast::atan(x); }
#else
inline float unary_asin(float x) {
    const float a = fabs(x), p = half_angle(a);
    return copysign(a > 0.5f ? PI_HIGH * 0.5f - (p + p - PI_LOW * 0.5f) : p, x);
}
inline float unary_acos(float x) {
    const float a = fabs(x), p = half_angle(a);
    const float twice = p + p;
    const float far = x < 0.0f ? PI_HIGH - (twice - PI_LOW) : twice;
    const float near = PI_HIGH * 0.5f - (copysign(p, x) - PI_LOW * 0.5f);
    return a > 0.5f ? far : near;
}
inline float unary_atan(float x) { return copysign(atan_positive(fabs(x)), x); }
#endif
