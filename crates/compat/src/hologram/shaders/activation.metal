// Activation functions. Lanes behind the n elements do nothing, so a grid may be rounded up to whole threadgroups.
#include <metal_stdlib>
using namespace metal;

// output = max(input, 0)
kernel void relu(
    device const float* input [[buffer(0)]],
    device float* output [[buffer(1)]],
    constant uint& n [[buffer(2)]],
    uint id [[thread_position_in_grid]])
{
    if (id < n) {
        output[id] = max(input[id], 0.0f);
    }
}

// output = 1 / (1 + e^-input)
kernel void sigmoid(
    device const float* input [[buffer(0)]],
    device float* output [[buffer(1)]],
    constant uint& n [[buffer(2)]],
    uint id [[thread_position_in_grid]])
{
    if (id < n) {
        output[id] = 1.0f / (1.0f + exp(-input[id]));
    }
}
