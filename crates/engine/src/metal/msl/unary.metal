#include "element.h"

// Functions of one element that are arithmetic: those of floats in float, of integers in their own type.
// metal/fused.rs generates the kernels that call them, and includes the headers of the other functions.

template <typename T> inline T unary_neg(T x) { return T(wrapping_t<T>(0) - wrapping_t<T>(x)); }
inline float unary_neg(float x) { return -x; }

template <typename T> inline T unary_abs(T x) { return x < T(0) ? unary_neg(x) : x; }
inline bool unary_abs(bool x) { return x; }
inline float unary_abs(float x) { return fabs(x); }

// NaN is returned as it is; both zeros give 0.
template <typename T> inline T unary_sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x == T(0) ? T(0) : x; }

template <typename T> inline T unary_square(T x) { return T(wrapping_t<T>(x) * wrapping_t<T>(x)); }
inline float unary_square(float x) { return x * x; }

template <typename T> inline T unary_relu(T x) { return x <= T(0) ? T(0) : x; }

template <typename T> inline T unary_ceil(T x) { return x; }
template <typename T> inline T unary_floor(T x) { return x; }
template <typename T> inline T unary_round(T x) { return x; }
template <typename T> inline T unary_trunc(T x) { return x; }
inline float unary_ceil(float x) { return ceil(x); }
inline float unary_floor(float x) { return floor(x); }
inline float unary_round(float x) { return rint(x); }
inline float unary_trunc(float x) { return trunc(x); }

template <typename T> inline bool unary_is_nan(T) { return false; }
template <typename T> inline bool unary_is_inf(T) { return false; }
template <typename T> inline bool unary_is_finite(T) { return true; }
// By their bits, so that no math mode optimises the tests away.
inline bool unary_is_nan(float x) { return (as_type<uint>(x) & 0x7fffffff) > 0x7f800000; }
inline bool unary_is_inf(float x) { return (as_type<uint>(x) & 0x7fffffff) == 0x7f800000; }
inline bool unary_is_finite(float x) { return (as_type<uint>(x) & 0x7fffffff) < 0x7f800000; }

template <typename T> inline bool unary_logical_not(T x) { return x == T(0); }

template <typename T> inline T unary_bitwise_not(T x) { return T(~wrapping_t<T>(x)); }
inline bool unary_bitwise_not(bool x) { return !x; }

inline float unary_sqrt(float x) { return precise::sqrt(x); }
inline float unary_rsqrt(float x) { return 1.0f / precise::sqrt(x); }
inline float unary_reciprocal(float x) { return 1.0f / x; }

inline float unary_hardswish(float x) {
    float gate = x + 3.0f;
    gate = gate > 0.0f ? gate : 0.0f;
    gate = gate < 6.0f ? gate : 6.0f;
    return x * (gate / 6.0f);
}

inline float unary_leaky_relu(float x, float slope) { return x > 0.0f ? x : x * slope; }
