#include "fold.h"
#include "view.h"
#include "host/ReduceArgs.h"

// Whether results are split, for a second pass to combine.
FUNCTION_CONSTANT(bool, SPLIT);
// Whether rows are aligned for vector loads of four.
FUNCTION_CONSTANT(bool, VECTOR);
// Whether each SIMD-group has its own row, several in a threadgroup.
FUNCTION_CONSTANT(bool, PACKED);
// Whether the elements of a result are a single axis.
FUNCTION_CONSTANT(bool, PLAIN);

inline long result_start(constant ReduceArgs& reduction, uint result) {
    const uint inner = reduction.kept.dims[reduction.kept.rank - 1];
    return place(reduction.kept, reduction.kept_steps, uint2(result % inner, result / inner));
}

inline long element_place(constant ReduceArgs& reduction, uint i) {
    if (PLAIN) {
        return long(i) * reduction.reduced_steps.strides[0];
    }
    const uint inner = reduction.reduced.dims[reduction.reduced.rank - 1];
    return place(reduction.reduced, reduction.reduced_steps, uint2(i % inner, i / inner));
}

// Stores the partial result of a split, or the result.
inline void leave(State state, uint result, uint part, constant ReduceArgs& reduction, device uchar* target) {
    if (SPLIT) {
        ((device State*)target)[ulong(part) * reduction.results + result] = state;
    } else {
        put(target, result, state, reduction.count, reduction.ddof);
    }
}

// One thread per split of a result: neighbouring threads have neighbouring results, whose elements are neighbours if
// results are columns. Splits take every `splits`-th element.
kernel void ENTRY(reduce_thread)(device const T* input, device uchar* target,
                                 constant ReduceArgs& reduction, uint at [[thread_position_in_grid]]) {
    const uint result = at % reduction.results;
    const uint part = at / reduction.results;
    const uint count = uint(reduction.count);
    const long from = result_start(reduction, result);
    State state = F::identity();
    for (uint first = part; first < count; first += BLOCK * reduction.parts) {
        C held[BLOCK] = {};
        uint found = 0;
        for (uint k = 0; k < BLOCK; k++) {
            const uint i = first + k * reduction.parts;
            if (i < count) {
                held[k] = element_at(input, from + element_place(reduction, i), i);
                found = k + 1;
            }
        }
        state = F::join(state, F::lift(held, found));
    }
    leave(state, result, part, reduction, target);
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
    const uint number = PACKED ? group * simd_groups + simd_group : group;
    const uint result = number % reduction.results;
    const uint part = number / reduction.results;
    if (PACKED && part >= reduction.parts) {
        return;
    }
    const uint own = PACKED ? lane : index;
    const uint team = PACKED ? 32 : threads;
    const uint begin = part * reduction.chunk;
    const uint end = uint(min(reduction.count, ulong(begin) + reduction.chunk));
    const long from = result_start(reduction, result);
    State state = F::identity();
#ifndef KINDS
    if (VECTOR) {
        for (uint first = begin + own * BLOCK; first < end; first += team * BLOCK) {
            C held[BLOCK] = {};
            const uint found = min(uint(BLOCK), end - first);
            if (found == BLOCK) {
                const vec<T, 4> low = *(device const vec<T, 4>*)(input + from + first);
                const vec<T, 4> high = *(device const vec<T, 4>*)(input + from + first + 4);
                for (uint k = 0; k < 4; k++) {
                    held[k] = element(low[k]);
                    held[k + 4] = element(high[k]);
                }
            } else {
                for (uint k = 0; k < found; k++) {
                    held[k] = element_at(input, from + first + k, first + k);
                }
            }
            state = F::join(state, F::lift(held, found));
        }
    } else
#endif
    {
        for (uint first = begin + own; first < end; first += team * BLOCK) {
            C held[BLOCK] = {};
            uint found = 0;
            for (uint k = 0; k < BLOCK; k++) {
                const uint i = first + k * team;
                if (i < end) {
                    held[k] = element_at(input, from + element_place(reduction, i), i);
                    found = k + 1;
                }
            }
            state = F::join(state, F::lift(held, found));
        }
    }
    state = group_join<F>(state, shared, lane, PACKED ? 0 : simd_group, PACKED ? 1 : simd_groups);
    if (own == 0) {
        leave(state, result, part, reduction, target);
    }
}

// Combines the splits of results, with one SIMD-group per result.
kernel void ENTRY(reduce_parts)(device const State* states, device uchar* output, constant ReduceArgs& reduction,
                                uint group [[threadgroup_position_in_grid]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint simd_group [[simdgroup_index_in_threadgroup]],
                                uint simd_groups [[simdgroups_per_threadgroup]]) {
    const uint result = group * simd_groups + simd_group;
    if (result >= reduction.results) {
        return;
    }
    State state = F::identity();
    for (uint part = lane; part < reduction.parts; part += 32) {
        state = F::join(state, states[ulong(part) * reduction.results + result]);
    }
    state = simd_join<F>(state);
    if (lane == 0) {
        put(output, result, state, reduction.count, reduction.ddof);
    }
}
