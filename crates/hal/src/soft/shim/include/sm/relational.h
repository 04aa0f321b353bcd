// <metal_relational>.
#pragma once

namespace metal {
SM_CX bool isfinite(float x) { return __builtin_isfinite(x); }
SM_CX bool isfinite(half x) { return __builtin_isfinite((float)x); }
SM_CX bool isinf(float x) { return __builtin_isinf(x); }
SM_CX bool isinf(half x) { return __builtin_isinf((float)x); }
SM_CX bool isnan(float x) { return __builtin_isnan(x); }
SM_CX bool isnan(half x) { return __builtin_isnan((float)x); }
SM_CX bool isnormal(float x) { return __builtin_isnormal(x); }
SM_CX bool isnormal(half x) {
  float magnitude = __builtin_fabsf((float)x);
  return magnitude >= 0x1p-14f && magnitude <= 65504.0f;
}
SM_CX bool signbit(float x) { return __builtin_bit_cast(uint, x) >> 31; }
SM_CX bool signbit(half x) { return __builtin_bit_cast(ushort, x) >> 15; }
SM_CX bool isordered(float x, float y) { return x == x && y == y; }
SM_CX bool isordered(half x, half y) { return x == x && y == y; }
SM_CX bool isunordered(float x, float y) { return x != x || y != y; }
SM_CX bool isunordered(half x, half y) { return x != x || y != y; }
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

// b where c is true, else a.
template <class T, class = ::sm::if_scalar<T>> SM_CX T select(T a, T b, bool c) { return c ? b : a; }
#define SM_SELECT(k, f) (c.k ? b.k : a.k)
template <class T, int N>
SM_CX vec<T, N> select(vec<T, N> a, ::sm::same<vec<T, N>> b, ::sm::same<vec<bool, N>> c) {
  using R = vec<T, N>;
  SM_EACH(R, N, SM_SELECT, select)
}
#undef SM_SELECT
}  // namespace metal
