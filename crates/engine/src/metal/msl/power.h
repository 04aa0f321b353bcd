#include "exp.h"

// Powers and roots, in pairs of floats where one has too few digits. Errors: pow, cbrt and hypot 1.0 ulp.

// The logarithm of base 2 of a number not negative, in two parts, to about 2^-34.
//
// log2 m = 2/ln 2 s (1 + z/3 + z^2 R(z)), s = (m - 1) / (m + 1), z = s^2, of which all but the last term is
// computed with twice the digits.
inline Pair log2_twice(float x) {
    const Pair parts = decompose(x);
    const float m = parts.low;
    const Pair bottom = exact_sum(m, 1.0f);
    const float top = m - 1.0f;
    const float s = top / bottom.high;
    const Pair back = exact_product(s, bottom.high);
    const float s_low = (((top - back.high) - back.low) - s * bottom.low) / bottom.high;

    const Pair square = exact_product(s, s);
    const float z = square.high;
    const float z_low = fma(s + s, s_low, square.low);
    float rest = 1.0f / 13.0f;
    rest = fma(z, rest, 1.0f / 11.0f);
    rest = fma(z, rest, 1.0f / 9.0f);
    rest = fma(z, rest, 1.0f / 7.0f);
    rest = fma(z, rest, 0.2f);
    const Pair third = exact_product(z, 0.333333343f);
    const float third_low = third.low + (z * -9.93410776e-9f + z_low * 0.333333343f);
    const float small = fma(z * z, rest, third_low);
    const Pair sum = exact_sum(third.high, small);
    const Pair series = exact_sum(sum.high, 1.0f);
    const float series_low = series.low + sum.low;

    const Pair log = exact_product(s, series.high);
    const float log_low = log.low + (s * series_low + s_low * series.high);
    const Pair part = exact_product(log.high, 2.88539004f);
    const float part_low = part.low + (log.high * 3.85192607e-8f + log_low * 2.88539004f);
    const Pair all = exact_sum(parts.high, part.high);
    const float low = all.low + part_low;
    const float high = all.high + low;
    if (x == 0.0f) {
        return pair_of(-INFINITY, 0.0f);
    }
    return x < INFINITY ? pair_of(high, (all.high - high) + low) : pair_of(x, 0.0f);
}

// Whether a number not negative is an integer.
inline bool is_whole(float x) { return x >= 0x1p23f || rint(x) == x; }

// 2^(y log2 |x|), with the special cases of C99.
inline float binary_pow(float x, float y) {
    const Pair log = log2_twice(fabs(x));
    const Pair product = exact_product(y, log.high);
    // Beyond, the result is 0 or infinity, and the error may be one of two infinities.
    const bool far = !(fabs(product.high) < 300.0f);
    const float error = far ? 0.0f : fma(log.low, y, product.low);
    float result = exp2_sum(product.high, error);
    const float a = fabs(y);
    const bool whole = is_whole(a);
    const bool odd = whole && !is_whole(a * 0.5f);
    result = odd ? copysign(result, x) : result;
    result = x < 0.0f && x > -INFINITY && !whole ? NAN : result;
    const bool unit = x == 1.0f || y == 0.0f || (x == -1.0f && a == INFINITY);
    return unit ? 1.0f : result;
}

// The cube root, from a guess of its inverse by a third of the exponent.
inline float unary_cbrt(float x) {
    // Scaled away from the least and the largest numbers, by a factor that has a cube root.
    const bool tiny = fabs(x) < 0x1p-100f, huge = fabs(x) > 0x1p100f;
    const float a = fabs(x) * (tiny ? 0x1p60f : huge ? 0x1p-60f : 1.0f);
    // y is about a^(-1/3): the bits of a float are about 2^23 (log2 a + 127).
    float y = as_type<float>(0x54a2fa8c - as_type<uint>(a) / 3);
    // (1 - h)^(-1/3) = 1 + h/3 + 2h^2/9 + 14h^3/81 + ...
    float h = fma(-(a * y), y * y, 1.0f);
    y = fma(y * h, fma(h, fma(h, 14.0f / 81.0f, 2.0f / 9.0f), 1.0f / 3.0f), y);
    h = fma(-(a * y), y * y, 1.0f);
    y = fma(y * h, fma(h, 2.0f / 9.0f, 1.0f / 3.0f), y);
    // One step on the root itself, whose residual is small.
    float root = a * y * y;
    const Pair square = exact_product(root, root);
    const Pair cube = exact_product(square.high, root);
    const float residual = (cube.high - a) + (cube.low + square.low * root);
    root = root - residual * (y * y) * (1.0f / 3.0f);
    root = root * (tiny ? 0x1p-20f : huge ? 0x1p20f : 1.0f);
    return fabs(x) > 0.0f && fabs(x) < INFINITY ? copysign(root, x) : x;
}

inline float binary_hypot(float x, float y) {
    const float a = fabs(x), b = fabs(y);
    const float high = b > a ? b : a;
    // So that squares neither overflow nor vanish.
    const bool tiny = high < 0x1p-40f, huge = high > 0x1p40f;
    const float scale = tiny ? 0x1p80f : huge ? 0x1p-80f : 1.0f;
    const float c = a * scale, d = b * scale;
    const Pair p = exact_product(c, c), q = exact_product(d, d);
    const Pair sum = exact_sum(p.high, q.high);
    const float low = sum.low + (p.low + q.low);
    // One step of Newton's method for the remainder of the root.
    const float root = precise::sqrt(sum.high + low);
    const float miss = fma(-root, root, sum.high) + low;
    const float fine = root > 0.0f ? root + miss / (root + root) : root;
    const float result = fine * (tiny ? 0x1p-80f : huge ? 0x1p80f : 1.0f);
    return a == INFINITY || b == INFINITY ? INFINITY : result;
}
