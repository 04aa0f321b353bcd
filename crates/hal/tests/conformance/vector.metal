// Vectors: swizzles, constructors, operators, layout.
#include <metal_stdlib>
using namespace metal;

template <typename T>
void put(device T* thread& o, T v) {
  *o++ = v;
}
template <typename T>
void put(device T* thread& o, vec<T, 2> v) {
  *o++ = v.x;
  *o++ = v.y;
}
template <typename T>
void put(device T* thread& o, vec<T, 3> v) {
  *o++ = v.x;
  *o++ = v.y;
  *o++ = v.z;
}
template <typename T>
void put(device T* thread& o, vec<T, 4> v) {
  *o++ = v.x;
  *o++ = v.y;
  *o++ = v.z;
  *o++ = v.w;
}

// in = {1, 2, 3, 4} throughout.
template <typename T>
kernel void swizzles(const device vec<T, 4>* in [[buffer(0)]], device T* out [[buffer(1)]]) {
  device T* o = out;
  vec<T, 4> v = in[0];
  put(o, v.zx);               // 3 1
  put(o, v.wzyx);             // 4 3 2 1
  put(o, v.xxy);              // 1 1 2
  put(o, v.rgb);              // 1 2 3
  put(o, v.a);                // 4
  put(o, v.bgra.xy);          // 3 2
  put(o, in[0].yw);           // 2 4
  vec<T, 4> w = v;
  w.xy = vec<T, 2>(T(7), T(8));
  put(o, w);                  // 7 8 3 4
  w = v;
  w.wx = v.xw;
  put(o, w);                  // 4 2 3 1
  w = v;
  w.xy = w.yx;
  put(o, w);                  // 2 1 3 4
  w = v;
  w.yzw += v.xxx;
  put(o, w);                  // 1 3 4 5
  w = v;
  w.xz *= T(2);
  put(o, w);                  // 2 2 6 4
  w = v;
  w.z -= T(1);
  w.b += T(4);
  put(o, w);                  // 1 2 6 4
  w = v;
  w[2] = T(9);
  for (uint i = 0; i < 4; i++) w[i] = w[i] + T(i);
  put(o, w);                  // 1 3 11 7
  vec<T, 3> t(v.xyz);
  t.yz = t.zy;
  put(o, t);                  // 1 3 2
  device vec<T, 4>* d = (device vec<T, 4>*)(out + 48);
  d->xy = v.zw;
  d->zw = v.xy;
  d->x += T(1);               // 4 4 1 2
}
template [[host_name("swizzles_float")]] [[kernel]] decltype(swizzles<float>) swizzles<float>;
template [[host_name("swizzles_half")]] [[kernel]] decltype(swizzles<half>) swizzles<half>;
template [[host_name("swizzles_bfloat")]] [[kernel]] decltype(swizzles<bfloat>) swizzles<bfloat>;
template [[host_name("swizzles_int")]] [[kernel]] decltype(swizzles<int>) swizzles<int>;
template [[host_name("swizzles_uint")]] [[kernel]] decltype(swizzles<uint>) swizzles<uint>;
template [[host_name("swizzles_short")]] [[kernel]] decltype(swizzles<short>) swizzles<short>;
template [[host_name("swizzles_ushort")]] [[kernel]] decltype(swizzles<ushort>) swizzles<ushort>;
template [[host_name("swizzles_char")]] [[kernel]] decltype(swizzles<char>) swizzles<char>;
template [[host_name("swizzles_uchar")]] [[kernel]] decltype(swizzles<uchar>) swizzles<uchar>;
template [[host_name("swizzles_long")]] [[kernel]] decltype(swizzles<long>) swizzles<long>;
template [[host_name("swizzles_ulong")]] [[kernel]] decltype(swizzles<ulong>) swizzles<ulong>;

kernel void constructors(const device float4* in [[buffer(0)]], device float* out [[buffer(1)]]) {
  device float* o = out;
  float4 v = in[0];                              // 1.5 -2.5 3.5 300
  put(o, float4(2));                             // 2 2 2 2
  put(o, float4(v.xy, 5, 6));                    // 1.5 -2.5 5 6
  put(o, float4(7, v.yz, 8));                    // 7 -2.5 3.5 8
  put(o, float4(v.zw, v.xy));                    // 3.5 300 1.5 -2.5
  put(o, float4(v.xyz, 9));                      // 1.5 -2.5 3.5 9
  put(o, float4(9, v.xyz));                      // 9 1.5 -2.5 3.5
  put(o, float3(v.xy, 1));                       // 1.5 -2.5 1
  put(o, float3(1, v.xy));                       // 1 1.5 -2.5
  put(o, float2(v.x, v.w));                      // 1.5 300
  float3 braces = {1, 2, 3};
  put(o, braces);                                // 1 2 3
  float4 short_braces = float4{v.x, v.y, 0, 1};
  put(o, short_braces);                          // 1.5 -2.5 0 1
  int4 i = int4(v);
  put(o, float4(i));                             // 1 -2 3 300
  put(o, float4(uchar4(i & 255)));               // 1 254 3 44
  put(o, float4(half4(v)));                      // 1.5 -2.5 3.5 300
  put(o, float4(short4(i)) + float4(char4(1)));  // 2 -1 4 301
  bool4 b = bool4(v.x > 0, v.y > 0, true, false);
  put(o, float4(b));                             // 1 0 1 0
  float4 zero = 0;
  put(o, zero);                                  // 0 0 0 0
  float4 array[2] = {float4(1), {2, 3, 4, 5}};
  put(o, array[1]);                              // 2 3 4 5
  vec<float, 2> named = vec<float, 2>(v.zz);
  put(o, named);                                 // 3.5 3.5
  put(o, float2(int2(7, 8)));                    // 7 8
  constexpr float4 fixed = float4(1, 2, 3, 4);
  put(o, fixed.wz);                              // 4 3
}

