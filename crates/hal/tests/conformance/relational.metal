// Relational functions and special values, compiled with safe maths.
#include <metal_stdlib>
using namespace metal;

template <typename T>
kernel void classify(const device T* in [[buffer(0)]], device uint* out [[buffer(1)]],
                     uint i [[thread_position_in_grid]]) {
  T x = in[i];
  uint bits = 0;
  bits |= isfinite(x) ? 1 : 0;
  bits |= isinf(x) ? 2 : 0;
  bits |= isnan(x) ? 4 : 0;
  bits |= isnormal(x) ? 8 : 0;
  bits |= signbit(x) ? 16 : 0;
  bits |= isordered(x, x) ? 32 : 0;
  bits |= isunordered(x, T(1)) ? 64 : 0;
  bits |= x == x ? 128 : 0;
  bits |= x < T(1) ? 256 : 0;
  bits |= !(x >= T(1)) ? 512 : 0;
  out[i] = bits;
}
template [[host_name("classify_float")]] [[kernel]] decltype(classify<float>) classify<float>;
template [[host_name("classify_half")]] [[kernel]] decltype(classify<half>) classify<half>;

kernel void vector_relational(const device float4* in [[buffer(0)]], device uint* out [[buffer(1)]]) {
  float4 x = in[0], y = in[1];  // {1, NaN, -inf, -0}, {2, 3, NaN, 0}
  uint n = 0;
  out[n++] = all(x == x);
  out[n++] = any(x != x);
  out[n++] = any(isnan(x.xzw));
  out[n++] = all(isfinite(x.xw));
  bool4 nan = isnan(x);
  for (uint k = 0; k < 4; k++) out[n++] = nan[k];
  bool4 unordered = isunordered(x, y);
  for (uint k = 0; k < 4; k++) out[n++] = unordered[k];
  bool4 sign = signbit(x);
  for (uint k = 0; k < 4; k++) out[n++] = sign[k];
  bool4 inverted = not(nan);
  for (uint k = 0; k < 4; k++) out[n++] = inverted[k];
  int4 chosen = select(int4(1, 2, 3, 4), int4(10, 20, 30, 40), nan);
  for (uint k = 0; k < 4; k++) out[n++] = chosen[k];
  out[n++] = uint(select(1.0f, 2.0f, x.x < y.x));
  out[n++] = uint(select(short(5), short(6), false));
  out[n++] = all(bool2(true, false));
  out[n++] = any(bool2(true, false));
  out[n++] = all(x.xw <= y.xw);
}

// NaN, infinities and signed zeros through arithmetic and functions.
kernel void special_values(const device float* in [[buffer(0)]], device float* out [[buffer(1)]]) {
  float nan = in[0], inf = in[1], zero = in[2], negative_zero = in[3], one = in[4];
  uint n = 0;
  out[n++] = fmin(nan, one);
  out[n++] = fmax(one, nan);
  out[n++] = fmin(nan, nan);
  out[n++] = fmax(-inf, one);
  out[n++] = inf - inf;
  out[n++] = one / zero;
  out[n++] = one / negative_zero;
  out[n++] = zero * inf;
  out[n++] = negative_zero + zero;
  out[n++] = negative_zero - zero;
  out[n++] = copysign(one, negative_zero);
  out[n++] = abs(negative_zero);
  out[n++] = precise::sqrt(-one);
  out[n++] = precise::sqrt(negative_zero);
  out[n++] = precise::log(zero);
  out[n++] = precise::log(-one);
  out[n++] = precise::exp(-inf);
  out[n++] = precise::exp(inf);
  out[n++] = precise::pow(zero, zero);
  out[n++] = precise::atan(inf);
  out[n++] = precise::tanh(inf);
  out[n++] = floor(negative_zero);
  out[n++] = trunc(-0.5f * one);
  out[n++] = rint(-0.4f * one);
  out[n++] = sign(negative_zero);
  out[n++] = sign(nan);
  out[n++] = fmod(one, inf);
  out[n++] = fma(inf, zero, one);
  out[n++] = precise::rsqrt(zero);
  out[n++] = precise::atan2(negative_zero, -one);
  out[n++] = precise::sin(negative_zero);
  out[n++] = precise::cos(inf);
  out[n++] = precise::clamp(nan, zero, one);
  out[n++] = precise::saturate(nan);
}
