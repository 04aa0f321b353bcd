# 1 "a.metal"
# 1 "lib/metal_stdlib" 1 3
#pragma once
# 2 "a.metal" 2
using namespace metal;
enum class Index : uint { A, B = 2, C };
constant bool has_mask [[function_constant(0)]];
constexpr constant int twice = has_mask ? 2 : 1;
struct Params { int n; float2 xy; union { float a; uint b; }; };
template <typename T> struct Op { T operator()(T x) const thread { return x; } operator float() const device { return 1.0; } };
template <typename T> struct Op<device T*> { Op() threadgroup = default; Op() thread : x(1), y{2} {} int x, y; };
template <typename T, int N = 4, bool B = (N > 2)>
[[kernel, max_total_threads_per_threadgroup(N * 32)]] void f(device T* p [[buffer(0)]], constant Params& q [[buffer(1)]],
    threadgroup float* s [[threadgroup(0)]], constant int64_t e[3], const device uint* m [[function_constant(has_mask)]],
    uint3 i [[thread_position_in_grid]]) {
  threadgroup alignas(16) T a[N][sizeof(T) < 8 ? 2 : 1] = {}, b;
#pragma unroll (MIN(N, 2))
  for (uint k = 0; k < N; k <<= 1) { float4 v = 1.5h; v.xy.x += v.zw.y; ++v.rg; p[k] = static_cast<T>(v.x); }
  device T* r = p + q.n; threadgroup T* t = &a[0][0]; (void)is_function_constant_defined(has_mask);
}
typedef decltype(f<float>) f_t;
template [[host_name("f_" "float")]] [[kernel]] void f<float, 4>(device float*, constant Params&, threadgroup float*, constant int64_t*, const device uint*, uint3);
template [[host_name("f_half")]] [[kernel]] decltype(f<half, Op<device half*>::v>) f<half>;
namespace a::b { static inline float g(coherent(system) device atomic_uint* c, float x = .5) { return -x; } }
kernel void k(device const bfloat4* o, uint t [[thread_index_in_simdgroup]]) { if (t < 2 && t > 1) return; }
