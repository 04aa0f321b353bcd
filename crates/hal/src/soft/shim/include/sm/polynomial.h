// The elementary functions that machine-learning kernels live on, as arithmetic without branches or
// calls: inside a region the compiler can then run many lanes at once, and a lane's result does not
// depend on whether it did.
//
// Each reduces its argument to a small interval and evaluates a minimax polynomial (Remez fits of the
// expression named in the comment, rounded to float). Errors measured over all sampled floats are
// below 1.6 ULP; MSL allows 3 to 5.
#pragma once

// Whatever the user's math mode: reordering would undo the reductions. (Only here: under this pragma
// clang takes calls of the C library to set errno, and sqrt is no longer an instruction.)
#pragma float_control(precise, on, push)
namespace sm {
namespace polynomial {
// One rounding on every processor; those without the instruction call a function for it.
SM_FN float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// A float rounded to an integer, as float and as int. Adding 1.5 * 2^23 leaves the integer in the
// last bits, which is cheaper than a conversion. |x| must stay far below 2^22.
struct rounded {
  float value;
  int integer;
};
SM_FN rounded nearest(float x) {
  float value = __builtin_rintf(x);
  return {value, (int)(__builtin_bit_cast(uint, value + 0x1.8p23f) - 0x4b400000u)};
}

// x * 2^k in two steps, so that results may be infinite, or zero where they would be subnormal.
SM_FN float scale(float x, int k) {
  int half_k = k >> 1;
  float first = __builtin_bit_cast(float, (uint)(half_k + 127) << 23);
  float second = __builtin_bit_cast(float, (uint)(k - half_k + 127) << 23);
  return x * first * second;
}

// Comparisons that let a NaN through.
SM_FN float limit(float x, float low, float high) {
  x = x > high ? high : x;
  return x < low ? low : x;
}

// e^r = 1 + r + r^2 P(r) for |r| <= ln(2) / 2.
SM_FN float exp_near_zero(float r) {
  float p = 0x1.6a1a6ep-10f;
  p = fused(p, r, 0x1.123fc6p-7f);
  p = fused(p, r, 0x1.555916p-5f);
  p = fused(p, r, 0x1.55548ap-3f);
  p = fused(p, r, 0x1.fffffcp-2f);
  return fused(p, r * r, r) + 1.0f;
}

SM_FN float exp(float x) {
  x = limit(x, -104.0f, 89.0f);
  rounded k = nearest(x * 0x1.715476p0f);
  // ln(2) in two parts; the first has few enough bits for an exact product with k.
  float r = fused(k.value, -0x1.62e4p-1f, x);
  r = fused(k.value, -0x1.7f7d1cp-20f, r);
  return scale(exp_near_zero(r), k.integer);
}

// 2^r = 1 + r P(r) for |r| <= 1/2.
SM_FN float exp2(float x) {
  x = limit(x, -151.0f, 129.0f);
  rounded k = nearest(x);
  float r = x - k.value;
  float p = 0x1.449476p-13f;
  p = fused(p, r, 0x1.5f4d14p-10f);
  p = fused(p, r, 0x1.3b29a4p-7f);
  p = fused(p, r, 0x1.c6aec4p-5f);
  p = fused(p, r, 0x1.ebfbe0p-3f);
  p = fused(p, r, 0x1.62e430p-1f);
  return scale(fused(p, r, 1.0f), k.integer);
}

SM_FN float exp10(float x) {
  x = limit(x, -46.0f, 39.0f);
  rounded k = nearest(x * 0x1.a934f0p1f);
  // log10(2) in two parts, then the rest times ln(10) in two parts.
  float rest = fused(k.value, -0x1.344136p-2f, x);
  rest = fused(k.value, 0x1.ec10c0p-27f, rest);
  float r = fused(rest, 0x1.26bb1cp1f, rest * -0x1.12aabap-25f);
  return scale(exp_near_zero(r), k.integer);
}

// x = 2^exponent * (1 + fraction), with 1 + fraction between sqrt(1/2) and sqrt(2).
struct split {
  float exponent, fraction;
};
SM_FN split split_exponent(float x) {
  bool small = x < 0x1p-126f;
  uint bits = __builtin_bit_cast(uint, small ? x * 0x1p23f : x);
  int exponent = (int)(bits - 0x3f3504f3u) >> 23;
  float mantissa = __builtin_bit_cast(float, bits - ((uint)exponent << 23));
  return {(float)(small ? exponent - 23 : exponent), mantissa - 1.0f};
}
// ln(1 + f) - f = -f^2 / 2 + f^3 P(f).
SM_FN float log_rest(float f) {
  float p = -0x1.38c1a2p-4f;
  p = fused(p, f, 0x1.056496p-3f);
  p = fused(p, f, -0x1.0d875ap-3f);
  p = fused(p, f, 0x1.22d90ap-3f);
  p = fused(p, f, -0x1.5471f6p-3f);
  p = fused(p, f, 0x1.99a012p-3f);
  p = fused(p, f, -0x1.000228p-2f);
  p = fused(p, f, 0x1.555554p-2f);
  float square = f * f;
  return fused(square * f, p, -0.5f * square);
}
// The result r where the logarithm of x is a finite number.
SM_FN float log_or_special(float x, float r) {
  r = x == 0.0f ? -__builtin_inff() : r;
  r = x < 0.0f ? __builtin_nanf("") : r;
  return x < __builtin_inff() ? r : x;  // infinity and NaN
}
SM_FN float log(float x) {
  split s = split_exponent(x);
  float r = fused(s.exponent, 0x1.7f7d1cp-20f, log_rest(s.fraction)) + s.fraction;
  return log_or_special(x, fused(s.exponent, 0x1.62e4p-1f, r));
}
SM_FN float log2(float x) {
  split s = split_exponent(x);
  constexpr float high = 0x1.715476p0f, low = 0x1.4ae0c0p-26f;  // 1 / ln(2)
  float rest = fused(s.fraction, low, log_rest(s.fraction) * high);
  return log_or_special(x, fused(s.fraction, high, rest) + s.exponent);
}

// x + x^3 P(x^2) near zero, elsewhere 1 - 2 / (e^(2 |x|) + 1).
SM_FN float tanh(float x) {
  float z = x * x;
  float p = -0x1.722b0ap-8f;
  p = fused(p, z, 0x1.5157fep-6f);
  p = fused(p, z, -0x1.b81dc2p-5f);
  p = fused(p, z, 0x1.110646p-3f);
  p = fused(p, z, -0x1.55552ep-2f);
  float near_zero = fused(p * z, x, x);
  float far = 1.0f - 2.0f / (exp(2.0f * __builtin_fabsf(x)) + 1.0f);
  return z < 0.4f ? near_zero : __builtin_copysignf(far, x);
}

// x = quadrant * pi / 2 + rest, with |rest| <= pi / 4. Reduced in double with pi / 2 in two parts, which
// leaves no error that a float could show while |x| < 2^30; beyond that the result is a number
// between -1 and 1 and no more, which only fast math allows.
struct angle {
  float rest;
  uint quadrant;
};
SM_FN angle reduced(float x) {
  double turns = __builtin_rint((double)x * 0x1.45f306dc9c883p-1);
  double rest = __builtin_fma(turns, -0x1.921fb54442d18p0, (double)x);
  rest = __builtin_fma(turns, -0x1.1a62633145c07p-54, rest);
  return {limit((float)rest, -1.0f, 1.0f), (uint)__builtin_bit_cast(ulong, turns + 0x1.8p52)};
}
// sin r = r + r^3 S(r^2), cos r = 1 - r^2 / 2 + r^4 C(r^2); odd quadrants swap the two.
SM_FN float sin_in_quadrant(float r, uint quadrant) {
  float z = r * r;
  float s = 0x1.6ccf5ep-19f;
  s = fused(s, z, -0x1.a00f74p-13f);
  s = fused(s, z, 0x1.111108p-7f);
  s = fused(s, z, -0x1.555556p-3f);
  float sine = fused(s * z, r, r);
  float c = -0x1.241caap-22f;
  c = fused(c, z, 0x1.a010d6p-16f);
  c = fused(c, z, -0x1.6c16b8p-10f);
  c = fused(c, z, 0x1.555556p-5f);
  float cosine = fused(c * z, z, fused(-0.5f, z, 1.0f));
  float chosen = quadrant & 1 ? cosine : sine;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint, chosen) ^ (quadrant & 2) << 30);
}
SM_FN float sin(float x) {
  angle a = reduced(x);
  return sin_in_quadrant(a.rest, a.quadrant);
}
SM_FN float cos(float x) {
  angle a = reduced(x);
  return sin_in_quadrant(a.rest, a.quadrant + 1);
}
}  // namespace polynomial
}  // namespace sm
#pragma float_control(pop)
