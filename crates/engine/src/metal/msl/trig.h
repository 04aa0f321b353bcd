#include "real.h"

// Sine, cosine and tangent. x = n pi/2 + r, |r| <= pi/4, and one polynomial each for sin r and cos r. Up to 2^15 the
// reduction takes pi/2 in three parts (Cody-Waite); beyond, the product of x with 2/pi is computed in integers
// (Payne-Hanek), to as many digits as x requires. Errors: sin and cos 1.5 ulp, tan 3.0.

// The quadrant n (its last two bits count), and r in two parts.
struct Quadrant {
    uint n;
    float r;
    float low;
};

// 2/pi: bits 0 to 223 after the point.
constant uint TWO_OVER_PI[8] = {0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0,
                                0xdb629599, 0x3c439041, 0xfe5163ab, 0};

// 32 bits of 2/pi: those of a word, counted from a bit on.
inline uint word_at(uint bit, uint word) {
    const uint index = bit / 32 + word, shift = bit % 32;
    const uint high = TWO_OVER_PI[index];
    return shift == 0 ? high : high << shift | TWO_OVER_PI[index + 1] >> (32 - shift);
}

// a = S 2^(e - 23) with S of 24 bits. Bits of 2/pi whose product with S is a multiple of four quadrants are
// skipped, and 96 of the others taken: S times those, in quadrants, has 62 bits after the point once its last
// ones are dropped.
inline Quadrant reduce_far(float a) {
    const uint bits = as_type<uint>(a);
    const uint exponent = (bits >> 23) - 127;
    const ulong significand = (bits & 0x7fffff) | 0x800000;
    const uint skip = exponent > 25 ? exponent - 25 : 0;
    const uint drop = exponent < 25 ? 25 - exponent : 0;
    const ulong last = significand * word_at(skip, 2);
    const ulong middle = significand * word_at(skip, 1) + (last >> 32);
    const ulong first = significand * word_at(skip, 0) + (middle >> 32);
    const ulong quadrants = first << (32 - drop) | (middle & 0xffffffff) >> drop;
    const ulong n = (quadrants + (1ul << 61)) >> 62;
    const long rest = long(quadrants - (n << 62));
    const float f = float(rest);
    const float f_low = float(rest - long(f));
    // Times pi/2 2^-62, which is in two parts.
    const Pair r = exact_product(f, 0x1.921fb6p-62f);
    const float low = r.low + fma(f_low, 0x1.921fb6p-62f, f * -0x1.777a5cp-87f);
    Quadrant found;
    found.n = uint(n);
    found.r = r.high + low;
    found.low = (r.high - found.r) + low;
    return found;
}

// For a number not negative.
inline Quadrant quadrant(float a) {
    if (a > 32768.0f && a < INFINITY) {
        return reduce_far(a);
    }
    const float n = rint(a * 0.636619747f);
    // The first difference is exact, and the sum keeps its error: near a multiple of pi/2 it is all there is.
    const float first = fma(-n, 1.57079637f, a);
    const Pair product = exact_product(n, 4.37113883e-8f);
    const Pair sum = exact_sum(first, product.high);
    const float low = fma(n, 1.71512451e-15f, sum.low + product.low);
    Quadrant found;
    found.n = a < INFINITY ? uint(n) : 0;
    found.r = a < INFINITY ? sum.high + low : NAN;
    found.low = (sum.high - found.r) + low;
    return found;
}

inline float sin_reduced(Quadrant q) {
    const float z = q.r * q.r;
    float p = 2.7249314e-6f;
    p = fma(z, p, -0.00019840083f);
    p = fma(z, p, 0.008333332f);
    p = fma(z, p, -0.16666667f);
    return q.r + fma(q.r * z, p, q.low * (1.0f - z * 0.5f));
}

inline float cos_reduced(Quadrant q) {
    const float z = q.r * q.r;
    float p = 2.4547437e-5f;
    p = fma(z, p, -0.00138883f);
    p = fma(z, p, 0.041666664f);
    const float halved = z * 0.5f;
    const float head = 1.0f - halved;
    const float rest = fma(z * z, p, -(q.r * q.low));
    return head + (((1.0f - head) - halved) + rest);
}

// The number, negated where bit 1 of n is set.
inline float negate_by(float x, uint n) { return as_type<float>(as_type<uint>(x) ^ (n & 2) << 30); }

#ifdef FAST_MATH
inline float unary_sin(float x) { return fast::sin(x); }
inline float unary_cos(float x) { return fast::cos(x); }
inline float unary_tan(float x) { return fast::tan(x); }
#else
inline float unary_sin(float x) {
    const Quadrant q = quadrant(fabs(x));
    const float result = negate_by(q.n & 1 ? cos_reduced(q) : sin_reduced(q), q.n);
    // The sign of x goes on top of the quadrant's; -0 stays -0.
    return result * copysign(1.0f, x);
}
inline float unary_cos(float x) {
    const Quadrant q = quadrant(fabs(x));
    return negate_by(q.n & 1 ? sin_reduced(q) : cos_reduced(q), q.n + 1);
}
inline float unary_tan(float x) {
    const Quadrant q = quadrant(fabs(x));
    const float sine = sin_reduced(q), cosine = cos_reduced(q);
    const float result = q.n & 1 ? -cosine / sine : sine / cosine;
    return result * copysign(1.0f, x);
}
#endif
