// Elementary functions of one or two floats; other headers lift them to further types and vectors.
#pragma once

namespace sm {
// The runtime's elementary functions; arguments must not be subnormal. Declared without side effects, which the compiler
// cannot infer for a call through a pointer.
namespace service {
#define SM_SERVICE1(name) \
  __attribute__((const, noinline, SM_UNSEEN)) inline float name(float x) { return sm_rt_table->name(x); }
#define SM_SERVICE2(name) \
  __attribute__((const, noinline, SM_UNSEEN)) inline float name(float x, float y) { return sm_rt_table->name(x, y); }
SM_SERVICE1(acos) SM_SERVICE1(acosh) SM_SERVICE1(asin) SM_SERVICE1(asinh) SM_SERVICE1(atan) SM_SERVICE1(atanh)
SM_SERVICE1(cos) SM_SERVICE1(cosh) SM_SERVICE1(log10) SM_SERVICE1(sin) SM_SERVICE1(sinh) SM_SERVICE1(tan)
SM_SERVICE2(atan2) SM_SERVICE2(fmod) SM_SERVICE2(pow)
#undef SM_SERVICE1
#undef SM_SERVICE2
__attribute__((const, noinline, SM_UNSEEN)) inline double sin_double(double x) { return sm_rt_table->sin_double(x); }
}  // namespace service

namespace elementary {
#define SM_POLYNOMIAL(name)                                            \
  template <accuracy A> SM_FN float name(float x) {                    \
    return noisy<A>(ulp::name, x, polynomial::name(x));                \
  }
SM_POLYNOMIAL(exp) SM_POLYNOMIAL(exp2) SM_POLYNOMIAL(exp10)
SM_POLYNOMIAL(log) SM_POLYNOMIAL(log2) SM_POLYNOMIAL(tanh)
#undef SM_POLYNOMIAL

#define SM_SERVICE(name)                                                        \
  template <accuracy A> SM_FN float name(float x) {                             \
    return noisy<A>(ulp::name, x, flushed(service::name(flushed(x))));          \
  }
SM_SERVICE(acos) SM_SERVICE(acosh) SM_SERVICE(asin) SM_SERVICE(asinh) SM_SERVICE(atan) SM_SERVICE(atanh)
SM_SERVICE(cosh) SM_SERVICE(sinh) SM_SERVICE(tan) SM_SERVICE(log10)
#undef SM_SERVICE

template <accuracy A> SM_FN float sin(float x) {
  float r = A == accuracy::fast ? polynomial::sin(x) : flushed(service::sin(flushed(x)));
  return noisy<A>(ulp::sin, x, r);
}
template <accuracy A> SM_FN float cos(float x) {
  float r = A == accuracy::fast ? polynomial::cos(x) : service::cos(flushed(x));
  return noisy<A>(ulp::cos, x, r);
}
template <accuracy A> SM_FN float sqrt(float x) {
  return noisy<A>(ulp::sqrt, x, __builtin_sqrtf(x));
}

template <accuracy A> SM_FN float rsqrt(float x) {
  return noisy<A>(ulp::rsqrt, x, 1.0f / __builtin_sqrtf(x));
}
template <accuracy A> SM_FN float divide(float x, float y) {
  return noisy<A>(ulp::divide, x, x / y);
}
template <accuracy A> SM_FN float atan2(float y, float x) {
  return noisy<A>(ulp::atan2, y, flushed(service::atan2(flushed(y), flushed(x))));
}
template <accuracy A> SM_FN float pow(float x, float y) {
  return noisy<A>(ulp::pow, x, flushed(service::pow(flushed(x), flushed(y))));
}
// Like pow, for x >= 0 only.
template <accuracy A> SM_FN float powr(float x, float y) {
  return x < 0 ? __builtin_nanf("") : pow<A>(x, y);
}

// sinpi and its relatives: the argument is first reduced modulo 2, which is exact, so that zeros and poles are exact.
SM_FN double modulo_two(float x) { return (double)x - 2.0 * __builtin_rint((double)x * 0.5); }
SM_FN double sin_pi(double t) {
  constexpr double pi = 3.14159265358979323846;
  double folded = __builtin_fabs(t) > 0.5 ? __builtin_copysign(1.0, t) - t : t;
  return service::sin_double(pi * folded);
}
template <accuracy A> SM_FN float sinpi(float x) {
  return noisy<A>(ulp::sinpi, x, (float)sin_pi(modulo_two(x)));
}
template <accuracy A> SM_FN float cospi(float x) {
  return noisy<A>(ulp::cospi, x, (float)sin_pi(0.5 - __builtin_fabs(modulo_two(x))));
}
template <accuracy A> SM_FN float tanpi(float x) {
  double t = modulo_two(x);
  double r = sin_pi(t) / sin_pi(0.5 - __builtin_fabs(t));
  return noisy<A>(ulp::tanpi, x, (float)r);
}

// The remainder is exact, so that every processor has the same.
SM_FN float fmod(float x, float y) { return flushed(service::fmod(flushed(x), flushed(y))); }

// Processors without an instruction call a function that tests the bits, for which subnormals must be flushed first.
SM_FN float floor(float x) { return __builtin_floorf(flushed(x)); }
SM_FN float ceil(float x) { return __builtin_ceilf(flushed(x)); }

// Below 1 even if x - floor(x) rounds to 1.
SM_FN float fract(float x) { return __builtin_fminf(x - floor(x), 0x1.fffffep-1f); }
SM_FN half fract(half x) { return (half)__builtin_fminf((float)x - __builtin_floorf((float)x), 0x1.ffcp-1f); }

SM_FN float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? flushed(x) : 0.0f; }
SM_FN float saturate(float x) { return __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f); }

// The exponent of a finite, non-zero number.
SM_FN int exponent(float x) { return (int)(__builtin_bit_cast(uint, x) >> 23 & 255) - 127; }
SM_FN int ilogb(float x) {
  x = flushed(x);
  constexpr int max_int = 0x7fffffff;
  if (x == 0 || x != x) return -max_int - 1;
  return __builtin_isinf(x) ? max_int : exponent(x);
}
SM_FN float frexp(float x, int& e) {
  x = flushed(x);
  uint bits = __builtin_bit_cast(uint, x);
  bool special = x == 0 || (bits & 0x7f800000) == 0x7f800000;
  e = special ? 0 : exponent(x) + 1;
  return special ? x : __builtin_bit_cast(float, (bits & 0x807fffff) | 0x3f000000);
}
// In three multiplications, whose factors are all normal numbers.
SM_FN float ldexp(float x, int k) {
  k = k < -300 ? -300 : k > 300 ? 300 : k;
  int third = k / 3;
  float factor = __builtin_bit_cast(float, (uint)(third + 127) << 23);
  return x * factor * factor * __builtin_bit_cast(float, (uint)(k - 2 * third + 127) << 23);
}

// On the bits, since the neighbour of zero is subnormal.
SM_FN float nextafter(float x, float y) {
  uint from = __builtin_bit_cast(uint, x), to = __builtin_bit_cast(uint, y);
  if (x != x || y != y) return x + y;
  if (from == to || (from | to) << 1 == 0) return y;
  if (from << 1 == 0) return __builtin_bit_cast(float, (to & 0x80000000) | 1);
  bool away = from >> 31 == to >> 31 && (to & 0x7fffffff) > (from & 0x7fffffff);
  return __builtin_bit_cast(float, away ? from + 1 : from - 1);
}
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