template <typename T>
kernel void integer_operators(const device vec<T, 4>* in [[buffer(0)]], device T* out [[buffer(1)]]) {
  device T* o = out;
  vec<T, 4> a = in[0], b = in[1];
  put(o, a + b);
  put(o, a - b);
  put(o, a * b);
  put(o, a / b);
  put(o, a % b);
  put(o, a & b);
  put(o, a | b);
  put(o, a ^ b);
  put(o, ~a);
  put(o, -a);
  put(o, a << vec<T, 4>(T(1)));
  put(o, a >> vec<T, 4>(T(1)));
  put(o, a + T(3));
  put(o, T(3) - a);
  vec<T, 4> c = a;
  c += b;
  c <<= T(1);
  c ^= b;
  put(o, c);
  put(o, c++);
  put(o, --c);
  put(o, select(a, b, a < b));
  put(o, vec<T, 4>(a == b) + vec<T, 4>(a != b) * T(2));
  put(o, vec<T, 4>(a >= b) + vec<T, 4>(a <= b) * T(2) + vec<T, 4>(a > b) * T(4));
  put(o, a.x > b.x ? a : b);
}
template [[host_name("operators_int")]] [[kernel]] decltype(integer_operators<int>) integer_operators<int>;
template [[host_name("operators_uint")]] [[kernel]] decltype(integer_operators<uint>) integer_operators<uint>;
template [[host_name("operators_short")]] [[kernel]] decltype(integer_operators<short>) integer_operators<short>;
template [[host_name("operators_ushort")]] [[kernel]] decltype(integer_operators<ushort>) integer_operators<ushort>;
template [[host_name("operators_char")]] [[kernel]] decltype(integer_operators<char>) integer_operators<char>;
template [[host_name("operators_uchar")]] [[kernel]] decltype(integer_operators<uchar>) integer_operators<uchar>;
template [[host_name("operators_long")]] [[kernel]] decltype(integer_operators<long>) integer_operators<long>;

template <typename T>
kernel void float_operators(const device vec<T, 3>* in [[buffer(0)]], device T* out [[buffer(1)]]) {
  device T* o = out;
  vec<T, 3> a = in[0], b = in[1];  // {1, -2, 8}, {4, 2, -0.5}
  put(o, a + b);
  put(o, a - b);
  put(o, a * b);
  put(o, a / b);
  put(o, -a);
  put(o, a * T(2) + T(1));
  put(o, T(1) / b);
  vec<T, 3> c = a;
  c *= b;
  c -= T(1);
  c /= T(2);
  put(o, c);
  put(o, select(a, b, a < b));
  put(o, vec<T, 3>(!(a < b)));
  put(o, vec<T, 3>((a < b) && (a > T(-1))));
  put(o, vec<T, 3>((a < b) || (b < T(0))));
}
template [[host_name("operators_float")]] [[kernel]] decltype(float_operators<float>) float_operators<float>;
template [[host_name("operators_half")]] [[kernel]] decltype(float_operators<half>) float_operators<half>;
template [[host_name("operators_bfloat")]] [[kernel]] decltype(float_operators<bfloat>) float_operators<bfloat>;

