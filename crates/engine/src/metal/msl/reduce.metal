#include "fold.h"
#include "view.h"
#include "host/ReduceArgs.h"

// Whether results are split, for a second pass to combine.
FUNCTION_CONSTANT(bool, SPLIT);
// Whether rows are aligned for vector loads of four.
FUNCTION_CONSTANT(bool, VECTOR);
// Whether each SIMD-group has its own row, several in a threadgroup.
FUNCTION_CONSTANT(bool, ROW_PER_SIMD_GROUP);
// Whether the elements of a result are a single axis.
FUNCTION_CONSTANT(bool, SINGLE_AXIS);

inline long result_offset(constant ReduceArgs& reduction, uint result) {
    const uint inner = reduction.kept.dims[reduction.kept.rank - 1];
    return view_offset(reduction.kept, reduction.kept_view, uint2(result % inner, result / inner));
}

inline long element_offset(constant ReduceArgs& reduction, uint i) {
    if (SINGLE_AXIS) {
        return long(i) * reduction.reduced_view.strides[0];
    }
    const uint inner = reduction.reduced.dims[reduction.reduced.rank - 1];
    return view_offset(reduction.reduced, reduction.reduced_view, uint2(i % inner, i / inner));
}

// Stores the partial result of a split, or the result.
inline void store_split(State state, uint result, uint split, constant ReduceArgs& reduction, device uchar* target) {
    if (SPLIT) {
        ((device State*)target)[ulong(split) * reduction.results + result] = state;
    } else {
        store_result(target, result, state, reduction.count, reduction.ddof);
    }
}

// One thread per split of a result: neighbouring threads have neighbouring results, whose elements are neighbours if
// results are columns. Splits take every `splits`-th element.
kernel void ENTRY(reduce_thread)(device const T* input, device uchar* target,
                                 constant ReduceArgs& reduction, uint at [[thread_position_in_grid]]) {
    const uint result = at % reduction.results;
    const uint split = at / reduction.results;
    const uint count = uint(reduction.count);
    const long from = result_offset(reduction, result);
    State state = F::identity();
    for (uint first = split; first < count; first += FOLD_BLOCK_LEN * reduction.splits) {
        C values[FOLD_BLOCK_LEN] = {};
        uint filled = 0;
        for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
            const uint i = first + k * reduction.splits;
            if (i < count) {
                values[k] = element_at(input, from + element_offset(reduction, i), i);
                filled = k + 1;
            }
        }
        state = F::combine(state, F::lift(values, filled));
    }
    store_split(state, result, split, reduction, target);
}

// One threadgroup, or SIMD-group, per split of a result.
kernel void ENTRY(reduce_group)(device const T* input, device uchar* target,
                                constant ReduceArgs& reduction, uint group [[threadgroup_position_in_grid]],
                                uint index [[thread_position_in_threadgroup]],
                                uint threads [[threads_per_threadgroup]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint simd_group [[simdgroup_index_in_threadgroup]],
                                uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup State shared[32];
    const uint index_of_split = ROW_PER_SIMD_GROUP ? group * simd_groups + simd_group : group;
    const uint result = index_of_split % reduction.results;
    const uint split = index_of_split / reduction.results;
    if (ROW_PER_SIMD_GROUP && split >= reduction.splits) {
        return;
    }
    const uint own = ROW_PER_SIMD_GROUP ? lane : index;
    const uint stride = ROW_PER_SIMD_GROUP ? 32 : threads;
    const uint begin = split * reduction.chunk;
    const uint end = uint(min(reduction.count, ulong(begin) + reduction.chunk));
    const long from = result_offset(reduction, result);
    State state = F::identity();
#ifndef KINDS
    if (VECTOR) {
        for (uint first = begin + own * FOLD_BLOCK_LEN; first < end; first += stride * FOLD_BLOCK_LEN) {
            C values[FOLD_BLOCK_LEN] = {};
            const uint filled = min(uint(FOLD_BLOCK_LEN), end - first);
            if (filled == FOLD_BLOCK_LEN) {
                const vec<T, 4> low = *(device const vec<T, 4>*)(input + from + first);
                const vec<T, 4> high = *(device const vec<T, 4>*)(input + from + first + 4);
                for (uint k = 0; k < 4; k++) {
                    values[k] = element(low[k]);
                    values[k + 4] = element(high[k]);
                }
            } else {
                for (uint k = 0; k < filled; k++) {
                    values[k] = element_at(input, from + first + k, first + k);
                }
            }
            state = F::combine(state, F::lift(values, filled));
        }
    } else
#endif
    {
        for (uint first = begin + own; first < end; first += stride * FOLD_BLOCK_LEN) {
            C values[FOLD_BLOCK_LEN] = {};
            uint filled = 0;
            for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
                const uint i = first + k * stride;
                if (i < end) {
                    values[k] = element_at(input, from + element_offset(reduction, i), i);
                    filled = k + 1;
                }
            }
            state = F::combine(state, F::lift(values, filled));
        }
    }
    state = group_combine<F>(state, shared, lane, ROW_PER_SIMD_GROUP ? 0 : simd_group,
                             ROW_PER_SIMD_GROUP ? 1 : simd_groups);
    if (own == 0) {
        store_split(state, result, split, reduction, target);
    }
}

// Combines the splits of results, with one SIMD-group per result.
kernel void ENTRY(reduce_merge)(device const State* states, device uchar* output, constant ReduceArgs& reduction,
                                uint group [[threadgroup_position_in_grid]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint simd_group [[simdgroup_index_in_threadgroup]],
                                uint simd_groups [[simdgroups_per_threadgroup]]) {
    const uint result = group * simd_groups + simd_group;
    if (result >= reduction.results) {
        return;
    }
    State state = F::identity();
    for (uint split = lane; split < reduction.splits; split += 32) {
        state = F::combine(state, states[ulong(split) * reduction.results + result]);
    }
    state = simd_combine<F>(state);
    if (lane == 0) {
        store_result(output, result, state, reduction.count, reduction.ddof);
    }
}
