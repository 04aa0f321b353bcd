#include "norm.h"

// Rows that fit the registers of their threads: each element is read once.
kernel void ENTRY(rms_norm_row)(device const T* input, device const W* weight, device T* output,
                                constant Rows& rows, constant NormParameter& parameter, constant float& eps,
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
    const vec<C, HELD> held = row_read(input + row_start(rows, own.row), rows.stride, at, rows.len);
    const C squares = team_sum(sum_of(held * held), shared, own);
    const C scale = 1 / precise::sqrt(squares / C(rows.len) + eps);
    const vec<C, HELD> w = parameter_read(weight, parameter, at, rows.len);
    row_write(output + row_target(rows, own.row), rows.inner, at, rows.len, held * scale * w);
}

// Rows of any length: one pass for the squares, one to scale.
kernel void ENTRY(rms_norm_loop)(device const T* input, device const W* weight, device T* output,
                                 constant Rows& rows, constant NormParameter& parameter, constant float& eps,
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
    C squares = 0;
    for (uint at = own.index * HELD; at < rows.len; at += own.threads * HELD) {
        const vec<C, HELD> held = row_read(from, rows.stride, at, rows.len);
        squares += sum_of(held * held);
    }
    squares = team_sum(squares, shared, own);
    const C scale = 1 / precise::sqrt(squares / C(rows.len) + eps);
    for (uint at = own.index * HELD; at < rows.len; at += own.threads * HELD) {
        const vec<C, HELD> held = row_read(from, rows.stride, at, rows.len);
        const vec<C, HELD> w = parameter_read(weight, parameter, at, rows.len);
        row_write(to, rows.inner, at, rows.len, held * scale * w);
    }
}
