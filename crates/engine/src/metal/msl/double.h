// Floats with the 53-bit significand of a double, which Metal does not have, in integers. The exponent is unbounded.
#include "host/Double.h"

// A number of up to 64 bits, and whether bits were cut off below it, rounded to nearest, ties to even.
inline Double double_rounded(ulong bits, bool more, int exponent, uint negative) {
    Double made;
    made.negative = bits == 0 ? 0 : negative;
    made.significand = 0;
    made.exponent = 0;
    if (bits == 0) {
        return made;
    }
    const int shift = 11 - int(clz(bits));
    if (shift <= 0) {
        made.significand = bits << -shift;
    } else {
        const ulong cut = bits & ((1ul << shift) - 1), middle = 1ul << (shift - 1);
        ulong top = bits >> shift;
        top += ulong(cut > middle || (cut == middle && (more || (top & 1) != 0)));
        made.significand = top;
    }
    made.exponent = exponent + shift;
    if (made.significand >> 53 != 0) {
        made.significand >>= 1;
        made.exponent += 1;
    }
    return made;
}

inline Double double_of(ulong x) { return double_rounded(x, false, 0, 0); }

inline Double double_product(Double a, Double b) {
    // 53 bits times 53 bits, as 64 bits and the rest.
    const ulong a_high = a.significand >> 32, a_low = a.significand & 0xffffffff;
    const ulong b_high = b.significand >> 32, b_low = b.significand & 0xffffffff;
    const ulong low = a_low * b_low;
    const ulong middle = a_high * b_low + (low >> 32);
    const ulong other = a_low * b_high + (middle & 0xffffffff);
    const ulong high = a_high * b_high + (middle >> 32) + (other >> 32);
    const ulong bottom = other << 32 | (low & 0xffffffff);
    // The product has 105 or 106 bits: 41 or 42 of them in `high`.
    const ulong top = high << 22 | bottom >> 42;
    const bool more = (bottom & ((1ul << 42) - 1)) != 0;
    return double_rounded(top, more, a.exponent + b.exponent + 42, a.negative ^ b.negative);
}

inline Double double_sum(Double a, Double b) {
    if (a.significand == 0) {
        return b;
    }
    if (b.significand == 0) {
        return a;
    }
    const bool swap = a.exponent < b.exponent;
    const Double large = swap ? b : a, small = swap ? a : b;
    const int apart = large.exponent - small.exponent;
    // Ten more bits: a difference loses at most one of them if anything is cut off.
    const ulong upper = large.significand << 10, whole = small.significand << 10;
    const ulong lower = apart > 63 ? 0 : whole >> apart;
    // Bits that are cut off become a sticky bit.
    const ulong sticky = apart > 63 ? 1 : ulong((lower << apart) != whole);
    const int exponent = large.exponent - 10;
    if (large.negative == small.negative) {
        return double_rounded(upper + (lower | sticky), false, exponent, large.negative);
    }
    const ulong taken = lower | sticky;
    return upper >= taken ? double_rounded(upper - taken, false, exponent, large.negative)
                          : double_rounded(taken - upper, false, exponent, small.negative);
}

// Conversions to other types, as in cast.metal.
inline float double_scaled(float x, Double d) {
    // In two steps, as the whole scale may not be a float.
    const int exponent = clamp(d.exponent, -250, 250), first = exponent / 2;
    const float scaled = x * as_type<float>(uint(127 + first) << 23);
    const float result = scaled * as_type<float>(uint(127 + exponent - first) << 23);
    return d.negative != 0 ? -result : result;
}
template <typename T> struct From {
    // Towards 0, saturating.
    static T of(Double d, T lowest_value, T highest_value) {
        if (d.significand == 0 || d.exponent <= -53) {
            return T(0);
        }
        const bool below = d.negative != 0;
        // At 2^64 and beyond there is nothing to compare.
        if (d.exponent > 11) {
            return below ? lowest_value : highest_value;
        }
        const ulong whole = d.exponent < 0 ? d.significand >> -d.exponent : d.significand << d.exponent;
        if (below) {
            return whole >= 0 - ulong(long(lowest_value)) ? lowest_value : T(0 - whole);
        }
        return whole >= ulong(highest_value) ? highest_value : T(whole);
    }
};
template <typename T> inline T double_to(Double d) {
    const uint bits = width<T>();
    const ulong all = 0xffffffffffffffff;
    return is_signed_type<T>() ? From<T>::of(d, T(1ul << (bits - 1)), T(all >> (65 - bits)))
                               : From<T>::of(d, T(0), T(all >> (64 - bits)));
}
template <> inline float double_to<float>(Double d) { return double_scaled(float(d.significand), d); }
template <> inline half double_to<half>(Double d) { return half(double_scaled(rounded_to_odd(d.significand), d)); }
template <> inline bfloat double_to<bfloat>(Double d) {
    return bfloat(double_scaled(rounded_to_odd(d.significand), d));
}
