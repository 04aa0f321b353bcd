// Elementwise arithmetic. Lanes behind the n elements do nothing, so a grid may be rounded up to whole threadgroups.
#include <metal_stdlib>
using namespace metal;

// c = a + b
kernel void vector_add(
    device const float* a [[buffer(0)]],
    device const float* b [[buffer(1)]],
    device float* c [[buffer(2)]],
    constant uint& n [[buffer(3)]],
    uint id [[thread_position_in_grid]])
{
    if (id < n) {
        c[id] = a[id] + b[id];
    }
}

// c = a * b
kernel void vector_mul(
    device const float* a [[buffer(0)]],
    device const float* b [[buffer(1)]],
    device float* c [[buffer(2)]],
    constant uint& n [[buffer(3)]],
    uint id [[thread_position_in_grid]])
{
    if (id < n) {
        c[id] = a[id] * b[id];
    }
}
