#include "fold.h"
#include "rows.h"
#include "host/ScanArgs.h"

// Prefix scans along rows, by the folds of reductions.

// Whether each SIMD-group has its own row, several in a threadgroup.
FUNCTION_CONSTANT(bool, PACKED);
// Whether a row is split.
FUNCTION_CONSTANT(bool, SPLIT);

// Elements that a thread takes per step, as in metal/scan.rs.
#define ITEMS 4

inline State lifted(device const T* input, long at) {
    const C one[BLOCK] = {element_at(input, at, 0)};
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
    constant Rows& rows = scanning.rows;
    const uint row = group / scanning.parts;
    const uint begin = group % scanning.parts * scanning.chunk;
    const uint end = min(rows.len, begin + scanning.chunk);
    const long from = row_start(rows, row);
    State state = F::identity();
    for (uint i = begin + index; i < end; i += threads) {
        state = F::join(state, lifted(input, from + long(i) * rows.stride));
    }
    state = group_join<F>(state, shared, lane, simd_group, simd_groups);
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
    constant Rows& rows = scanning.rows;
    const uint number = PACKED ? group * simd_groups + simd_group : group;
    const uint row = number / scanning.parts;
    const uint part = number % scanning.parts;
    if (PACKED && row >= rows.count) {
        return;
    }
    const uint own = PACKED ? lane : index;
    const uint team = PACKED ? 32 : threads;
    const uint begin = part * scanning.chunk;
    const uint end = min(rows.len, begin + scanning.chunk);
    const long from = row_start(rows, row);
    const ulong to = row_target(rows, row);
    // The total of everything before.
    State carry = F::identity();
    if (SPLIT) {
        for (uint p = own; p < part; p += team) {
            carry = F::join(carry, totals[row * scanning.parts + p]);
        }
        carry = group_join<F>(carry, shared, lane, simd_group, simd_groups);
        if (index == 0) {
            shared[0] = carry;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        carry = shared[0];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint block = begin; block < end; block += team * ITEMS) {
        const uint first = block + own * ITEMS;
        State held[ITEMS];
        for (uint k = 0; k < ITEMS; k++) {
            const State next =
                first + k < end ? lifted(input, from + long(first + k) * rows.stride) : F::identity();
            held[k] = k == 0 ? next : F::join(held[k - 1], next);
        }
        // Inclusive scan over the lanes.
        State here = held[ITEMS - 1];
        for (ushort by = 1; by < 32; by *= 2) {
            const State other = F::up(here, by);
            here = lane >= by ? F::join(other, here) : here;
        }
        const State left = F::up(here, 1);
        State before = lane == 0 ? carry : F::join(carry, left);
        if (PACKED) {
            // The last lane has the total: broadcast it.
            carry = F::join(carry, here);
            for (ushort bits = 16; bits > 0; bits /= 2) {
                const State other = F::pass(carry, bits);
                carry = (lane & bits) == 0 ? other : carry;
            }
        } else {
            if (lane == 31) {
                shared[simd_group] = here;
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            State all = carry;
            for (uint s = 0; s < simd_groups; s++) {
                if (s == simd_group) {
                    before = lane == 0 ? all : F::join(all, left);
                }
                all = F::join(all, shared[s]);
            }
            carry = all;
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        for (uint k = 0; k < ITEMS; k++) {
            if (first + k < end) {
                put(output, to + ulong(first + k) * rows.inner, F::join(before, held[k]), 1, 0);
            }
        }
    }
}

// One thread per row: neighbouring rows have neighbouring elements.
kernel void ENTRY(scan_column)(device const T* input, device uchar* output, constant ScanArgs& scanning,
                               uint row [[thread_position_in_grid]]) {
    constant Rows& rows = scanning.rows;
    const long from = row_start(rows, row);
    const ulong to = row_target(rows, row);
    State state = F::identity();
    for (uint i = 0; i < rows.len; i++) {
        state = F::join(state, lifted(input, from + long(i) * rows.stride));
        put(output, to + ulong(i) * rows.inner, state, 1, 0);
    }
}
