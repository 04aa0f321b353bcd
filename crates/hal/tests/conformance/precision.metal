// Half and bfloat round at every operation: computed in float and rounded once, each of these differs.
#include <metal_stdlib>
using namespace metal;

template <typename T>
kernel void every_operation(const device T* in [[buffer(0)]], device T* out [[buffer(1)]],
                            uint i [[thread_position_in_grid]]) {
  T a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
  device T* o = out + 8 * i;
  o[0] = a + b + c;
  o[1] = a - b - c;
  o[2] = a * b * c;
  o[3] = a / b / c;
  o[4] = (a + b) * c;
  T sum = a;
  sum += b;
  sum -= a;
  o[5] = sum;
  vec<T, 2> v = vec<T, 2>(a, b) + vec<T, 2>(b, c);
  o[6] = v.x - a;
  o[7] = v.y * a;
}
template [[host_name("every_half")]] [[kernel]] decltype(every_operation<half>) every_operation<half>;
template [[host_name("every_bfloat")]] [[kernel]] decltype(every_operation<bfloat>) every_operation<bfloat>;

// Overflow is not hidden by a wider format.
kernel void overflow(const device half* in [[buffer(0)]], device half* out [[buffer(1)]]) {
  half a = in[0], b = in[1];
  out[0] = a + a - a;
  out[1] = a * b / b;
  half sum = 0.0h;
  for (int i = 0; i < 4; i++) sum += a;
  out[2] = sum;
  out[3] = fma(a, half(0.5), b);
}

// A loop of additions in each format.
template <typename T>
kernel void long_sum(const device T* in [[buffer(0)]], device T* out [[buffer(1)]], constant uint& n [[buffer(2)]]) {
  T sum = T(0);
  for (uint i = 0; i < n; i++) sum += in[i];
  out[0] = sum;
}
template [[host_name("sum_half")]] [[kernel]] decltype(long_sum<half>) long_sum<half>;
template [[host_name("sum_bfloat")]] [[kernel]] decltype(long_sum<bfloat>) long_sum<bfloat>;
template [[host_name("sum_float")]] [[kernel]] decltype(long_sum<float>) long_sum<float>;

// Mixed operands: the usual conversions make the operation single precision.
kernel void mixed_operands(const device half* h [[buffer(0)]], const device float* f [[buffer(1)]],
                           device float* out [[buffer(2)]]) {
  out[0] = h[0] + f[0];
  out[1] = h[0] * 2.0f;
  out[2] = float(h[0] * 2.0h);
  out[3] = h[0] + 1;
  out[4] = float(h[0]) + float(h[1]);
  out[5] = h[0] + h[1];
}
