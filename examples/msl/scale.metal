#include <metal_stdlib>
using namespace metal;

/// Adds `bias` as well; without it, buffer 2 need not be bound.
constant bool with_bias [[function_constant(0)]];

/// out[i] = in[i] * factor (+ bias), for every type it is instantiated with.
template <typename T>
kernel void scale(device const T* in [[buffer(0)]],
                  device T* out [[buffer(1)]],
                  constant float& bias [[buffer(2), function_constant(with_bias)]],
                  constant float& factor [[buffer(3)]],
                  uint i [[thread_position_in_grid]]) {
    float value = float(in[i]) * factor;
    if (with_bias) {
        value += bias;
    }
    out[i] = T(value);
}

template [[host_name("scale_float")]] kernel void scale<float>(
    device const float*, device float*, constant float&, constant float&, uint);
template [[host_name("scale_half")]] kernel void scale<half>(
    device const half*, device half*, constant float&, constant float&, uint);
