// Calls in which MSL converts, deduces or resolves overloads as C++ with vector classes would not.
#include <metal_stdlib>
#include <metal_initializer_list>
#include <TargetConditionals.h>
using namespace metal;

// Scalars where other arguments are vectors.
kernel void scalars_beside_vectors(device float4* out [[buffer(0)]], const device float4* in [[buffer(1)]]) {
  float4 v = in[0];  // 1 2 3 4
  float s = 2;
  out[0] = fma(s, v, v);
  out[1] = fma(s, s, v);
  out[2] = fma(v, s, v);
  out[3] = select(0, v, v > 2.5f);
  out[4] = select(v, 0.5f, v > 2.5f);
  out[5] = clamp(2.5f, v, 3);
  out[6] = clamp(v, 2, 3);
  out[7] = mix(0, v, 0.5f);
  out[8] = mix(v, 8, 0.5f);
  out[9] = smoothstep(0.0f, v, 0.0f);
  out[10] = max(2.5f, v) + min(v, 2);
  out[11] = step(2.5f, v);
  out[12] = fmod(5.0f, v);
  packed_float4 p = v;
  out[13] = max(3, p) + max(p, 3) + max(v, p);
  out[14] = ldexp(v, 3);
  out[15] = metal::fma(s, v, 1);
}

kernel void integers_beside_vectors(device int4* out [[buffer(0)]], const device int4* in [[buffer(1)]]) {
  int4 v = in[0];  // 1 2 3 4
  out[0] = clamp(3, v, 4);
  out[1] = select(v, 9, v > 2);
  out[2] = mad24(3, v, 2);
  out[3] = max3(2, v, 1) + min(v, 3);
}

// Shifts by integers of another type; the amount counts modulo the width of what is shifted.
kernel void mixed_shifts(device int4* out [[buffer(0)]], device ulong2* wide [[buffer(1)]],
                         const device int4* in [[buffer(2)]]) {
  int4 v = in[0];  // -16 8 1 3
  uint4 n = uint4(2, 1, 31, 33);
  out[0] = v >> n;  // bessemer: allow(shift) by 33
  out[1] = v << n;  // bessemer: allow(shift) by 33
  out[2] = int4(uint4(v) >> int4(28, 1, 0, 1));
  out[3] = v;
  out[3] <<= ushort4(1, 2, 3, 4);
  out[4] = v;
  out[4].xy >>= uint2(3, 2);
  out[5] = v << 2u;
  out[6] = 1 << v.yzwy;
  wide[0] = ulong2(1, 3) << uint2(40, 63);
}

// Sizes of vectors and matrices, deduced as any integer type.
template <typename T, uint N> T sum_of(vec<T, N> v) {
  T sum = 0;
  for (uint i = 0; i < N; i++) sum += v[i];
  return sum;
}
template <typename T, size_t N> T last_of(vec<T, N> v) { return v[N - 1]; }
template <typename T, int N> int size_of(vec<T, N>) { return N; }
template <typename T, ushort C, size_t R> T corner_of(matrix<T, C, R> m) { return m[C - 1][R - 1]; }
template <typename T> struct components { enum { count = 1 }; };
template <typename T, uint N> struct components<vec<T, N>> { enum { count = N }; };

kernel void deduced_sizes(device float* out [[buffer(0)]]) {
  out[0] = sum_of(float3(1, 2, 3));
  out[1] = last_of(float4(1, 2, 3, 4) * 2);
  out[2] = size_of(half2(1));
  out[3] = corner_of(float3x2(1, 2, 3, 4, 5, 6));
  out[4] = components<float>::count + components<uint3>::count;
  vec<uint, 1> one = vec<uint, 1>(3);
  one += 1;
  out[5] = one.x * one[0];
}

