// The elementary functions that dominate machine-learning kernels, as arithmetic without branches or
// calls: the compiler can vectorise them over lanes, and a lane's result does not depend on whether it
// does.
//
// Each reduces its argument to a small interval and evaluates a minimax polynomial (Remez fits of the
// expression named in the comment, rounded to float). Errors measured over all sampled floats are
// below 1.6 ULP; MSL allows 3 to 5.
#pragma once

// Independent of the user's math mode: reassociation would undo the range reductions. (Only here: under
// this pragma clang assumes that calls of the C library set errno, and sqrt is no longer an instruction.)
#pragma float_control(precise, on, push)
namespace sm {
namespace polynomial {
// Rounds once on every processor; those without the instruction call a function.
SM_FN float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

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

// x * 2^k in two multiplications, so that results may be infinite, or zero if they would be subnormal.
SM_FN float scale(float x, int k) {
  int half_k = k >> 1;
  float first = __builtin_bit_cast(float, (uint)(half_k + 127) << 23);
  float second = __builtin_bit_cast(float, (uint)(k - half_k + 127) << 23);
  return x * first * second;
}

// Clamps; comparisons are written such that a NaN passes through.
SM_FN float clamp(float x, float low, float high) {
  x = x > high ? high : x;
  return x < low ? low : x;
}

// e^r = 1 + r + r^2 P(r) for |r| <= ln(2) / 2.
SM_FN float exp_near_zero(float r) {
  float p = 0x1.6a1a6ep-10f;
  p = fma(p, r, 0x1.123fc6p-7f);
  p = fma(p, r, 0x1.555916p-5f);
  p = fma(p, r, 0x1.55548ap-3f);
  p = fma(p, r, 0x1.fffffcp-2f);
  return fma(p, r * r, r) + 1.0f;
}

SM_FN float exp(float x) {
  x = clamp(x, -104.0f, 89.0f);
  rounded k = nearest(x * 0x1.715476p0f);
  // ln(2) in two parts; the first has few enough bits for an exact product with k.
  float r = fma(k.value, -0x1.62e4p-1f, x);
  r = fma(k.value, -0x1.7f7d1cp-20f, r);
  return scale(exp_near_zero(r), k.integer);
}

// 2^r = 1 + r P(r) for |r| <= 1/2.
SM_FN float exp2(float x) {
  x = clamp(x, -151.0f, 129.0f);
  rounded k = nearest(x);
  float r = x - k.value;
  float p = 0x1.449476p-13f;
  p = fma(p, r, 0x1.5f4d14p-10f);
  p = fma(p, r, 0x1.3b29a4p-7f);
  p = fma(p, r, 0x1.c6aec4p-5f);
  p = fma(p, r, 0x1.ebfbe0p-3f);
  p = fma(p, r, 0x1.62e430p-1f);
  return scale(fma(p, r, 1.0f), k.integer);
}

SM_FN float exp10(float x) {
  x = clamp(x, -46.0f, 39.0f);
  rounded k = nearest(x * 0x1.a934f0p1f);
  // log10(2) in two parts, then the rest times ln(10) in two parts.
  float rest = fma(k.value, -0x1.344136p-2f, x);
  rest = fma(k.value, 0x1.ec10c0p-27f, rest);
  float r = fma(rest, 0x1.26bb1cp1f, rest * -0x1.12aabap-25f);
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
  p = fma(p, f, 0x1.056496p-3f);
  p = fma(p, f, -0x1.0d875ap-3f);
  p = fma(p, f, 0x1.22d90ap-3f);
  p = fma(p, f, -0x1.5471f6p-3f);
  p = fma(p, f, 0x1.99a012p-3f);
  p = fma(p, f, -0x1.000228p-2f);
  p = fma(p, f, 0x1.555554p-2f);
  float square = f * f;
  return fma(square * f, p, -0.5f * square);
}
// The result r if the logarithm of x is finite, otherwise the special value.
SM_FN float log_or_special(float x, float r) {
  r = x == 0.0f ? -__builtin_inff() : r;
  r = x < 0.0f ? __builtin_nanf("") : r;
  return x < __builtin_inff() ? r : x;  // infinity and NaN
}
SM_FN float log(float x) {
  split s = split_exponent(x);
  float r = fma(s.exponent, 0x1.7f7d1cp-20f, log_rest(s.fraction)) + s.fraction;
  return log_or_special(x, fma(s.exponent, 0x1.62e4p-1f, r));
}
SM_FN float log2(float x) {
  split s = split_exponent(x);
  constexpr float high = 0x1.715476p0f, low = 0x1.4ae0c0p-26f;  // 1 / ln(2)
  float rest = fma(s.fraction, low, log_rest(s.fraction) * high);
  return log_or_special(x, fma(s.fraction, high, rest) + s.exponent);
}

// x + x^3 P(x^2) near zero, elsewhere 1 - 2 / (e^(2 |x|) + 1).
SM_FN float tanh(float x) {
  float z = x * x;
  float p = -0x1.722b0ap-8f;
  p = fma(p, z, 0x1.5157fep-6f);
  p = fma(p, z, -0x1.b81dc2p-5f);
  p = fma(p, z, 0x1.110646p-3f);
  p = fma(p, z, -0x1.55552ep-2f);
  float near_zero = fma(p * z, x, x);
  float far = 1.0f - 2.0f / (exp(2.0f * __builtin_fabsf(x)) + 1.0f);
  return z < 0.4f ? near_zero : __builtin_copysignf(far, x);
}

// x = quadrant * pi / 2 + rest, with |rest| <= pi / 4. Reduced in double with pi / 2 in two parts, which
// leaves no error that is visible in a float while |x| < 2^30; beyond that the result is an arbitrary
// number between -1 and 1, which only fast math allows.
struct angle {
  float rest;
  uint quadrant;
};
SM_FN angle reduced(float x) {
  double quarter_turns = __builtin_rint((double)x * 0x1.45f306dc9c883p-1);
  double rest = __builtin_fma(quarter_turns, -0x1.921fb54442d18p0, (double)x);
  rest = __builtin_fma(quarter_turns, -0x1.1a62633145c07p-54, rest);
  return {clamp((float)rest, -1.0f, 1.0f), (uint)__builtin_bit_cast(ulong, quarter_turns + 0x1.8p52)};
}
// sin r = r + r^3 S(r^2), cos r = 1 - r^2 / 2 + r^4 C(r^2); odd quadrants swap the two.
SM_FN float sin_in_quadrant(float r, uint quadrant) {
  float z = r * r;
  float s = 0x1.6ccf5ep-19f;
  s = fma(s, z, -0x1.a00f74p-13f);
  s = fma(s, z, 0x1.111108p-7f);
  s = fma(s, z, -0x1.555556p-3f);
  float sine = fma(s * z, r, r);
  float c = -0x1.241caap-22f;
  c = fma(c, z, 0x1.a010d6p-16f);
  c = fma(c, z, -0x1.6c16b8p-10f);
  c = fma(c, z, 0x1.555556p-5f);
  float cosine = fma(c * z, z, fma(-0.5f, z, 1.0f));
  float selected = quadrant & 1 ? cosine : sine;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint, selected) ^ (quadrant & 2) << 30);
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
