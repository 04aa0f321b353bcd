// Kernels for tests of buffers, ranges, order and options.
#include <metal_stdlib>
using namespace metal;

kernel void add_one(const device float* in [[buffer(0)]], device float* out [[buffer(1)]],
                    uint i [[thread_position_in_grid]]) {
  out[i] = in[i] + 1;
}
kernel void double_in_place(device float* data [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  data[i] *= 2;
}
[[max_total_threads_per_threadgroup(64)]] kernel void narrow(device uint* out [[buffer(0)]],
                                                             uint i [[thread_position_in_grid]]) {
  out[i] = i;
}
struct Wide {
  float4 values[3];
};
kernel void needs_all(constant Wide& wide [[buffer(0)]], device float* out [[buffer(1)]]) {
  out[0] = wide.values[2].w;
}
kernel void defined(device int* out [[buffer(0)]]) {
  out[0] = VALUE;
#ifdef FLAG
  out[1] = 1;
#else
  out[1] = 2;
#endif
}
