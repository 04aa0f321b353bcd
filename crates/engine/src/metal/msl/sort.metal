#include "types.h"
#include "sort_key.h"
#include "axis_rows.h"
#include "host/SortArgs.h"

// Sort by keys with the index of the element, which makes all of them different: the sort is stable. Blocks are sorted
// in threadgroup memory, then merged.

// Elements that a threadgroup sorts, and that a thread merges, as in metal/sort.rs.
#define SORT_BLOCK_LEN 1024
#define ITEMS_PER_THREAD 8

// Whether elements come from the input, instead of the keys and indices of an earlier launch.
FUNCTION_CONSTANT(bool, FIRST);
// Whether the result is written, instead of keys and indices.
FUNCTION_CONSTANT(bool, LAST);
// Whether the result is indices, instead of elements.
FUNCTION_CONSTANT(bool, INDICES);
FUNCTION_CONSTANT(bool, DESCENDING);
// Bytes of an element.
FUNCTION_CONSTANT(uint, SIZE);

inline bool before(Key a, uint at_a, Key b, uint at_b) {
    return a < b || (a == b && at_a < at_b);
}

// Writes number `i` of the result of a row.
inline void store_result(device const uchar* input, device uchar* target, constant SortArgs& sorting, uint row, uint i,
                         uint index) {
    const uint inner = sorting.rows.inner;
    const ulong to = (ulong(row / inner) * sorting.result + i) * inner + row % inner;
    if (INDICES) {
        ((device long*)target)[to] = long(index);
    } else {
        const long from = row_offset(sorting.rows, row) + long(index) * sorting.rows.stride;
        switch (SIZE) {
        case 1: target[to] = input[from]; break;
        case 2: ((device ushort*)target)[to] = ((device const ushort*)input)[from]; break;
        case 4: ((device uint*)target)[to] = ((device const uint*)input)[from]; break;
        default: ((device ulong*)target)[to] = ((device const ulong*)input)[from]; break;
        }
    }
}

// Stores a key and its index for the next launch: first all keys, then all indices.
inline void store_pair(device uchar* target, constant SortArgs& sorting, ulong at, Key key, uint index) {
    device Key* keys = (device Key*)target;
    keys[at] = key;
    ((device uint*)(keys + ulong(sorting.rows.count) * sorting.next))[at] = index;
}

// Sorts a block of a row: a bitonic network, of half as many threads as a block has keys. Writes the result, or the
// keys that are kept.
[[max_total_threads_per_threadgroup(512)]] kernel void ENTRY(sort_block)(device const uchar* input,
        device const Key* keys_in, device uchar* target,
        constant SortArgs& sorting, uint group [[threadgroup_position_in_grid]],
        uint own [[thread_position_in_threadgroup]],
        uint threads [[threads_per_threadgroup]]) {
    threadgroup Key keys[SORT_BLOCK_LEN];
    threadgroup uint indices[SORT_BLOCK_LEN];
    device const uint* indices_in = (device const uint*)(keys_in + ulong(sorting.rows.count) * sorting.len);
    const uint row = group / sorting.blocks;
    const uint block = group % sorting.blocks;
    const uint start = block * SORT_BLOCK_LEN;
    const uint count = min(uint(SORT_BLOCK_LEN), sorting.len - start);
    // A power of two; padding sorts last.
    const uint size = threads * 2;
    for (uint i = own; i < size; i += threads) {
        Key key = ~Key(0);
        uint index = 0xFFFFFFFFu;
        if (i < count) {
            if (FIRST) {
                index = start + i;
                key = key_at(input, row_offset(sorting.rows, row) + long(index) * sorting.rows.stride);
                key = DESCENDING ? Key(~key) : key;
            } else {
                const ulong at = ulong(row) * sorting.len + start + i;
                key = keys_in[at];
                index = indices_in[at];
            }
        }
        keys[i] = key;
        indices[i] = index;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint run = 2; run <= size; run *= 2) {
        for (uint distance = run / 2; distance > 0; distance /= 2) {
            const uint i = 2 * own - (own & (distance - 1));
            const uint j = i + distance;
            const bool ascending = (i & run) == 0;
            const Key a = keys[i];
            const Key b = keys[j];
            const uint at_a = indices[i];
            const uint at_b = indices[j];
            if (before(b, at_b, a, at_a) == ascending) {
                keys[i] = b;
                keys[j] = a;
                indices[i] = at_b;
                indices[j] = at_a;
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
    }
    const uint kept = min(count, sorting.keep);
    for (uint i = own; i < kept; i += threads) {
        if (LAST) {
            store_result(input, target, sorting, row, i, indices[i]);
        } else {
            const ulong to = ulong(row) * sorting.next + block * sorting.keep + i;
            store_pair(target, sorting, to, keys[i], indices[i]);
        }
    }
}

// Merges neighbouring runs of a row. Each thread finds the beginning of its part of the result in both, by binary
// search (merge path), and continues from there.
kernel void ENTRY(sort_merge)(device const uchar* input, device const Key* keys_in, device uchar* target,
                              constant SortArgs& sorting,
                              uint2 own [[thread_position_in_grid]]) {
    device const uint* indices_in = (device const uint*)(keys_in + ulong(sorting.rows.count) * sorting.len);
    const uint row = own.y;
    const uint first = own.x * ITEMS_PER_THREAD;
    const uint len = sorting.len;
    const uint width = sorting.width;
    const uint start = first / (2 * width) * (2 * width);
    const uint middle = min(start + width, len);
    const uint a_count = middle - start;
    const uint b_count = min(middle + width, len) - middle;
    const ulong base = ulong(row) * len;
    device const Key* a = keys_in + base + start;
    device const Key* b = keys_in + base + middle;
    const uint done = first - start;
    uint low = done > b_count ? done - b_count : 0;
    uint high = min(done, a_count);
    while (low < high) {
        const uint half_way = (low + high) / 2;
        // The first run has the lower indices: it comes first on equal keys.
        if (a[half_way] <= b[done - 1 - half_way]) {
            low = half_way + 1;
        } else {
            high = half_way;
        }
    }
    uint i = low;
    uint j = done - low;
    for (uint k = 0; k < ITEMS_PER_THREAD && first + k < len; k++) {
        const bool from_a = j >= b_count || (i < a_count && a[i] <= b[j]);
        const uint at = from_a ? start + i : middle + j;
        i += from_a ? 1 : 0;
        j += from_a ? 0 : 1;
        const uint index = indices_in[base + at];
        if (LAST) {
            if (first + k < sorting.result) {
                store_result(input, target, sorting, row, first + k, index);
            }
        } else {
            store_pair(target, sorting, base + first + k, keys_in[base + at], index);
        }
    }
}
