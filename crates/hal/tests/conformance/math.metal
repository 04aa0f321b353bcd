// Mathematical functions, in the precise, fast and half-precision forms.
#include <metal_stdlib>
using namespace metal;

// x is any number, u is in [-1, 1], p is positive. Results are ordered by function: out[k * n + i].
struct Arguments {
  float x;
  float u;
  float p;
  float y;
};

kernel void precise_functions(const device Arguments* in [[buffer(0)]], device float* out [[buffer(1)]],
                              uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
  Arguments a = in[i];
  device float* o = out + i;
  o[0 * n] = precise::acos(a.u);
  o[1 * n] = precise::acosh(1.0f + a.p);
  o[2 * n] = precise::asin(a.u);
  o[3 * n] = precise::asinh(a.x);
  o[4 * n] = precise::atan(a.x);
  o[5 * n] = precise::atanh(a.u * 0.9375f);
  o[6 * n] = precise::cos(a.x);
  o[7 * n] = precise::cosh(a.x);
  o[8 * n] = precise::cospi(a.x);
  o[9 * n] = precise::exp(a.x);
  o[10 * n] = precise::exp2(a.x);
  o[11 * n] = precise::exp10(a.x);
  o[12 * n] = precise::log(a.p);
  o[13 * n] = precise::log2(a.p);
  o[14 * n] = precise::log10(a.p);
  o[15 * n] = precise::sin(a.x);
  o[16 * n] = precise::sinh(a.x);
  o[17 * n] = precise::sinpi(a.x);
  o[18 * n] = precise::tan(a.x);
  o[19 * n] = precise::tanh(a.x);
  o[20 * n] = precise::tanpi(a.x);
  o[21 * n] = precise::sqrt(a.p);
  o[22 * n] = precise::rsqrt(a.p);
  o[23 * n] = precise::atan2(a.y, a.x);
  o[24 * n] = precise::pow(a.p, a.y);
  o[25 * n] = precise::powr(a.p, a.y);
  o[26 * n] = fma(a.x, a.y, a.u);
  o[27 * n] = a.x / a.p;
  o[28 * n] = 1.0f / a.p;
}

kernel void fast_functions(const device Arguments* in [[buffer(0)]], device float* out [[buffer(1)]],
                           uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
  Arguments a = in[i];
  device float* o = out + i;
  o[0 * n] = fast::acos(a.u);
  o[1 * n] = fast::acosh(1.0f + a.p);
  o[2 * n] = fast::asin(a.u);
  o[3 * n] = fast::asinh(a.x);
  o[4 * n] = fast::atan(a.x);
  o[5 * n] = fast::atanh(a.u * 0.9375f);
  o[6 * n] = fast::cos(a.u * 3);
  o[7 * n] = fast::cosh(a.x);
  o[8 * n] = fast::cospi(a.u);
  o[9 * n] = fast::exp(a.x);
  o[10 * n] = fast::exp2(a.x);
  o[11 * n] = fast::exp10(a.x);
  o[12 * n] = fast::log(a.p);
  o[13 * n] = fast::log2(a.p);
  o[14 * n] = fast::log10(a.p);
  o[15 * n] = fast::sin(a.u * 3);
  o[16 * n] = fast::sinh(a.x);
  o[17 * n] = fast::sinpi(a.u);
  o[18 * n] = fast::tan(a.u);
  o[19 * n] = fast::tanh(a.x);
  o[20 * n] = fast::tanpi(a.u * 0.25f);
  o[21 * n] = fast::sqrt(a.p);
  o[22 * n] = fast::rsqrt(a.p);
  o[23 * n] = fast::atan2(a.y, a.x);
  o[24 * n] = fast::pow(a.p, a.y);
  o[25 * n] = fast::powr(a.p, a.y);
  o[26 * n] = fast::divide(a.x, a.p);
}

// Without a namespace the options of the library decide; the fast bounds apply in any case.
kernel void plain_functions(const device Arguments* in [[buffer(0)]], device float* out [[buffer(1)]],
                            uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
  Arguments a = in[i];
  device float* o = out + i;
  o[0 * n] = exp(a.x);
  o[1 * n] = exp2(a.x);
  o[2 * n] = exp10(a.x);
  o[3 * n] = log(a.p);
  o[4 * n] = log2(a.p);
  o[5 * n] = log10(a.p);
  o[6 * n] = sqrt(a.p);
  o[7 * n] = rsqrt(a.p);
  o[8 * n] = pow(a.p, a.y);
  o[9 * n] = tanh(a.x);
  float cosine;
  o[10 * n] = sincos(a.u * 3, cosine);
  o[11 * n] = cosine;
  o[12 * n] = metal::atan(a.x);
  float4 v = exp(float4(a.x, a.u, 0, 1));
  o[13 * n] = v.x;
  o[14 * n] = metal::precise::exp(float2(a.u, a.x)).y;
}

