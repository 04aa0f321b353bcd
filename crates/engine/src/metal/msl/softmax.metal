#include "types.h"
#include "group.h"
#include "rows.h"

// Whether the result is the logarithm.
FUNCTION_CONSTANT(bool, LOG);

typedef computed_t<T> C;

inline T answer(C x, C most, C sum) {
    return T(LOG ? (x - most) - precise::log(sum) : precise::exp(x - most) / sum);
}

// Elements of a row that a thread keeps in registers.
#define HELD 4

// Rows that fit the registers of a threadgroup, one row a group: each element is read once.
kernel void ENTRY(softmax_row)(device const T* input, device T* output, constant Rows& rows,
                               uint row [[threadgroup_position_in_grid]],
                               uint index [[thread_position_in_threadgroup]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simd_group [[simdgroup_index_in_threadgroup]],
                               uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup C shared[32];
    device const T* from = input + row_start(rows, row);
    device T* to = output + row_target(rows, row);
    C held[HELD];
    C most = -INFINITY;
    for (uint k = 0; k < HELD; k++) {
        const uint i = index * HELD + k;
        held[k] = i < rows.len ? C(from[i * rows.stride]) : C(-INFINITY);
        most = Max<C>::join(most, held[k]);
    }
    most = group_reduce<Max<C>>(most, shared, lane, simd_group, simd_groups);
    C sum = 0;
    for (uint k = 0; k < HELD; k++) {
        if (index * HELD + k < rows.len) {
            sum += precise::exp(held[k] - most);
        }
    }
    sum = group_reduce<Sum<C>>(sum, shared, lane, simd_group, simd_groups);
    for (uint k = 0; k < HELD; k++) {
        const uint i = index * HELD + k;
        if (i < rows.len) {
            to[ulong(i) * rows.inner] = answer(held[k], most, sum);
        }
    }
}

// Rows of any length, one a threadgroup: the maximum and the sum in one pass (online softmax), the results in a second.
kernel void ENTRY(softmax_loop)(device const T* input, device T* output, constant Rows& rows,
                                uint row [[threadgroup_position_in_grid]],
                                uint index [[thread_position_in_threadgroup]],
                                uint threads [[threads_per_threadgroup]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint simd_group [[simdgroup_index_in_threadgroup]],
                                uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup C shared[32];
    device const T* from = input + row_start(rows, row);
    device T* to = output + row_target(rows, row);
    C most = -INFINITY;
    C sum = 0;
    for (uint i = index; i < rows.len; i += threads) {
        const C x = C(from[i * rows.stride]);
        const C before = most;
        most = Max<C>::join(most, x);
        // Rescale the running sum to the new maximum (online softmax). An element of -infinity adds nothing, even if
        // nothing else has been seen yet.
        sum = (before == most ? sum : sum * precise::exp(before - most)) +
              (x == -INFINITY ? C(0) : precise::exp(x - most));
    }
    const C own = most;
    most = group_reduce<Max<C>>(most, shared, lane, simd_group, simd_groups);
    sum = own == -INFINITY ? C(0) : sum * precise::exp(own - most);
    sum = group_reduce<Sum<C>>(sum, shared, lane, simd_group, simd_groups);
    for (uint i = index; i < rows.len; i += threads) {
        to[ulong(i) * rows.inner] = answer(C(from[i * rows.stride]), most, sum);
    }
}
