// <metal_limits>: numeric_limits<T>, with the implementation base that public code specialises.
#pragma once

namespace metal {
enum float_round_style { round_indeterminate = -1, round_toward_zero, round_to_nearest,
                         round_toward_infinity, round_toward_neg_infinity };
enum float_denorm_style { denorm_indeterminate = -1, denorm_absent, denorm_present };

template <class T> struct _numeric_limits_impl {
  static constexpr bool is_specialized = false;
};
template <class T> struct numeric_limits : _numeric_limits_impl<T> {};
template <class T> struct numeric_limits<const T> : numeric_limits<T> {};
template <class T> struct numeric_limits<volatile T> : numeric_limits<T> {};
template <class T> struct numeric_limits<const volatile T> : numeric_limits<T> {};
}  // namespace metal

namespace sm {
template <class T> struct integer_limits {
  static constexpr bool is_specialized = true, is_integer = true, is_exact = true;
  static constexpr bool is_signed = (T)-1 < (T)0, is_bounded = true, is_modulo = !is_signed;
  static constexpr bool has_infinity = false, has_quiet_NaN = false, has_signaling_NaN = false;
  static constexpr bool is_iec559 = false, traps = false, tinyness_before = false;
  static constexpr int digits = __is_same(T, bool) ? 1 : (int)sizeof(T) * 8 - is_signed;
  static constexpr int digits10 = digits * 30103 / 100000, max_digits10 = 0, radix = 2;
  static constexpr int min_exponent = 0, min_exponent10 = 0, max_exponent = 0, max_exponent10 = 0;
  static constexpr metal::float_round_style round_style = metal::round_toward_zero;
  static constexpr metal::float_denorm_style has_denorm = metal::denorm_absent;
  static constexpr bool has_denorm_loss = false;
  static constexpr T max() { return (T)(~0ul >> (64 - digits)); }
  static constexpr T min() { return is_signed ? (T)(-(long)max() - 1) : (T)0; }
  static constexpr T lowest() { return min(); }
  static constexpr T epsilon() { return 0; }
  static constexpr T round_error() { return 0; }
  static constexpr T infinity() { return 0; }
  static constexpr T quiet_NaN() { return 0; }
  static constexpr T signaling_NaN() { return 0; }
  static constexpr T denorm_min() { return 0; }
};

struct float_limits {
  static constexpr bool is_specialized = true, is_integer = false, is_exact = false;
  static constexpr bool is_signed = true, is_bounded = true, is_modulo = false;
  static constexpr bool has_infinity = true, has_quiet_NaN = true, has_signaling_NaN = true;
  static constexpr bool is_iec559 = true, traps = false, tinyness_before = false;
  static constexpr int radix = 2;
  static constexpr metal::float_round_style round_style = metal::round_to_nearest;
  static constexpr metal::float_denorm_style has_denorm = metal::denorm_present;
  static constexpr bool has_denorm_loss = false;
};
}  // namespace sm

namespace metal {
#define SM_INTEGER_LIMITS(T) template <> struct _numeric_limits_impl<T> : ::sm::integer_limits<T> {};
SM_INTEGER_LIMITS(bool)
SM_INTEGER_LIMITS(char)
SM_INTEGER_LIMITS(signed char)
SM_INTEGER_LIMITS(uchar)
SM_INTEGER_LIMITS(short)
SM_INTEGER_LIMITS(ushort)
SM_INTEGER_LIMITS(int)
SM_INTEGER_LIMITS(uint)
SM_INTEGER_LIMITS(long)
SM_INTEGER_LIMITS(ulong)
#undef SM_INTEGER_LIMITS

#define SM_FLOAT_LIMITS(T, smallest, largest, eps, tiniest, bits, low10, high10, lowest_exp, highest_exp) \
  template <> struct _numeric_limits_impl<T> : ::sm::float_limits {                        \
    static constexpr int digits = bits, digits10 = (bits - 1) * 30103 / 100000;            \
    static constexpr int max_digits10 = 2 + bits * 30103 / 100000;                         \
    static constexpr int min_exponent = lowest_exp, max_exponent = highest_exp;            \
    static constexpr int min_exponent10 = low10, max_exponent10 = high10;                  \
    static constexpr T min() { return (T)(smallest); }                                     \
    static constexpr T lowest() { return (T)(-(largest)); }                                \
    static constexpr T max() { return (T)(largest); }                                      \
    static constexpr T epsilon() { return (T)(eps); }                                      \
    static constexpr T round_error() { return (T)0.5f; }                                   \
    static constexpr T infinity() { return (T)__builtin_inff(); }                          \
    static constexpr T quiet_NaN() { return (T)__builtin_nanf(""); }                       \
    static constexpr T signaling_NaN() { return (T)__builtin_nanf(""); }                   \
    static constexpr T denorm_min() { return (T)(tiniest); }                               \
  };
SM_FLOAT_LIMITS(float, 0x1p-126f, 0x1.fffffep127f, 0x1p-23f, 0x1p-149f, 24, -37, 38, -125, 128)
SM_FLOAT_LIMITS(half, 0x1p-14f, 65504.0f, 0x1p-10f, 0x1p-24f, 11, -4, 4, -13, 16)
SM_FLOAT_LIMITS(bfloat, 0x1p-126f, 0x1.fep127f, 0x1p-7f, 0x1p-133f, 8, -37, 38, -125, 128)
#undef SM_FLOAT_LIMITS

// Limits of a vector are those of its component type; values are broadcast to all components.
template <class T, int N> struct _numeric_limits_impl<vec<T, N>> : numeric_limits<T> {
  static constexpr vec<T, N> min() { return numeric_limits<T>::min(); }
  static constexpr vec<T, N> max() { return numeric_limits<T>::max(); }
  static constexpr vec<T, N> lowest() { return numeric_limits<T>::lowest(); }
  static constexpr vec<T, N> epsilon() { return numeric_limits<T>::epsilon(); }
  static constexpr vec<T, N> round_error() { return numeric_limits<T>::round_error(); }
  static constexpr vec<T, N> infinity() { return numeric_limits<T>::infinity(); }
  static constexpr vec<T, N> quiet_NaN() { return numeric_limits<T>::quiet_NaN(); }
  static constexpr vec<T, N> signaling_NaN() { return numeric_limits<T>::signaling_NaN(); }
  static constexpr vec<T, N> denorm_min() { return numeric_limits<T>::denorm_min(); }
};
}  // namespace metal