template <typename T>
void layout_of(device uint* thread& o) {
  *o++ = sizeof(T);
  *o++ = alignof(T);
}
template <typename T>
void layouts_of(device uint* thread& o) {
  layout_of<T>(o);
  layout_of<vec<T, 2>>(o);
  layout_of<vec<T, 3>>(o);
  layout_of<vec<T, 4>>(o);
}
kernel void layouts(device uint* out [[buffer(0)]]) {
  device uint* o = out;
  layouts_of<char>(o);
  layouts_of<ushort>(o);
  layouts_of<half>(o);
  layouts_of<bfloat>(o);
  layouts_of<int>(o);
  layouts_of<float>(o);
  layouts_of<long>(o);
  layout_of<bool>(o);
  layout_of<packed_char3>(o);
  layout_of<packed_uchar4>(o);
  layout_of<packed_short2>(o);
  layout_of<packed_ushort3>(o);
  layout_of<packed_half3>(o);
  layout_of<packed_half4>(o);
  layout_of<packed_int3>(o);
  layout_of<packed_uint2>(o);
  layout_of<packed_float2>(o);
  layout_of<packed_float3>(o);
  layout_of<packed_float4>(o);
  layout_of<float2x2>(o);
  layout_of<float2x3>(o);
  layout_of<float3x3>(o);
  layout_of<float4x4>(o);
  layout_of<half2x4>(o);
  layout_of<half3x3>(o);
  layout_of<half4x4>(o);
  layout_of<size_t>(o);
  layout_of<device float*>(o);
}

struct Mixed {
  char tag;
  packed_float3 p;
  half h;
  float3 v;
  uchar2 pair;
  packed_half3 q;
  long wide;
  bool flag;
};
kernel void mixed_layout(const device Mixed* in [[buffer(0)]], device Mixed* out [[buffer(1)]],
                         device uint* size [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  Mixed m = in[i];
  m.tag += 1;
  m.p[1] = 20;
  m.h *= 2;
  m.v = float3(m.p) + m.v.zyx;
  m.pair = m.pair.yx;
  m.q[2] = half(3);
  m.wide = -m.wide;
  m.flag = !m.flag;
  out[i] = m;
  size[i] = sizeof(Mixed);
}

template <typename P, typename V, typename T>
kernel void packed_strides(const device P* in [[buffer(0)]], device P* out [[buffer(1)]],
                           device T* sums [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  V v = V(in[i]);
  out[i] = P(v + V(T(1)));
  P p = in[i];
  sums[i] = p[0] + p[1] + p[2];
}
template [[host_name("packed_float3_stride")]] [[kernel]] decltype(packed_strides<packed_float3, float3, float>) packed_strides<packed_float3, float3, float>;
template [[host_name("packed_half3_stride")]] [[kernel]] decltype(packed_strides<packed_half3, half3, half>) packed_strides<packed_half3, half3, half>;
template [[host_name("packed_int3_stride")]] [[kernel]] decltype(packed_strides<packed_int3, int3, int>) packed_strides<packed_int3, int3, int>;
template [[host_name("packed_uchar3_stride")]] [[kernel]] decltype(packed_strides<packed_uchar3, uchar3, uchar>) packed_strides<packed_uchar3, uchar3, uchar>;

// Vector accesses through pointers that reinterpret scalars.
kernel void reinterpreted(const device float* in [[buffer(0)]], device float* out [[buffer(1)]],
                          uint i [[thread_position_in_grid]]) {
  const device float4* in4 = (const device float4*)in;
  device float4* out4 = reinterpret_cast<device float4*>(out);
  out4[i] = in4[i].wzyx + *((const device float4*)(in + 4 * i));
}

kernel void vector_functions(const device float4* in [[buffer(0)]], device float* out [[buffer(1)]]) {
  device float* o = out;
  float3 a = in[0].xyz, b = in[1].xyz;  // {1, 2, 2}, {3, 0, 4}
  put(o, dot(a, b));                     // 11
  put(o, cross(a, b));                   // 8 2 -6
  put(o, length(a));                     // 3
  put(o, length_squared(b));             // 25
  put(o, distance_squared(a, b));        // 12
  put(o, distance(float2(1, 2), float2(4, 6)));  // 5
  put(o, normalize(float2(3, 4) * 8));   // 0.6 0.8
  put(o, reflect(float2(1, -1), float2(0, 1)));  // 1 1
  put(o, faceforward(b, float3(0, 0, 1), float3(0, 0, 1)));  // -3 0 -4
  put(o, refract(float2(0, -1), float2(0, 1), 0.5f));        // 0 -1
  put(o, fmin(a, b));                    // 1 0 2
  put(o, fmax(a, b));                    // 3 2 4
  put(o, max(a, 2.0f));                  // 2 2 2
  put(o, clamp(b, 1.0f, 3.5f));          // 3 1 3.5
  put(o, clamp(b, float3(1), float3(3.5)));  // 3 1 3.5
  put(o, mix(a, b, 0.5f));               // 2 1 3
  put(o, saturate(float2(-1, 0.25)));    // 0 0.25
  put(o, step(float2(1, 3), float2(2, 2)));  // 1 0
  put(o, smoothstep(0.0f, 2.0f, float2(1, 3)));  // 0.5 1
  put(o, sign(float3(-5, 0, 7)));        // -1 0 1
  put(o, abs(float2(-2, 2)));            // 2 2
  put(o, float2(min3(3.0f, 1.0f, 2.0f), max3(3.0f, 1.0f, 2.0f)));  // 1 3
  put(o, median3(3.0f, 1.0f, 2.0f));     // 2
}
