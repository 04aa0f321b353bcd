#include "types.h"
#include "fault.h"
#include "threadgroup_reduce.h"
#include "axis_rows.h"
#include "host/TargetView.h"

// Whether each SIMD-group has its own row, several in a threadgroup.
FUNCTION_CONSTANT(bool, ROW_PER_SIMD_GROUP);

typedef computed_t<T> C;

// The class of a target, or the number of classes if it is out of range.
inline uint class_of(I target, uint classes) {
    if (target < I(0)) {
        const long from_end = long(target) + long(classes);
        return from_end < 0 ? classes : uint(from_end);
    }
    return ulong(target) < ulong(classes) ? uint(target) : classes;
}

// One row: the maximum and the sum of exponentials in one pass (online softmax), then the target.
kernel void ENTRY(cross_entropy)(device const T* input, device const I* targets, device C* output,
                                 constant AxisRows& rows, constant TargetView& target_view, device FaultRecord* fault,
                                 uint group [[threadgroup_position_in_grid]],
                                 uint index [[thread_position_in_threadgroup]],
                                 uint threads [[threads_per_threadgroup]],
                                 uint lane [[thread_index_in_simdgroup]],
                                 uint simd_group [[simdgroup_index_in_threadgroup]],
                                 uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup C shared[32];
    const uint row = ROW_PER_SIMD_GROUP ? group * simd_groups + simd_group : group;
    if (ROW_PER_SIMD_GROUP && row >= rows.count) {
        return;
    }
    const uint own = ROW_PER_SIMD_GROUP ? lane : index;
    const uint stride = ROW_PER_SIMD_GROUP ? 32 : threads;
    const uint simd_index = ROW_PER_SIMD_GROUP ? 0 : simd_group;
    const uint simd_count = ROW_PER_SIMD_GROUP ? 1 : simd_groups;
    device const T* from = input + row_offset(rows, row);
    C row_max = -INFINITY;
    C sum = 0;
    for (uint i = own; i < rows.len; i += stride) {
        const C x = C(from[long(i) * rows.stride]);
        const C previous_max = row_max;
        row_max = Max<C>::combine(row_max, x);
        // Rescale the running sum to the new maximum. An element of -infinity adds nothing.
        sum = (previous_max == row_max ? sum : sum * precise::exp(previous_max - row_max)) +
              (x == -INFINITY ? C(0) : precise::exp(x - row_max));
    }
    const C own_max = row_max;
    row_max = group_reduce<Max<C>>(row_max, shared, lane, simd_index, simd_count);
    sum = own_max == -INFINITY ? C(0) : sum * precise::exp(own_max - row_max);
    sum = group_reduce<Sum<C>>(sum, shared, lane, simd_index, simd_count);
    if (own == 0) {
        const uint inner = target_view.walk.dims[target_view.walk.rank - 1];
        const I target = targets[view_offset(target_view.walk, target_view.view, uint2(row % inner, row / inner))];
        const uint class_index = class_of(target, rows.len);
        if (class_index == rows.len) {
            report(fault, target < I(0) ? long(target) : long(min(ulong(target), 0x7FFFFFFFFFFFFFFFul)));
            output[row] = C(0);
        } else {
            output[row] = precise::log(sum) - (C(from[long(class_index) * rows.stride]) - row_max);
        }
    }
}