// Functions whose results are exact, or correctly rounded.
kernel void exact_functions(const device Arguments* in [[buffer(0)]], device float* out [[buffer(1)]],
                            device int* ints [[buffer(2)]], uint i [[thread_position_in_grid]],
                            uint n [[threads_per_grid]]) {
  float x = in[i].x, y = in[i].y;
  device float* o = out + i;
  o[0 * n] = ceil(x);
  o[1 * n] = floor(x);
  o[2 * n] = trunc(x);
  o[3 * n] = round(x);
  o[4 * n] = rint(x);
  o[5 * n] = fabs(x);
  o[6 * n] = fract(x);
  o[7 * n] = fdim(x, y);
  o[8 * n] = fmod(x, y);
  o[9 * n] = copysign(x, y);
  o[10 * n] = ldexp(x, 3);
  int exponent;
  o[11 * n] = frexp(x, exponent);
  float whole;
  o[12 * n] = modf(x, whole);
  o[13 * n] = whole;
  o[14 * n] = fmin(x, y);
  o[15 * n] = fmax(x, y);
  o[16 * n] = fmin3(x, y, 1.0f);
  o[17 * n] = fmax3(x, y, 1.0f);
  o[18 * n] = fmedian3(x, y, 1.0f);
  o[19 * n] = clamp(x, -2.0f, 2.0f);
  o[20 * n] = saturate(x);
  o[21 * n] = sign(x);
  o[22 * n] = step(x, y);
  o[23 * n] = nextafter(x, INFINITY);
  o[24 * n] = fast::clamp(x, -1.0f, 1.0f) + fast::fmin(x, y) + fast::fmax(x, 3.0f);
  o[25 * n] = select(x, y, x < y);
  o[26 * n] = abs(x);
  ints[2 * i] = ilogb(x);
  ints[2 * i + 1] = exponent;
}

kernel void half_functions(const device Arguments* in [[buffer(0)]], device half* out [[buffer(1)]],
                           uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
  half x = half(in[i].x), u = half(in[i].u), p = half(in[i].p);
  device half* o = out + i;
  o[0 * n] = exp(x);
  o[1 * n] = exp2(x);
  o[2 * n] = log(p);
  o[3 * n] = log2(p);
  o[4 * n] = sqrt(p);
  o[5 * n] = rsqrt(p);
  o[6 * n] = sin(u);
  o[7 * n] = cos(u);
  o[8 * n] = tanh(x);
  o[9 * n] = acos(u);
  o[10 * n] = asin(u);
  o[11 * n] = atan(x);
  o[12 * n] = sinh(u);
  o[13 * n] = cosh(u);
  o[14 * n] = log10(p);
  o[15 * n] = exp10(u);
  o[16 * n] = sinpi(u);
  o[17 * n] = fma(x, u, p);
  o[18 * n] = floor(x);
  o[19 * n] = clamp(x, half(-1), half(1));
  o[20 * n] = max(x, u);
  o[21 * n] = exp(half2(x, u)).x;
}

kernel void constants(device float* out [[buffer(0)]]) {
  out[0] = M_PI_F;
  out[1] = M_E_F;
  out[2] = M_LOG2E_F;
  out[3] = M_LN2_F;
  out[4] = M_SQRT2_F;
  out[5] = M_1_PI_F;
  out[6] = M_PI_2_F;
  out[7] = FLT_MAX;
  out[8] = FLT_MIN;
  out[9] = FLT_EPSILON;
  out[10] = INFINITY;
  out[11] = HALF_MAX;
  out[12] = float(M_PI_H);
  out[13] = numeric_limits<float>::max();
  out[14] = numeric_limits<half>::max();
  out[15] = float(numeric_limits<int>::min());
  out[16] = numeric_limits<float>::infinity();
  out[17] = numeric_limits<uchar>::max();
  out[18] = isnan(NAN) ? 1 : 0;
  out[19] = isnan(numeric_limits<float>::quiet_NaN()) ? 1 : 0;
  out[20] = numeric_limits<float>::lowest();
  out[21] = float(INT_MAX);
  out[22] = float(CHAR_BIT) + float(UCHAR_MAX) + float(SHRT_MAX);
}
