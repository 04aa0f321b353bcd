#include "norm.h"
#include "host/LayerNormArgs.h"

FUNCTION_CONSTANT(bool, WEIGHT);
FUNCTION_CONSTANT(bool, BIAS);

// Normalised elements of a row, given their differences from the mean.
inline vec<C, VALUES_PER_THREAD> normalized(vec<C, VALUES_PER_THREAD> centered, C scale, device const W* weight,
                                            device const B* bias,
                                            constant LayerNormArgs& parameters, uint at, uint len) {
    vec<C, VALUES_PER_THREAD> result = centered * scale;
    if (WEIGHT) {
        result = result * parameter_load(weight, parameters.weight, at, len);
    }
    if (BIAS) {
        result = result + parameter_load(bias, parameters.bias, at, len);
    }
    return result;
}

// Rows that fit the registers of their threads: each element is read once.
kernel void ENTRY(layer_norm_row)(device const T* input, device const W* weight, device const B* bias,
                                  device T* output, constant AxisRows& rows, constant LayerNormArgs& parameters,
                                  uint group [[threadgroup_position_in_grid]],
                                  uint index [[thread_position_in_threadgroup]],
                                  uint threads [[threads_per_threadgroup]],
                                  uint lane [[thread_index_in_simdgroup]],
                                  uint simd_group [[simdgroup_index_in_threadgroup]],
                                  uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup C shared[32];
    const RowThreads own = row_threads(group, index, threads, lane, simd_group, simd_groups);
    if (own.row >= rows.count) {
        return;
    }
    const uint at = own.index * VALUES_PER_THREAD;
    vec<C, VALUES_PER_THREAD> values = row_load(input + row_offset(rows, own.row), rows.stride, at, rows.len);
    const C mean = row_sum(horizontal_sum(values), shared, own) / C(rows.len);
    values = centered(values, mean, at, rows.len);
    const C squares = row_sum(horizontal_sum(values * values), shared, own);
    const C scale = 1 / precise::sqrt(squares / C(rows.len) + parameters.eps);
    row_store(output + result_row_offset(rows, own.row), rows.inner, at, rows.len,
              normalized(values, scale, weight, bias, parameters, at, rows.len));
}

// Rows of any length: a pass for the mean, one for the variance, one to scale.
kernel void ENTRY(layer_norm_loop)(device const T* input, device const W* weight, device const B* bias,
                                   device T* output, constant AxisRows& rows, constant LayerNormArgs& parameters,
                                   uint group [[threadgroup_position_in_grid]],
                                   uint index [[thread_position_in_threadgroup]],
                                   uint threads [[threads_per_threadgroup]],
                                   uint lane [[thread_index_in_simdgroup]],
                                   uint simd_group [[simdgroup_index_in_threadgroup]],
                                   uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup C shared[32];
    const RowThreads own = row_threads(group, index, threads, lane, simd_group, simd_groups);
    device const T* from = input + row_offset(rows, own.row);
    device T* to = output + result_row_offset(rows, own.row);
    C sum = 0;
    for (uint at = own.index * VALUES_PER_THREAD; at < rows.len; at += own.threads * VALUES_PER_THREAD) {
        sum += horizontal_sum(row_load(from, rows.stride, at, rows.len));
    }
    const C mean = row_sum(sum, shared, own) / C(rows.len);
    C squares = 0;
    for (uint at = own.index * VALUES_PER_THREAD; at < rows.len; at += own.threads * VALUES_PER_THREAD) {
        const vec<C, VALUES_PER_THREAD> values = centered(row_load(from, rows.stride, at, rows.len), mean, at,
                                                          rows.len);
        squares += horizontal_sum(values * values);
    }
    squares = row_sum(squares, shared, own);
    const C scale = 1 / precise::sqrt(squares / C(rows.len) + parameters.eps);
    for (uint at = own.index * VALUES_PER_THREAD; at < rows.len; at += own.threads * VALUES_PER_THREAD) {
        const vec<C, VALUES_PER_THREAD> values = centered(row_load(from, rows.stride, at, rows.len), mean, at,
                                                          rows.len);
        row_store(to, rows.inner, at, rows.len,
                  normalized(values, scale, weight, bias, parameters, at, rows.len));
    }
}
