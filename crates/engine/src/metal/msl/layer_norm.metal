#include "norm.h"
#include "host/LayerNormArgs.h"

FUNCTION_CONSTANT(bool, WEIGHT);
FUNCTION_CONSTANT(bool, BIAS);

// Normalised elements of a row, given their differences from the mean.
inline vec<C, HELD> answer(vec<C, HELD> apart, C scale, device const W* weight, device const B* bias,
                           constant LayerNormArgs& parameters, uint at, uint len) {
    vec<C, HELD> result = apart * scale;
    if (WEIGHT) {
        result = result * parameter_read(weight, parameters.weight, at, len);
    }
    if (BIAS) {
        result = result + parameter_read(bias, parameters.bias, at, len);
    }
    return result;
}

// Rows that fit the registers of their threads: each element is read once.
kernel void ENTRY(layer_norm_row)(device const T* input, device const W* weight, device const B* bias,
                                  device T* output, constant Rows& rows, constant LayerNormArgs& parameters,
                                  uint group [[threadgroup_position_in_grid]],
                                  uint index [[thread_position_in_threadgroup]],
                                  uint threads [[threads_per_threadgroup]],
                                  uint lane [[thread_index_in_simdgroup]],
                                  uint simd_group [[simdgroup_index_in_threadgroup]],
                                  uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup C shared[32];
    const Team own = team(group, index, threads, lane, simd_group, simd_groups);
    if (own.row >= rows.count) {
        return;
    }
    const uint at = own.index * HELD;
    vec<C, HELD> held = row_read(input + row_start(rows, own.row), rows.stride, at, rows.len);
    const C mean = team_sum(sum_of(held), shared, own) / C(rows.len);
    held = apart(held, mean, at, rows.len);
    const C squares = team_sum(sum_of(held * held), shared, own);
    const C scale = 1 / precise::sqrt(squares / C(rows.len) + parameters.eps);
    row_write(output + row_target(rows, own.row), rows.inner, at, rows.len,
              answer(held, scale, weight, bias, parameters, at, rows.len));
}

// Rows of any length: a pass for the mean, one for the variance, one to scale.
kernel void ENTRY(layer_norm_loop)(device const T* input, device const W* weight, device const B* bias,
                                   device T* output, constant Rows& rows, constant LayerNormArgs& parameters,
                                   uint group [[threadgroup_position_in_grid]],
                                   uint index [[thread_position_in_threadgroup]],
                                   uint threads [[threads_per_threadgroup]],
                                   uint lane [[thread_index_in_simdgroup]],
                                   uint simd_group [[simdgroup_index_in_threadgroup]],
                                   uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup C shared[32];
    const Team own = team(group, index, threads, lane, simd_group, simd_groups);
    device const T* from = input + row_start(rows, own.row);
    device T* to = output + row_target(rows, own.row);
    C sum = 0;
    for (uint at = own.index * HELD; at < rows.len; at += own.threads * HELD) {
        sum += sum_of(row_read(from, rows.stride, at, rows.len));
    }
    const C mean = team_sum(sum, shared, own) / C(rows.len);
    C squares = 0;
    for (uint at = own.index * HELD; at < rows.len; at += own.threads * HELD) {
        const vec<C, HELD> held = apart(row_read(from, rows.stride, at, rows.len), mean, at, rows.len);
        squares += sum_of(held * held);
    }
    squares = team_sum(squares, shared, own);
    const C scale = 1 / precise::sqrt(squares / C(rows.len) + parameters.eps);
    for (uint at = own.index * HELD; at < rows.len; at += own.threads * HELD) {
        const vec<C, HELD> held = apart(row_read(from, rows.stride, at, rows.len), mean, at, rows.len);
        row_write(to, rows.inner, at, rows.len,
                  answer(held, scale, weight, bias, parameters, at, rows.len));
    }
}
