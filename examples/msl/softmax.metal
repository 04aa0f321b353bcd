#include <metal_stdlib>
using namespace metal;

/// Softmax over each row of `width` values: one threadgroup a row, maximum and sum by SIMD-group
/// reductions that meet in threadgroup memory.
kernel void softmax(device const float* in [[buffer(0)]],
                    device float* out [[buffer(1)]],
                    constant uint& width [[buffer(2)]],
                    threadgroup float* partial [[threadgroup(0)]],
                    uint row [[threadgroup_position_in_grid]],
                    uint thread_index [[thread_position_in_threadgroup]],
                    uint threads [[threads_per_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]],
                    uint simdgroups [[simdgroups_per_threadgroup]]) {
    in += row * width;
    out += row * width;

    float largest = -INFINITY;
    for (uint i = thread_index; i < width; i += threads) {
        largest = max(largest, in[i]);
    }
    largest = simd_max(largest);
    if (lane == 0) {
        partial[simdgroup] = largest;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    largest = simd_max(lane < simdgroups ? partial[lane] : -INFINITY);

    float sum = 0.0f;
    for (uint i = thread_index; i < width; i += threads) {
        sum += exp(in[i] - largest);
    }
    sum = simd_sum(sum);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) {
        partial[simdgroup] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = simd_sum(lane < simdgroups ? partial[lane] : 0.0f);

    for (uint i = thread_index; i < width; i += threads) {
        out[i] = exp(in[i] - largest) / sum;
    }
}
