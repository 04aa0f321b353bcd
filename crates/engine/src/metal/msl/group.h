// Reductions over the threads of a threadgroup: by SIMD-group first, then over the SIMD-groups. Every thread
// gets the result, and the order of the operations is always the same. `shared` has room for one value of
// each SIMD-group, 32 at most, and may be used again at once.

template <typename T> struct Sum {
    static T identity() { return T(0); }
    static T join(T a, T b) { return a + b; }
    static T simd(T a) { return simd_sum(a); }
};

// The greatest; NaN if one is.
template <typename T> struct Max {
    static T identity() { return T(-INFINITY); }
    static T join(T a, T b) { return isnan(a) || a > b ? a : b; }
    static T simd(T a) {
        const T most = simd_max(isnan(a) ? T(-INFINITY) : a);
        return simd_any(isnan(a)) ? T(NAN) : most;
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
