#include "norm.h"

// Rows that fit the registers of their threads: each element is read once.
kernel void ENTRY(rms_norm_row)(device const T* input, device const W* weight, device T* output,
                                constant AxisRows& rows, constant NormParameter& parameter, constant float& eps,
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
    const vec<C, VALUES_PER_THREAD> values = row_load(input + row_offset(rows, own.row), rows.stride, at, rows.len);
    const C squares = row_sum(horizontal_sum(values * values), shared, own);
    const C scale = 1 / precise::sqrt(squares / C(rows.len) + eps);
    const vec<C, VALUES_PER_THREAD> w = parameter_load(weight, parameter, at, rows.len);
    row_store(output + result_row_offset(rows, own.row), rows.inner, at, rows.len, values * scale * w);
}

// Rows of any length: one pass for the squares, one to scale.
kernel void ENTRY(rms_norm_loop)(device const T* input, device const W* weight, device T* output,
                                 constant AxisRows& rows, constant NormParameter& parameter, constant float& eps,
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
    C squares = 0;
    for (uint at = own.index * VALUES_PER_THREAD; at < rows.len; at += own.threads * VALUES_PER_THREAD) {
        const vec<C, VALUES_PER_THREAD> values = row_load(from, rows.stride, at, rows.len);
        squares += horizontal_sum(values * values);
    }
    squares = row_sum(squares, shared, own);
    const C scale = 1 / precise::sqrt(squares / C(rows.len) + eps);
    for (uint at = own.index * VALUES_PER_THREAD; at < rows.len; at += own.threads * VALUES_PER_THREAD) {
        const vec<C, VALUES_PER_THREAD> values = row_load(from, rows.stride, at, rows.len);
        const vec<C, VALUES_PER_THREAD> w = parameter_load(weight, parameter, at, rows.len);
        row_store(to, rows.inner, at, rows.len, values * scale * w);
    }
}
