#include "element.h"

// Functions of three elements: those of floats in float, of integers in their own type.
// metal/fused.rs generates the kernels that call them.

template <typename T> inline T ternary_select(bool c, T a, T b) { return c ? a : b; }

// min(max(x, low), high); NaN if one is.
template <typename T> inline T ternary_clamp(T x, T low, T high) {
    const T raised = x > low ? x : low;
    return raised < high ? raised : high;
}
inline float ternary_clamp(float x, float low, float high) {
    const float raised = x > low || isnan(x) ? x : low;
    return raised < high || isnan(raised) ? raised : high;
}

template <typename T> inline T ternary_mul_add(T a, T b, T c) {
    return T(wrapping_t<T>(a) * wrapping_t<T>(b) + wrapping_t<T>(c));
}
inline float ternary_mul_add(float a, float b, float c) { return fma(a, b, c); }

inline float ternary_lerp(float a, float b, float t) { return a + t * (b - a); }
