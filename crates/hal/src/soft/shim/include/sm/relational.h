// <metal_relational>.
#pragma once

namespace metal {
// The predicates test the bits, so that they are valid in every math mode.
#define SM_CLASS_TESTS(T, U, magnitude, infinity, min_normal)                              \
  SM_CX bool isfinite(T x) { return (__builtin_bit_cast(U, x) & magnitude) < infinity; }   \
  SM_CX bool isinf(T x) { return (__builtin_bit_cast(U, x) & magnitude) == infinity; }     \
  SM_CX bool isnan(T x) { return (__builtin_bit_cast(U, x) & magnitude) > infinity; }      \
  SM_CX bool isnormal(T x) {                                                               \
    return isfinite(x) && (__builtin_bit_cast(U, x) & magnitude) >= min_normal;            \
  }
SM_CLASS_TESTS(float, uint, 0x7fffffff, 0x7f800000, 0x00800000)
SM_CLASS_TESTS(half, ushort, 0x7fff, 0x7c00, 0x0400)
#undef SM_CLASS_TESTS
SM_CX bool signbit(float x) { return __builtin_bit_cast(uint, x) >> 31; }
SM_CX bool signbit(half x) { return __builtin_bit_cast(ushort, x) >> 15; }
SM_CX bool isordered(float x, float y) { return !isnan(x) && !isnan(y); }
SM_CX bool isordered(half x, half y) { return !isnan(x) && !isnan(y); }
SM_CX bool isunordered(float x, float y) { return isnan(x) || isnan(y); }
SM_CX bool isunordered(half x, half y) { return isnan(x) || isnan(y); }
SM_LIFT_TEST1(isfinite)
SM_LIFT_TEST1(isinf)
SM_LIFT_TEST1(isnan)
SM_LIFT_TEST1(isnormal)
SM_LIFT_TEST1(signbit)
SM_LIFT_TEST2(isordered)
SM_LIFT_TEST2(isunordered)

SM_CX bool all(bool a) { return a; }
SM_CX bool all(vec<bool, 2> a) { return a.x & a.y; }
SM_CX bool all(vec<bool, 3> a) { return a.x & a.y & a.z; }
SM_CX bool all(vec<bool, 4> a) { return a.x & a.y & a.z & a.w; }
SM_CX bool any(bool a) { return a; }
SM_CX bool any(vec<bool, 2> a) { return a.x | a.y; }
SM_CX bool any(vec<bool, 3> a) { return a.x | a.y | a.z; }
SM_CX bool any(vec<bool, 4> a) { return a.x | a.y | a.z | a.w; }

// b if c is true, else a.
template <class T, class = ::sm::if_scalar<T>> SM_CX T select(T a, T b, bool c) { return c ? b : a; }
#define SM_SELECT(k, f) (c.k ? b.k : a.k)
template <class T, int N>
SM_CX vec<T, N> select(vec<T, N> a, ::sm::same<vec<T, N>> b, ::sm::same<vec<bool, N>> c) {
  using R = vec<T, N>;
  SM_EACH(R, N, SM_SELECT, select)
}
template <class A, class B, class C, class R = ::sm::lifted<A, B>, class... X, class = ::sm::if_none<X...>,
          class = enable_if_t<__is_convertible_to(C, vec<bool, vec_elements<R>::value>)>>
SM_CX R select(A a, B b, C c, X...) {
  return select(R(a), R(b), vec<bool, vec_elements<R>::value>(c));
}
#undef SM_SELECT
}  // namespace metal
