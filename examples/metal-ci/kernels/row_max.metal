#include <metal_stdlib>
using namespace metal;

/// The largest element of each row of `width` elements. A threadgroup of up to 1024 threads reduces a row: each
/// SIMD-group on its own, then one SIMD-group the results of all.
kernel void row_max(device const float* in [[buffer(0)]],
                    device float* out [[buffer(1)]],
                    constant uint& width [[buffer(2)]],
                    uint row [[threadgroup_position_in_grid]],
                    uint thread_index [[thread_position_in_threadgroup]],
                    uint threads [[threads_per_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]],
                    uint simdgroups [[simdgroups_per_threadgroup]]) {
    threadgroup float partial[32];
    float largest = -INFINITY;
    for (uint i = thread_index; i < width; i += threads) {
        largest = max(largest, in[row * width + i]);
    }
    largest = simd_max(largest);
    if (lane == 0) {
        partial[simdgroup] = largest;
    }
    // Without this barrier, check mode reports a data race.
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup == 0) {
        largest = simd_max(lane < simdgroups ? partial[lane] : -INFINITY);
        if (lane == 0) {
            out[row] = largest;
        }
    }
}
