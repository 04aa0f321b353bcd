// Matrices: columns of vectors.
#include <metal_stdlib>
using namespace metal;

template <typename T, int C, int R>
void put(device T* thread& o, matrix<T, C, R> m) {
  for (int c = 0; c < C; c++) {
    for (int r = 0; r < R; r++) *o++ = m[c][r];
  }
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

template <typename T>
kernel void matrices(const device T* in [[buffer(0)]], device T* out [[buffer(1)]]) {
  typedef matrix<T, 2, 2> M22;
  typedef matrix<T, 2, 3> M23;
  typedef matrix<T, 3, 2> M32;
  typedef matrix<T, 3, 3> M33;
  typedef matrix<T, 4, 4> M44;
  device T* o = out;
  M22 a = M22(in[0], in[1], in[2], in[3]);                          // columns {1, 2}, {3, 4}
  M22 b = M22(vec<T, 2>(T(5), T(6)), vec<T, 2>(T(7), T(8)));
  put(o, a * b);
  put(o, a + b);
  put(o, b - a);
  put(o, a * T(2));
  put(o, T(3) * a);
  put(o, -a);
  put(o, transpose(a));
  put(o, a * vec<T, 2>(T(1), T(2)));
  put(o, vec<T, 2>(T(1), T(2)) * a);
  put(o, M22(T(2)));
  put(o, a[1]);
  M22 c = a;
  c[0] = b[1];
  c[1][0] = T(9);
  put(o, c);
  c *= b;
  put(o, c);
  c += a;
  put(o, c);
  M23 d = M23(vec<T, 3>(T(1), T(2), T(3)), vec<T, 3>(T(4), T(5), T(6)));
  put(o, transpose(d));
  put(o, d * a);
  put(o, d * transpose(d));
  put(o, d * vec<T, 2>(T(1), T(1)));
  M32 e = transpose(d);
  put(o, e * vec<T, 3>(T(1), T(0), T(2)));
  M33 f = M33(T(2));
  f[2].xy = vec<T, 2>(T(1), T(3));
  put(o, f * vec<T, 3>(T(1), T(2), T(3)));
  M44 g = M44(T(1));
  g[3] = vec<T, 4>(T(1), T(2), T(3), T(1));
  put(o, g * vec<T, 4>(T(1), T(1), T(1), T(2)));
  put(o, vec<T, 4>(T(1), T(1), T(1), T(1)) * g);
}
template [[host_name("matrices_float")]] [[kernel]] decltype(matrices<float>) matrices<float>;
template [[host_name("matrices_half")]] [[kernel]] decltype(matrices<half>) matrices<half>;

kernel void determinants(device float* out [[buffer(0)]]) {
  out[0] = determinant(float2x2(1, 2, 3, 4));
  out[1] = determinant(float3x3(2, 0, 0, 1, 3, 0, 4, 5, 6));
  out[2] = determinant(float4x4(2.0f));
}

struct Transform {
  float4x4 m;
  float3x3 n;
  half2x4 h;
};
kernel void matrices_in_memory(constant Transform& t [[buffer(0)]], const device float4* points [[buffer(1)]],
                               device float4* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  float3 rotated = t.n * points[i].xyz;
  out[2 * i] = t.m * points[i];
  out[2 * i + 1] = float4(rotated, float(t.h[1].w));
}
