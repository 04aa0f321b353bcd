#include "fold.h"
#include "axis_rows.h"
#include "host/ScanArgs.h"

// Prefix scans along rows, by the folds of reductions.

// Whether each SIMD-group has its own row, several in a threadgroup.
FUNCTION_CONSTANT(bool, ROW_PER_SIMD_GROUP);
// Whether a row is split.
FUNCTION_CONSTANT(bool, SPLIT);

// Elements that a thread takes per step, as in metal/scan.rs.
#define ITEMS_PER_THREAD 4

inline State lifted(device const T* input, long at) {
    const C one[FOLD_BLOCK_LEN] = {element_at(input, at, 0)};
    return F::lift(one, 1);
}

// The total of a split of a row, for the launch that follows.
kernel void ENTRY(scan_totals)(device const T* input, device State* totals, constant ScanArgs& scanning,
                               uint group [[threadgroup_position_in_grid]],
                               uint index [[thread_position_in_threadgroup]],
                               uint threads [[threads_per_threadgroup]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simd_group [[simdgroup_index_in_threadgroup]],
                               uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup State shared[32];
    constant AxisRows& rows = scanning.rows;
    const uint row = group / scanning.splits;
    const uint begin = group % scanning.splits * scanning.chunk;
    const uint end = min(rows.len, begin + scanning.chunk);
    const long from = row_offset(rows, row);
    State state = F::identity();
    for (uint i = begin + index; i < end; i += threads) {
        state = F::combine(state, lifted(input, from + long(i) * rows.stride));
    }
    state = group_combine<F>(state, shared, lane, simd_group, simd_groups);
    if (index == 0) {
        totals[group] = state;
    }
}

// A row, or a split of it: blocks of as many elements as the threads hold, one after the other.
kernel void ENTRY(scan_row)(device const T* input, device const State* totals, device uchar* output,
                            constant ScanArgs& scanning, uint group [[threadgroup_position_in_grid]],
                            uint index [[thread_position_in_threadgroup]],
                            uint threads [[threads_per_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]],
                            uint simd_group [[simdgroup_index_in_threadgroup]],
                            uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup State shared[32];
    constant AxisRows& rows = scanning.rows;
    const uint index_of_split = ROW_PER_SIMD_GROUP ? group * simd_groups + simd_group : group;
    const uint row = index_of_split / scanning.splits;
    const uint split = index_of_split % scanning.splits;
    if (ROW_PER_SIMD_GROUP && row >= rows.count) {
        return;
    }
    const uint own = ROW_PER_SIMD_GROUP ? lane : index;
    const uint stride = ROW_PER_SIMD_GROUP ? 32 : threads;
    const uint begin = split * scanning.chunk;
    const uint end = min(rows.len, begin + scanning.chunk);
    const long from = row_offset(rows, row);
    const ulong to = result_row_offset(rows, row);
    // The total of everything before.
    State carry = F::identity();
    if (SPLIT) {
        for (uint p = own; p < split; p += stride) {
            carry = F::combine(carry, totals[row * scanning.splits + p]);
        }
        carry = group_combine<F>(carry, shared, lane, simd_group, simd_groups);
        if (index == 0) {
            shared[0] = carry;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        carry = shared[0];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint block = begin; block < end; block += stride * ITEMS_PER_THREAD) {
        const uint first = block + own * ITEMS_PER_THREAD;
        State values[ITEMS_PER_THREAD];
        for (uint k = 0; k < ITEMS_PER_THREAD; k++) {
            const State next =
                first + k < end ? lifted(input, from + long(first + k) * rows.stride) : F::identity();
            values[k] = k == 0 ? next : F::combine(values[k - 1], next);
        }
        // Inclusive scan over the lanes.
        State inclusive = values[ITEMS_PER_THREAD - 1];
        for (ushort by = 1; by < 32; by *= 2) {
            const State other = F::shuffle_up(inclusive, by);
            inclusive = lane >= by ? F::combine(other, inclusive) : inclusive;
        }
        const State preceding = F::shuffle_up(inclusive, 1);
        State before = lane == 0 ? carry : F::combine(carry, preceding);
        if (ROW_PER_SIMD_GROUP) {
            // The last lane has the total: broadcast it.
            carry = F::combine(carry, inclusive);
            for (ushort bits = 16; bits > 0; bits /= 2) {
                const State other = F::shuffle_xor(carry, bits);
                carry = (lane & bits) == 0 ? other : carry;
            }
        } else {
            if (lane == 31) {
                shared[simd_group] = inclusive;
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            State all = carry;
            for (uint s = 0; s < simd_groups; s++) {
                if (s == simd_group) {
                    before = lane == 0 ? all : F::combine(all, preceding);
                }
                all = F::combine(all, shared[s]);
            }
            carry = all;
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        for (uint k = 0; k < ITEMS_PER_THREAD; k++) {
            if (first + k < end) {
                store_result(output, to + ulong(first + k) * rows.inner, F::combine(before, values[k]), 1, 0);
            }
        }
    }
}

// One thread per row: neighbouring rows have neighbouring elements.
kernel void ENTRY(scan_column)(device const T* input, device uchar* output, constant ScanArgs& scanning,
                               uint row [[thread_position_in_grid]]) {
    constant AxisRows& rows = scanning.rows;
    const long from = row_offset(rows, row);
    const ulong to = result_row_offset(rows, row);
    State state = F::identity();
    for (uint i = 0; i < rows.len; i++) {
        state = F::combine(state, lifted(input, from + long(i) * rows.stride));
        store_result(output, to + ulong(i) * rows.inner, state, 1, 0);
    }
}
