#include "types.h"
#include "group.h"
#include "rows.h"
#include "host/NormParameter.h"

// Shared by the norms of rows.

// Whether a row and its parameters are aligned for vector loads of four.
FUNCTION_CONSTANT(bool, VECTOR);
// Whether each SIMD-group has its own row, several in a threadgroup.
FUNCTION_CONSTANT(bool, PACKED);

typedef computed_t<T> C;

// Elements of a row that a thread keeps in registers.
#define HELD 4

// The threads that share a row, and the position of this one among them.
struct Team {
    uint row;
    uint index;
    uint threads;
    uint lane;
    uint simd_group;
    uint simd_groups;
};

inline Team team(uint group, uint index, uint threads, uint lane, uint simd_group, uint simd_groups) {
    if (PACKED) {
        return Team{group * simd_groups + simd_group, lane, 32, lane, 0, 1};
    }
    return Team{group, index, threads, lane, simd_group, simd_groups};
}

inline C team_sum(C value, threadgroup C* shared, Team team) {
    return group_reduce<Sum<C>>(value, shared, team.lane, team.simd_group, team.simd_groups);
}

// Elements `at` and following of a row; 0 past its end.
inline vec<C, HELD> row_read(device const T* from, long stride, uint at, uint len) {
    if (VECTOR && at + HELD <= len) {
        return vec<C, HELD>(*(device const vec<T, HELD>*)(from + at));
    }
    vec<C, HELD> held = 0;
    for (uint k = 0; k < HELD; k++) {
        if (at + k < len) {
            held[k] = C(from[long(at + k) * stride]);
        }
    }
    return held;
}

// Writes elements `at` and following of a row of the result.
inline void row_write(device T* to, ulong inner, uint at, uint len, vec<C, HELD> held) {
    if (VECTOR && at + HELD <= len) {
        *(device vec<T, HELD>*)(to + at) = vec<T, HELD>(held);
        return;
    }
    for (uint k = 0; k < HELD; k++) {
        if (at + k < len) {
            to[ulong(at + k) * inner] = T(held[k]);
        }
    }
}

// Elements `at` and following of a parameter; 0 past its end.
template <typename P>
inline vec<C, HELD> parameter_read(device const P* from, constant NormParameter& parameter, uint at, uint len) {
    device const P* first = from + parameter.offset;
    if (VECTOR && at + HELD <= len) {
        return vec<C, HELD>(*(device const vec<P, HELD>*)(first + at));
    }
    vec<C, HELD> held = 0;
    for (uint k = 0; k < HELD; k++) {
        if (at + k < len) {
            held[k] = C(first[long(at + k) * parameter.stride]);
        }
    }
    return held;
}

inline C sum_of(vec<C, HELD> v) {
    return (v[0] + v[1]) + (v[2] + v[3]);
}

// Differences from the mean; 0 past the end of the row.
inline vec<C, HELD> apart(vec<C, HELD> held, C mean, uint at, uint len) {
    vec<C, HELD> result = held - mean;
    for (uint k = 0; k < HELD; k++) {
        if (at + k >= len) {
            result[k] = 0;
        }
    }
    return result;
}
