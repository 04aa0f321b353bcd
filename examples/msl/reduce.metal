// Sums of rows: one threadgroup a row, SIMD-group sums first, then one sum over the SIMD-groups.
#include <metal_stdlib>
using namespace metal;

constant bool average [[function_constant(0)]];
constant bool take_average = is_function_constant_defined(average) ? average : false;

template <typename T>
kernel void row_sum(device const T* in [[buffer(0)]],
                    device T* out [[buffer(1)]],
                    constant uint& columns [[buffer(2)]],
                    uint row [[threadgroup_position_in_grid]],
                    uint t [[thread_index_in_threadgroup]],
                    uint threads [[threads_per_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint group [[simdgroup_index_in_threadgroup]],
                    uint groups [[simdgroups_per_threadgroup]]) {
    threadgroup float partial[32];
    float sum = 0;
    for (uint i = t; i < columns; i += threads) {
        sum += float(in[row * columns + i]);
    }
    sum = simd_sum(sum);
    if (lane == 0) {
        partial[group] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (group == 0) {
        sum = simd_sum(lane < groups ? partial[lane] : 0.0f);
        if (lane == 0) {
            out[row] = T(take_average ? sum / float(columns) : sum);
        }
    }
}

template [[host_name("row_sum_f32")]] [[kernel]] decltype(row_sum<float>) row_sum<float>;
template [[host_name("row_sum_f16")]] [[kernel]] decltype(row_sum<half>) row_sum<half>;
