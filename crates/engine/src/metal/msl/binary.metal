#include "element.h"

// Functions of two elements: those of floats in float, of integers in their own type.
// metal/fused.rs generates the kernels that call them, and includes the headers of the other functions.

template <typename T> inline T binary_add(T a, T b) { return T(wrapping_t<T>(a) + wrapping_t<T>(b)); }
inline bool binary_add(bool a, bool b) { return a || b; }
inline float binary_add(float a, float b) { return a + b; }

template <typename T> inline T binary_sub(T a, T b) { return T(wrapping_t<T>(a) - wrapping_t<T>(b)); }
inline float binary_sub(float a, float b) { return a - b; }

template <typename T> inline T binary_mul(T a, T b) { return T(wrapping_t<T>(a) * wrapping_t<T>(b)); }
inline bool binary_mul(bool a, bool b) { return a && b; }
inline float binary_mul(float a, float b) { return a * b; }

inline float binary_div(float a, float b) { return a / b; }

// The quotient rounded down: that of C++ is rounded towards 0, one too many where it is inexact and negative.
// By 0 it is 0; the least number by -1 wraps.
template <typename T> inline T binary_floor_div(T a, T b) {
    if (b == T(0)) {
        return T(0);
    }
    if (is_signed_type<T>() && b == T(-1)) {
        return T(wrapping_t<T>(0) - wrapping_t<T>(a));
    }
    const T quotient = a / b;
    const bool inexact = T(quotient * b) != a;
    return quotient - T(inexact && (a < T(0)) != (b < T(0)));
}

// The remainder, with the sign of b; by 0 it is 0.
template <typename T> inline T binary_rem(T a, T b) {
    if (b == T(0) || (is_signed_type<T>() && b == T(-1))) {
        return T(0);
    }
    const T left = a % b;
    return left != T(0) && (left < T(0)) != (b < T(0)) ? T(left + b) : left;
}

// Both for floats, consistent with each other: the remainder is exact, and the quotient is the integer next to (a -
// remainder) / b. By 0, the quotient is a / 0 and the remainder NaN.
inline float binary_floor_div(float a, float b) {
    if (b == 0.0f) {
        return a / b;
    }
    const float left = precise::fmod(a, b);
    float quotient = (a - left) / b;
    if (left != 0.0f && (b < 0.0f) != (left < 0.0f)) {
        quotient -= 1.0f;
    }
    if (quotient == 0.0f) {
        return copysign(0.0f, a / b);
    }
    // Dividing may have rounded down past the integer.
    const float whole = floor(quotient);
    return quotient - whole > 0.5f ? whole + 1.0f : whole;
}
inline float binary_rem(float a, float b) {
    const float left = precise::fmod(a, b);
    if (b == 0.0f) {
        return left;
    }
    if (left == 0.0f) {
        return copysign(0.0f, b);
    }
    return (b < 0.0f) != (left < 0.0f) ? left + b : left;
}

// By squaring; 0 for a negative b, unless a is 1 or -1.
template <typename T> inline T binary_pow(T a, T b) {
    if (b < T(0)) {
        return a == T(1) ? T(1) : a == T(-1) ? T(b & T(1) ? -1 : 1) : T(0);
    }
    wrapping_t<T> base = a, product = 1;
    for (T left = b; left != T(0); left = T(left >> 1)) {
        if (left & T(1)) {
            product *= base;
        }
        base *= base;
    }
    return T(product);
}

// The lesser and the greater; NaN if one is: with a NaN on the right the comparison is false, and the right one is
// taken.
template <typename T> inline T binary_minimum(T a, T b) { return a < b ? a : b; }
template <typename T> inline T binary_maximum(T a, T b) { return a > b ? a : b; }
inline float binary_minimum(float a, float b) { return a < b || isnan(a) ? a : b; }
inline float binary_maximum(float a, float b) { return a > b || isnan(a) ? a : b; }

template <typename T> inline bool binary_eq(T a, T b) { return a == b; }
template <typename T> inline bool binary_ne(T a, T b) { return a != b; }
template <typename T> inline bool binary_lt(T a, T b) { return a < b; }
template <typename T> inline bool binary_le(T a, T b) { return a <= b; }
template <typename T> inline bool binary_gt(T a, T b) { return a > b; }
template <typename T> inline bool binary_ge(T a, T b) { return a >= b; }

inline bool binary_logical_and(bool a, bool b) { return a && b; }
inline bool binary_logical_or(bool a, bool b) { return a || b; }
inline bool binary_logical_xor(bool a, bool b) { return a != b; }

template <typename T> inline T binary_bitwise_and(T a, T b) { return T(a & b); }
template <typename T> inline T binary_bitwise_or(T a, T b) { return T(a | b); }
template <typename T> inline T binary_bitwise_xor(T a, T b) { return T(a ^ b); }

// A negative count is a huge unsigned number.
template <typename T> inline bool shifts_out(T b) { return b < T(0) || ulong(b) >= width<T>(); }
template <typename T> inline T binary_shift_left(T a, T b) {
    return shifts_out(b) ? T(0) : T(wrapping_t<T>(a) << uint(b));
}
// The sign bit fills in.
template <typename T> inline T binary_shift_right(T a, T b) {
    if (shifts_out(b)) {
        return is_signed_type<T>() ? T(a >> (width<T>() - 1)) : T(0);
    }
    return T(a >> uint(b));
}
