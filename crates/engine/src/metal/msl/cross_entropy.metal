#include "types.h"
#include "fault.h"
#include "group.h"
#include "rows.h"
#include "host/TargetView.h"

// Whether each SIMD-group has its own row, several in a threadgroup.
FUNCTION_CONSTANT(bool, PACKED);

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
                                 constant Rows& rows, constant TargetView& where, device FaultRecord* fault,
                                 uint group [[threadgroup_position_in_grid]],
                                 uint index [[thread_position_in_threadgroup]],
                                 uint threads [[threads_per_threadgroup]],
                                 uint lane [[thread_index_in_simdgroup]],
                                 uint simd_group [[simdgroup_index_in_threadgroup]],
                                 uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup C shared[32];
    const uint row = PACKED ? group * simd_groups + simd_group : group;
    if (PACKED && row >= rows.count) {
        return;
    }
    const uint own = PACKED ? lane : index;
    const uint team = PACKED ? 32 : threads;
    const uint part = PACKED ? 0 : simd_group;
    const uint parts = PACKED ? 1 : simd_groups;
    device const T* from = input + row_start(rows, row);
    C most = -INFINITY;
    C sum = 0;
    for (uint i = own; i < rows.len; i += team) {
        const C x = C(from[long(i) * rows.stride]);
        const C before = most;
        most = Max<C>::join(most, x);
        // Rescale the running sum to the new maximum. An element of -infinity adds nothing.
        sum = (before == most ? sum : sum * precise::exp(before - most)) +
              (x == -INFINITY ? C(0) : precise::exp(x - most));
    }
    const C seen = most;
    most = group_reduce<Max<C>>(most, shared, lane, part, parts);
    sum = seen == -INFINITY ? C(0) : sum * precise::exp(seen - most);
    sum = group_reduce<Sum<C>>(sum, shared, lane, part, parts);
    if (own == 0) {
        const uint inner = where.walk.dims[where.walk.rank - 1];
        const I target = targets[place(where.walk, where.steps, uint2(row % inner, row / inner))];
        const uint found = class_of(target, rows.len);
        if (found == rows.len) {
            report(fault, target < I(0) ? long(target) : long(min(ulong(target), 0x7FFFFFFFFFFFFFFFul)));
            output[row] = C(0);
        } else {
            output[row] = precise::log(sum) - (C(from[long(found) * rows.stride]) - most);
        }
    }
}
