// Reductions over the threads of a threadgroup: within SIMD-groups first, then across them. Every thread gets the
// result, and the order of the operations is always the same. `shared` has space for one value of each SIMD-group, 32
// at most, and may be reused immediately.

template <typename T> struct Sum {
    static T identity() { return T(0); }
    static T combine(T a, T b) { return a + b; }
    static T simd(T a) { return simd_sum(a); }
};

// The maximum; NaN if one is.
template <typename T> struct Max {
    static T identity() { return T(-INFINITY); }
    static T combine(T a, T b) { return isnan(a) || a > b ? a : b; }
    static T simd(T a) {
        const T maximum = simd_max(isnan(a) ? T(-INFINITY) : a);
        return simd_any(isnan(a)) ? T(NAN) : maximum;
    }
};

template <typename R, typename T>
inline T group_reduce(T value, threadgroup T* shared, uint lane, uint simd_group, uint simd_groups) {
    value = R::simd(value);
    if (simd_groups == 1) {
        return value;
    }
    if (lane == 0) {
        shared[simd_group] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    value = R::simd(lane < simd_groups ? shared[lane] : R::identity());
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return value;
}

// simd_shuffle_xor, also of types that it does not support.
template <typename T> inline T lane_xor(T value, ushort bits) {
    return simd_shuffle_xor(value, bits);
}
template <> inline long lane_xor<long>(long value, ushort bits) {
    return as_type<long>(simd_shuffle_xor(as_type<uint2>(value), bits));
}
template <> inline ulong lane_xor<ulong>(ulong value, ushort bits) {
    return as_type<ulong>(simd_shuffle_xor(as_type<uint2>(value), bits));
}

// simd_shuffle_up, also of types that it does not support; any value in the first lanes.
template <typename T> inline T lane_up(T value, ushort by) {
    return simd_shuffle_up(value, by);
}
template <> inline long lane_up<long>(long value, ushort by) {
    return as_type<long>(simd_shuffle_up(as_type<uint2>(value), by));
}
template <> inline ulong lane_up<ulong>(ulong value, ushort by) {
    return as_type<ulong>(simd_shuffle_up(as_type<uint2>(value), by));
}

// Combines the states of the lanes of a SIMD-group in a fixed order; the first lane has the result. `F` has `State`,
// `identity`, `combine` and `shuffle_xor`, which is `lane_xor` of a state.
template <typename F> inline typename F::State simd_combine(typename F::State state) {
    for (ushort bits = 1; bits < 32; bits *= 2) {
        state = F::combine(state, F::shuffle_xor(state, bits));
    }
    return state;
}

// Combines the states of the threads of a threadgroup; the first thread has the result.
template <typename F>
inline typename F::State group_combine(typename F::State state, threadgroup typename F::State* shared, uint lane,
                                       uint simd_group, uint simd_groups) {
    state = simd_combine<F>(state);
    if (simd_groups == 1) {
        return state;
    }
    if (lane == 0) {
        shared[simd_group] = state;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd_group == 0) {
        typename F::State own = F::identity();
        if (lane < simd_groups) {
            own = shared[lane];
        }
        state = simd_combine<F>(own);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return state;
}
