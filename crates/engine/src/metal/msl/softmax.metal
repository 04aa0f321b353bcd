#include "types.h"
#include "threadgroup_reduce.h"
#include "axis_rows.h"

// Whether the result is the logarithm.
FUNCTION_CONSTANT(bool, LOG);

typedef computed_t<T> C;

inline T softmax_of(C x, C row_max, C sum) {
    return T(LOG ? (x - row_max) - precise::log(sum) : precise::exp(x - row_max) / sum);
}

// Elements of a row that a thread keeps in registers.
#define VALUES_PER_THREAD 4

// Rows that fit the registers of a threadgroup, one row a group: each element is read once.
kernel void ENTRY(softmax_row)(device const T* input, device T* output, constant AxisRows& rows,
                               uint row [[threadgroup_position_in_grid]],
                               uint index [[thread_position_in_threadgroup]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simd_group [[simdgroup_index_in_threadgroup]],
                               uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup C shared[32];
    device const T* from = input + row_offset(rows, row);
    device T* to = output + result_row_offset(rows, row);
    C values[VALUES_PER_THREAD];
    C row_max = -INFINITY;
    for (uint k = 0; k < VALUES_PER_THREAD; k++) {
        const uint i = index * VALUES_PER_THREAD + k;
        values[k] = i < rows.len ? C(from[i * rows.stride]) : C(-INFINITY);
        row_max = Max<C>::combine(row_max, values[k]);
    }
    row_max = group_reduce<Max<C>>(row_max, shared, lane, simd_group, simd_groups);
    C sum = 0;
    for (uint k = 0; k < VALUES_PER_THREAD; k++) {
        if (index * VALUES_PER_THREAD + k < rows.len) {
            sum += precise::exp(values[k] - row_max);
        }
    }
    sum = group_reduce<Sum<C>>(sum, shared, lane, simd_group, simd_groups);
    for (uint k = 0; k < VALUES_PER_THREAD; k++) {
        const uint i = index * VALUES_PER_THREAD + k;
        if (i < rows.len) {
            to[ulong(i) * rows.inner] = softmax_of(values[k], row_max, sum);
        }
    }
}

// Rows of any length, one a threadgroup: the maximum and the sum in one pass (online softmax), the results in a second.
kernel void ENTRY(softmax_loop)(device const T* input, device T* output, constant AxisRows& rows,
                                uint row [[threadgroup_position_in_grid]],
                                uint index [[thread_position_in_threadgroup]],
                                uint threads [[threads_per_threadgroup]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint simd_group [[simdgroup_index_in_threadgroup]],
                                uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup C shared[32];
    device const T* from = input + row_offset(rows, row);
    device T* to = output + result_row_offset(rows, row);
    C row_max = -INFINITY;
    C sum = 0;
    for (uint i = index; i < rows.len; i += threads) {
        const C x = C(from[i * rows.stride]);
        const C previous_max = row_max;
        row_max = Max<C>::combine(row_max, x);
        // Rescale the running sum to the new maximum (online softmax). An element of -infinity adds nothing, even if
        // nothing else has been seen yet.
        sum = (previous_max == row_max ? sum : sum * precise::exp(previous_max - row_max)) +
              (x == -INFINITY ? C(0) : precise::exp(x - row_max));
    }
    const C own_max = row_max;
    row_max = group_reduce<Max<C>>(row_max, shared, lane, simd_group, simd_groups);
    sum = own_max == -INFINITY ? C(0) : sum * precise::exp(own_max - row_max);
    sum = group_reduce<Sum<C>>(sum, shared, lane, simd_group, simd_groups);
    for (uint i = index; i < rows.len; i += threads) {
        to[ulong(i) * rows.inner] = softmax_of(C(from[i * rows.stride]), row_max, sum);
    }
}
