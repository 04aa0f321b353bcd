#include "types.h"
#include "threadgroup_reduce.h"
#include "axis_rows.h"
#include "host/NormParameter.h"

// Shared by the norms of rows.

// Whether a row and its parameters are aligned for vector loads of four.
FUNCTION_CONSTANT(bool, VECTOR);
// Whether each SIMD-group has its own row, several in a threadgroup.
FUNCTION_CONSTANT(bool, ROW_PER_SIMD_GROUP);

typedef computed_t<T> C;

// Elements of a row that a thread keeps in registers.
#define VALUES_PER_THREAD 4

// The threads that share a row, and the position of this one among them.
struct RowThreads {
    uint row;
    uint index;
    uint threads;
    uint lane;
    uint simd_group;
    uint simd_groups;
};

inline RowThreads row_threads(uint group, uint index, uint threads, uint lane, uint simd_group, uint simd_groups) {
    if (ROW_PER_SIMD_GROUP) {
        return RowThreads{group * simd_groups + simd_group, lane, 32, lane, 0, 1};
    }
    return RowThreads{group, index, threads, lane, simd_group, simd_groups};
}

inline C row_sum(C value, threadgroup C* shared, RowThreads row_threads) {
    return group_reduce<Sum<C>>(value, shared, row_threads.lane, row_threads.simd_group, row_threads.simd_groups);
}

// Elements `at` and following of a row; 0 past its end.
inline vec<C, VALUES_PER_THREAD> row_load(device const T* from, long stride, uint at, uint len) {
    if (VECTOR && at + VALUES_PER_THREAD <= len) {
        return vec<C, VALUES_PER_THREAD>(*(device const vec<T, VALUES_PER_THREAD>*)(from + at));
    }
    vec<C, VALUES_PER_THREAD> values = 0;
    for (uint k = 0; k < VALUES_PER_THREAD; k++) {
        if (at + k < len) {
            values[k] = C(from[long(at + k) * stride]);
        }
    }
    return values;
}

// Writes elements `at` and following of a row of the result.
inline void row_store(device T* to, ulong inner, uint at, uint len, vec<C, VALUES_PER_THREAD> values) {
    if (VECTOR && at + VALUES_PER_THREAD <= len) {
        *(device vec<T, VALUES_PER_THREAD>*)(to + at) = vec<T, VALUES_PER_THREAD>(values);
        return;
    }
    for (uint k = 0; k < VALUES_PER_THREAD; k++) {
        if (at + k < len) {
            to[ulong(at + k) * inner] = T(values[k]);
        }
    }
}

// Elements `at` and following of a parameter; 0 past its end.
template <typename P>
inline vec<C, VALUES_PER_THREAD> parameter_load(device const P* from, constant NormParameter& parameter, uint at,
                                                uint len) {
    device const P* first = from + parameter.offset;
    if (VECTOR && at + VALUES_PER_THREAD <= len) {
        return vec<C, VALUES_PER_THREAD>(*(device const vec<P, VALUES_PER_THREAD>*)(first + at));
    }
    vec<C, VALUES_PER_THREAD> values = 0;
    for (uint k = 0; k < VALUES_PER_THREAD; k++) {
        if (at + k < len) {
            values[k] = C(first[long(at + k) * parameter.stride]);
        }
    }
    return values;
}

inline C horizontal_sum(vec<C, VALUES_PER_THREAD> v) {
    return (v[0] + v[1]) + (v[2] + v[3]);
}

// Differences from the mean; 0 past the end of the row.
inline vec<C, VALUES_PER_THREAD> centered(vec<C, VALUES_PER_THREAD> values, C mean, uint at, uint len) {
    vec<C, VALUES_PER_THREAD> result = values - mean;
    for (uint k = 0; k < VALUES_PER_THREAD; k++) {
        if (at + k >= len) {
            result[k] = 0;
        }
    }
    return result;
}
