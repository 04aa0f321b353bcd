// Elementary functions of one or two floats, before they are spread over types and vectors.
#pragma once

namespace sm {
namespace elementary {
#define SM_POLYNOMIAL(name)                                            \
  template <accuracy A> SM_FN float name(float x) {                    \
    return noisy<A>(ulp::name, x, polynomial::name(x));                \
  }
SM_POLYNOMIAL(exp) SM_POLYNOMIAL(exp2) SM_POLYNOMIAL(exp10)
SM_POLYNOMIAL(log) SM_POLYNOMIAL(log2) SM_POLYNOMIAL(tanh)
#undef SM_POLYNOMIAL

#define SM_LIBM(name)                                                  \
  template <accuracy A> SM_FN float name(float x) {                    \
    return noisy<A>(ulp::name, x, __builtin_##name##f(x));             \
  }
SM_LIBM(acos) SM_LIBM(acosh) SM_LIBM(asin) SM_LIBM(asinh) SM_LIBM(atan) SM_LIBM(atanh)
SM_LIBM(cosh) SM_LIBM(sinh) SM_LIBM(tan)
SM_LIBM(log10) SM_LIBM(sqrt)
#undef SM_LIBM

template <accuracy A> SM_FN float sin(float x) {
  float r = A == accuracy::fast ? polynomial::sin(x) : __builtin_sinf(x);
  return noisy<A>(ulp::sin, x, r);
}
template <accuracy A> SM_FN float cos(float x) {
  float r = A == accuracy::fast ? polynomial::cos(x) : __builtin_cosf(x);
  return noisy<A>(ulp::cos, x, r);
}

template <accuracy A> SM_FN float rsqrt(float x) {
  return noisy<A>(ulp::rsqrt, x, 1.0f / __builtin_sqrtf(x));
}
template <accuracy A> SM_FN float divide(float x, float y) {
  return noisy<A>(ulp::divide, x, x / y);
}
template <accuracy A> SM_FN float atan2(float y, float x) {
  return noisy<A>(ulp::atan2, y, __builtin_atan2f(y, x));
}
template <accuracy A> SM_FN float pow(float x, float y) {
  return noisy<A>(ulp::pow, x, __builtin_powf(x, y));
}
// Like pow, for x >= 0 only.
template <accuracy A> SM_FN float powr(float x, float y) {
  return x < 0 ? __builtin_nanf("") : pow<A>(x, y);
}

// Multiples of pi: reduce in half turns first, which is exact, so that zeros and poles are exact.
SM_FN double half_turns(float x) { return (double)x - 2.0 * __builtin_rint((double)x * 0.5); }
SM_FN double sin_of_half_turns(double t) {
  constexpr double pi = 3.14159265358979323846;
  double folded = __builtin_fabs(t) > 0.5 ? __builtin_copysign(1.0, t) - t : t;
  return __builtin_sin(pi * folded);
}
template <accuracy A> SM_FN float sinpi(float x) {
  return noisy<A>(ulp::sinpi, x, (float)sin_of_half_turns(half_turns(x)));
}
template <accuracy A> SM_FN float cospi(float x) {
  return noisy<A>(ulp::cospi, x, (float)sin_of_half_turns(0.5 - __builtin_fabs(half_turns(x))));
}
template <accuracy A> SM_FN float tanpi(float x) {
  double t = half_turns(x);
  double r = sin_of_half_turns(t) / sin_of_half_turns(0.5 - __builtin_fabs(t));
  return noisy<A>(ulp::tanpi, x, (float)r);
}

// Below 1 even where x - floor(x) rounds to 1.
SM_FN float fract(float x) { return __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f); }
SM_FN half fract(half x) { return (half)__builtin_fminf((float)x - __builtin_floorf((float)x), 0x1.ffcp-1f); }

SM_FN float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? x : 0.0f; }
SM_FN float saturate(float x) { return __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f); }

SM_FN float nextafter(float x, float y) { return __builtin_nextafterf(x, y); }
SM_FN half nextafter(half x, half y) {
  if (x != x || y != y) return x + y;
  if (x == y) return y;
  ushort bits = __builtin_bit_cast(ushort, x);
  if ((bits & 0x7fff) == 0) bits = y > 0 ? 1 : 0x8001;
  else if ((x < y) == (x > 0)) bits++;
  else bits--;
  return __builtin_bit_cast(half, bits);
}
}  // namespace elementary
}  // namespace sm
