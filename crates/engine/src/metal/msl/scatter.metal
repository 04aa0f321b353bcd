#include "types.h"
#include "axis_split.h"
#include "index.h"
#include "host/ScatterTarget.h"

// Whether elements are added to the output, or replace its elements; then T only has their size.
FUNCTION_CONSTANT(bool, ADD);

typedef computed_t<T> C;

// Each sum is rounded to the type; integers wrap, booleans are or-ed.
inline T combine(T current, T next_value) {
    if (!ADD) {
        return next_value;
    }
    return is_same_v<T, bool> ? T(current || next_value) : T(C(current) + C(next_value));
}

// One thread per column of a block, which takes its elements in order. Grid: columns, blocks.
kernel void ENTRY(scatter_columns)(device const void* indices, device const T* source, device T* output,
                                   device FaultRecord* fault, constant AxisSplit& by, constant AxisSplit& from,
                                   constant ScatterTarget& to, uint2 at [[thread_position_in_grid]]) {
    const long first_index = column_offset(by, at.y, at.x);
    device const T* next = source + column_offset(from, at.y, at.x);
    device T* column = output + ulong(at.y) * to.len * to.width + at.x;
    for (uint i = 0; i < by.len; i++) {
        const long row = resolve(index_at(indices, first_index + i * by.stride), to.len, fault, true);
        if (row >= 0) {
            device T* element = column + row * to.width;
            *element = combine(*element, next[i * from.stride]);
        }
    }
}

// One thread per element of the result, which scans the indices for its sources: for few columns. Grid: columns, rows,
// blocks of the result.
kernel void ENTRY(scatter_elements)(device const void* indices, device const T* source, device T* output,
                                    device FaultRecord* fault, constant AxisSplit& by, constant AxisSplit& from,
                                    constant ScatterTarget& to, uint3 at [[thread_position_in_grid]]) {
    const long first_index = column_offset(by, at.z, at.x);
    device const T* next = source + column_offset(from, at.z, at.x);
    device T* element = output + (ulong(at.z) * to.len + at.y) * to.width + at.x;
    T value = *element;
    for (uint i = 0; i < by.len; i++) {
        const long index = index_at(indices, first_index + i * by.stride);
        if (resolve(index, to.len, fault, at.y == 0) == at.y) {
            value = combine(value, next[i * from.stride]);
        }
    }
    *element = value;
}

// The rows that indices name; the number of rows if one is out of range. Grid: columns, indices, blocks.
kernel void ENTRY(scatter_rows)(device const void* indices, device uint* rows, device FaultRecord* fault,
                                constant AxisSplit& by, constant ScatterTarget& to,
                                uint3 at [[thread_position_in_grid]]) {
    const long index = index_at(indices, column_offset(by, at.z, at.x) + at.y * by.stride);
    const long row = resolve(index, to.len, fault, true);
    rows[(ulong(at.z) * by.len + at.y) * to.width + at.x] = row < 0 ? to.len : uint(row);
}

// One thread per element of the result, which finds its sources by binary search. `order` is the stable order of the
// rows that are named in a column. Grid: columns, rows, blocks of the result.
kernel void ENTRY(scatter_ordered)(device const uint* rows, device const long* order, device const T* source,
                                   device T* output, constant AxisSplit& from, constant ScatterTarget& to,
                                   uint3 at [[thread_position_in_grid]]) {
    const ulong base = ulong(at.z) * from.len * to.width + at.x;
    device const T* next = source + column_offset(from, at.z, at.x);
    device T* element = output + (ulong(at.z) * to.len + at.y) * to.width + at.x;
    // The lower bound of its sources if all are added, the upper bound if the last one wins.
    uint low = 0, high = from.len;
    while (low < high) {
        const uint middle = low + (high - low) / 2;
        const uint row = rows[base + order[base + ulong(middle) * to.width] * to.width];
        if (ADD ? row < at.y : row <= at.y) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (!ADD && low > 0) {
        const long i = order[base + ulong(low - 1) * to.width];
        if (rows[base + i * to.width] == at.y) {
            *element = next[i * from.stride];
        }
        return;
    }
    T value = *element;
    for (; ADD && low < from.len; low++) {
        const long i = order[base + ulong(low) * to.width];
        if (rows[base + i * to.width] != at.y) {
            break;
        }
        value = combine(value, next[i * from.stride]);
    }
    *element = value;
}
