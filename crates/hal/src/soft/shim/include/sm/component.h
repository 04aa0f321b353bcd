// How the library talks about the components of scalars and vectors.
//
// Vector code is written out component by component (never as loops over an index), so that no
// optimisation is needed before a vector becomes a handful of scalars.
#pragma once

namespace metal {
template <class T, int N> struct vec;
template <class T, int N> struct packed_vec;

// Apple's own: the number of components of a vector type, 0 for anything else.
template <class T> struct vec_elements { static constexpr int value = 0; };
template <class T, int N> struct vec_elements<vec<T, N>> { static constexpr int value = N; };
template <class T, int N> struct vec_elements<packed_vec<T, N>> { static constexpr int value = N; };
}  // namespace metal

namespace sm {
using metal::enable_if_t;
using metal::packed_vec;
using metal::vec;

// Components that an argument brings to a constructor; -1 for what is no component at all.
template <class T> constexpr bool is_scalar = metal::is_arithmetic_v<T> || __is_enum(T);
template <class T> struct shape {
  static constexpr int count = is_scalar<T> || __is_class(T) ? 1 : -1;
};
template <class T, int N> struct shape<vec<T, N>> { static constexpr int count = N; };
template <class T, int N> struct shape<packed_vec<T, N>> { static constexpr int count = N; };
template <class T> struct shape<sm_device T> : shape<__remove_cv(T)> {};
template <class T> struct shape<sm_constant T> : shape<__remove_cv(T)> {};
template <class T> struct shape<sm_threadgroup T> : shape<__remove_cv(T)> {};

template <class T> using if_scalar = enable_if_t<is_scalar<T>>;
template <class T> using if_integer = enable_if_t<metal::is_integral_v<T>>;
// The types that the floating-point functions are defined for.
template <class T> using if_real = enable_if_t<__is_same(T, float) || __is_same(T, half)>;

// Scalars that may meet a vector of T in an operator: a float does not silently become an int.
template <class S, class T>
using if_operand =
    enable_if_t<is_scalar<S> && !(metal::is_floating_point_v<S> && metal::is_integral_v<T>)>;
}  // namespace sm

// `return R(M(x, ...), M(y, ...), ...)` for as many components as N says.
#define SM_EACH(R, N, M, ...)                                                            \
  if constexpr (N == 2) return R(M(x, __VA_ARGS__), M(y, __VA_ARGS__));                  \
  else if constexpr (N == 3)                                                             \
    return R(M(x, __VA_ARGS__), M(y, __VA_ARGS__), M(z, __VA_ARGS__));                   \
  else return R(M(x, __VA_ARGS__), M(y, __VA_ARGS__), M(z, __VA_ARGS__), M(w, __VA_ARGS__));
// Component makers for SM_EACH: calls of a scalar function on the components of a, b and c.
#define SM_CALL1(k, f) f(a.k)
#define SM_CALL2(k, f) f(a.k, b.k)
#define SM_CALL3(k, f) f(a.k, b.k, c.k)
