#include <metal_stdlib>
using namespace metal;

kernel void add(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                device float* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    out[i] = a[i] + b[i];
}

kernel void gelu(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                 device float* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    float x = a[i] + b[i];
    out[i] = 0.5f * x * (1.0f + tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

kernel void softmax(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                    constant uint& n [[buffer(2)]], threadgroup float* s [[threadgroup(0)]],
                    uint row [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                    uint size [[threads_per_threadgroup]]) {
    float top = -INFINITY;
    for (uint i = t; i < n; i += size) top = max(top, x[row * n + i]);
    s[t] = top;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = size / 2; k > 0; k >>= 1) {
        if (t < k) s[t] = max(s[t], s[t + k]);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    top = s[0];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0;
    for (uint i = t; i < n; i += size) {
        float e = exp(x[row * n + i] - top);
        y[row * n + i] = e;
        sum += e;
    }
    s[t] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = size / 2; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    float scale = 1.0f / s[0];
    for (uint i = t; i < n; i += size) y[row * n + i] *= scale;
}

kernel void rmsnorm(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                    constant uint& n [[buffer(2)]], threadgroup float* s [[threadgroup(0)]],
                    uint row [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]],
                    uint size [[threads_per_threadgroup]]) {
    float sum = 0;
    for (uint i = t; i < n; i += size) {
        float v = x[row * n + i];
        sum += v * v;
    }
    s[t] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = size / 2; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    float scale = 1.0f / sqrt(s[0] / float(n) + 1e-5f);
    for (uint i = t; i < n; i += size) y[row * n + i] = x[row * n + i] * scale;
}

kernel void matmul(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                   device float* c [[buffer(2)]], constant uint& n [[buffer(3)]],
                   uint2 group [[threadgroup_position_in_grid]], uint2 t [[thread_position_in_threadgroup]]) {
    threadgroup float ta[16][16];
    threadgroup float tb[16][16];
    uint row = group.y * 16 + t.y, col = group.x * 16 + t.x;
    float sum = 0;
    for (uint k = 0; k < n; k += 16) {
        ta[t.y][t.x] = a[row * n + k + t.x];
        tb[t.y][t.x] = b[(k + t.y) * n + col];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint j = 0; j < 16; ++j) sum += ta[t.y][j] * tb[j][t.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    c[row * n + col] = sum;
}
