// Traits and macros for the components of scalars and vectors.
//
// Vector code is written out component by component (never as loops over an index), so that vectors
// become scalars without any optimisation.
#pragma once

// The classes are in a separate namespace with only their operators, because argument-dependent lookup must not find
// functions of the library: in MSL vectors are built in. With the array as the parameter, `N` is deduced for template
// parameters of every integer type, as the language does for the size of a vector.
namespace sm {
namespace vectors {
template <class A> struct vector;
template <class A> struct packed_vector;
}  // namespace vectors
}  // namespace sm

namespace metal {
template <class T, size_t N> using vec = ::sm::vectors::vector<T[N]>;
template <class T, size_t N> using packed_vec = ::sm::vectors::packed_vector<T[N]>;

// Apple's own: the number of components of a vector type, 0 for anything else.
template <class T> struct vec_elements { static constexpr int value = 0; };
template <class T, int N> struct vec_elements<vec<T, N>> { static constexpr int value = N; };
template <class T, int N> struct vec_elements<packed_vec<T, N>> { static constexpr int value = N; };
}  // namespace metal

namespace sm {
using metal::enable_if_t;
using metal::packed_vec;
using metal::vec;

// Number of components that an argument contributes to a constructor; -1 if it cannot be an argument.
template <class T> constexpr bool is_scalar = metal::is_arithmetic_v<T> || __is_enum(T);
template <class T> struct shape {
  static constexpr int count = is_scalar<T> || __is_class(T) ? 1 : -1;
};
template <class T, int N> struct shape<vec<T, N>> { static constexpr int count = N; };
template <class T, int N> struct shape<packed_vec<T, N>> { static constexpr int count = N; };
template <class T> struct shape<volatile T> : shape<T> {};
template <class T> struct shape<const volatile T> : shape<T> {};
template <class T> struct shape<sm_device T> : shape<__remove_cv(T)> {};
template <class T> struct shape<sm_constant T> : shape<__remove_cv(T)> {};
template <class T> struct shape<sm_threadgroup T> : shape<__remove_cv(T)> {};

template <class T> using if_scalar = enable_if_t<is_scalar<T>>;
template <class... A> using if_none = enable_if_t<sizeof...(A) == 0>;
template <class T> using if_number = enable_if_t<metal::is_arithmetic_v<T> && !__is_same(T, bool)>;
template <class T> using if_floating = enable_if_t<metal::is_floating_point_v<T>>;
template <class T> using if_integer = enable_if_t<metal::is_integral_v<T>>;
// The types that the floating-point functions are defined for.
template <class T> using if_real = enable_if_t<__is_same(T, float) || __is_same(T, half)>;

// The vector type of a function of several arguments: the common type of all vector arguments, to which the others, such as
// scalars, are converted.
template <class A> struct vector_of { using type = void; };
template <class T, int N> struct vector_of<vec<T, N>> { using type = vec<T, N>; };
template <class T, int N> struct vector_of<packed_vec<T, N>> { using type = vec<T, N>; };
template <class V> struct element_of;
template <class T, int N> struct element_of<vec<T, N>> { using type = T; };
template <class R, class... A> struct first_vector { using type = R; };
template <class A, class... B>
struct first_vector<void, A, B...> : first_vector<typename vector_of<A>::type, B...> {};
template <class R, class A> constexpr bool becomes_vector() {
  using V = typename vector_of<A>::type;
  if constexpr (__is_void(R)) return false;
  else if constexpr (__is_void(V)) return __is_convertible_to(A, R);
  else return __is_same(V, R);
}
template <class R, class... A> constexpr bool become_vectors = (becomes_vector<R, A>() && ...);
template <class... A>
using lifted = enable_if_t<become_vectors<typename first_vector<void, A...>::type, A...>,
                           typename first_vector<void, A...>::type>;

// Scalars that may be combined with a vector of T in an operator: a float is not silently converted to an int.
template <class S, class T>
using if_operand =
    enable_if_t<is_scalar<S> && !(metal::is_floating_point_v<S> && metal::is_integral_v<T>)>;
}  // namespace sm

// `return R(M(x, ...), M(y, ...), ...)` for N components.
#define SM_EACH(R, N, M, ...)                                                            \
  if constexpr (N == 1) return R(M(x, __VA_ARGS__));                                     \
  else if constexpr (N == 2) return R(M(x, __VA_ARGS__), M(y, __VA_ARGS__));             \
  else if constexpr (N == 3)                                                             \
    return R(M(x, __VA_ARGS__), M(y, __VA_ARGS__), M(z, __VA_ARGS__));                   \
  else return R(M(x, __VA_ARGS__), M(y, __VA_ARGS__), M(z, __VA_ARGS__), M(w, __VA_ARGS__));
// Component makers for SM_EACH: calls of a scalar function on the components of a, b and c.
#define SM_CALL1(k, f) f(a.k)
#define SM_CALL2(k, f) f(a.k, b.k)
#define SM_CALL3(k, f) f(a.k, b.k, c.k)