// Templates with the names of library functions. An exact match of the library's function is selected, as any
// function is before a template.
template <typename T> float dot(T a, T b) { return 100; }
template <typename T, int N> float dot(vec<T, N> a, vec<T, N> b) { return 200; }
template <typename T> T sign(T x) { return T(300); }
template <typename T> T clamp(T x, T low, T high) { return T(400); }
template <typename A, typename B> float pow(A a, B b) { return 500; }
namespace mine {
template <typename T> T abs(T x) { return T(600); }
template <typename T> float length(T x) { return abs(x).x; }
}  // namespace mine

kernel void own_templates(device float* out [[buffer(0)]]) {
  out[0] = dot(float4(1), float4(2));
  out[1] = dot(int4(1), int4(2));
  out[2] = dot(1.5f, 2.5f);
  out[3] = sign(float3(-2)).y;
  out[4] = sign(int3(-2)).y;
  out[5] = clamp(float2(5), float2(1), float2(2)).x;
  out[6] = clamp(float2(5), 1, 2).x;
  out[7] = pow(float2(3), float2(2)).x;
  out[8] = pow(float2(3), 2);
  out[9] = mine::length(float3(-1));
  out[10] = dot<float4>(float4(1), float4(2));
}

struct Pair {
  float4 v;
  uint2 u;
};

kernel void volatile_vectors(volatile device float4* out [[buffer(0)]], volatile device Pair* pair [[buffer(1)]]) {
  out[0] = float4(1, 2, 3, 4);
  float4 x = out[0];
  out[1] = x + out[0];
  out[1] += x;
  out[2] = out[1];
  out[2].xy = x.yx;
  out[2][3] = 7;
  pair->v = x;
  pair->u.x = 3;
  pair->v.w = pair->v.x + out[0].zw.x;
}

kernel void limits_of_vectors(device float4* out [[buffer(0)]], device int3* integers [[buffer(1)]]) {
  out[0] = numeric_limits<float4>::max();
  out[1] = -numeric_limits<float4>::infinity();
  out[2] = numeric_limits<float4>::is_specialized ? 1 : 0;
  integers[0] = numeric_limits<int3>::lowest();
}

template <typename T, size_t N> struct List {
  T values[N];
  List(initializer_list<T> list) thread {
    size_t i = 0;
    for (auto at = list.begin(); at != list.end(); ++at) values[i++] = *at;
  }
};

kernel void lists(device float* out [[buffer(0)]]) {
  List<float, 3> list = {1, 2, 4};
  metal::initializer_list<int> other = {5, 6};
  out[0] = list.values[2];
  out[1] = other.size() + *other.begin();
}

// Functions that call themselves, directly and through others.
int factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }
int is_odd(int n);
int is_even(int n) { return n == 0 ? 1 : is_odd(n - 1); }
int is_odd(int n) { return n == 0 ? 0 : is_even(n - 1); }
void visit(const device int* tree, device int* out, thread int& count, int node) {
  if (node >= 7) return;
  visit(tree, out, count, 2 * node + 1);
  out[count++] = tree[node];
  visit(tree, out, count, 2 * node + 2);
}

kernel void recursion(device int* out [[buffer(0)]], const device int* tree [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) {
  threadgroup int shared_[8];
  shared_[i] = factorial(int(i)) * 10 + is_even(int(i));
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = shared_[7 - i];
  if (i == 0) {
    int count = 0;
    visit(tree, out + 8, count, 0);
  }
}

kernel void exp(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]) { out[i] = exp(float(i)); }

kernel void shared_singles(device uint* out [[buffer(0)]], uint i [[thread_position_in_threadgroup]]) {
  threadgroup vec<uint, 1> s[32];
  s[i] = vec<uint, 1>(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = s[31 - i].x;
}

template <int N> struct Slot { static constant constexpr int first = N; };

#if TARGET_OS_OSX && !TARGET_OS_SIMULATOR
kernel void slots(device uint* out [[buffer(Slot<4>::first)]], uint i [[thread_position_in_grid]]) { out[i] = i; }
#endif
