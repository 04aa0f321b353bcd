// Reductions and prefix operations over the lanes of a SIMD-group or of each quad in it.
//
// The order of a floating-point reduction is not specified by Metal; here it is a binary tree
// that combines the upper with the lower half, which vectorises. Fuzz mode permutes the lanes at random first.
#pragma once

namespace sm {
// Each operation defines the value that inactive lanes contribute. `-0` is the neutral element of
// floating-point addition; the idempotent operations can use any active lane's value.
struct op_sum {
  template <class T> static SM_FN T apply(T a, T b) { return T(a + b); }
  template <class T> static SM_FN T neutral(T) {
    if constexpr (metal::is_integral_v<T>) return T(0);
    else return T(-0.0f);
  }
};
struct op_product {
  template <class T> static SM_FN T apply(T a, T b) { return T(a * b); }
  template <class T> static SM_FN T neutral(T) { return T(1); }
};
struct op_min {
  template <class T> static SM_FN T apply(T a, T b) { return metal::min(a, b); }
  template <class T> static SM_FN T neutral(T any) { return any; }
};
struct op_max {
  template <class T> static SM_FN T apply(T a, T b) { return metal::max(a, b); }
  template <class T> static SM_FN T neutral(T any) { return any; }
};
struct op_and {
  template <class T> static SM_FN T apply(T a, T b) { return T(a & b); }
  template <class T> static SM_FN T neutral(T any) { return any; }
};
struct op_or {
  template <class T> static SM_FN T apply(T a, T b) { return T(a | b); }
  template <class T> static SM_FN T neutral(T any) { return any; }
};
struct op_xor {
  template <class T> static SM_FN T apply(T a, T b) { return T(a ^ b); }
  template <class T> static SM_FN T neutral(T) { return T(0); }
};

#if SM_FUZZ
template <class T> SM_FN void permute_lanes(T* v, uint count) {
  for (uint i = count - 1; i > 0; i--) {
    uint j = random() % (i + 1);
    T t = v[i];
    v[i] = v[j];
    v[j] = t;
  }
}
#else
template <class T> SM_FN void permute_lanes(T*, uint) {}
#endif

// Combines the upper half of the values with the lower half until one value is left.
template <class Op, uint width, class T> SM_FN T tree(T* v) {
  static_assert(width == simd_width || width == 4);
  if constexpr (width == simd_width) {
    for (uint i = 0; i < 16; i++) v[i] = Op::apply(v[i], v[i + 16]);
    for (uint i = 0; i < 8; i++) v[i] = Op::apply(v[i], v[i + 8]);
    for (uint i = 0; i < 4; i++) v[i] = Op::apply(v[i], v[i + 4]);
  }
  return Op::apply(Op::apply(v[0], v[2]), Op::apply(v[1], v[3]));
}

// Reduces each block of `width` lanes.
template <class T, class Op, uint width>
SM_UNCHECKED void reduce_op(const void* const* args, void* ret, uint mask) {
  const T* value = (const T*)args[0];
  T* result = (T*)ret;
  alignas(64) T v[simd_width];
  if (mask == all_lanes) {
    __builtin_memcpy(v, value, sizeof(v));
    for (uint start = 0; start < simd_width; start += width) {
      permute_lanes(v + start, width);
      T total = tree<Op, width>(v + start);
      for (uint i = start; i < start + width; i++) result[i] = total;
    }
    return;
  }
  for (uint start = 0; start < simd_width; start += width) {
    uint block = (uint)(((1ul << width) - 1) << start) & mask;
    if (!block) continue;
    T filler = Op::neutral(value[__builtin_ctz(block)]);
    for (uint i = start; i < start + width; i++) v[i] = active(mask, i) ? value[i] : filler;
    permute_lanes(v + start, width);
    T total = tree<Op, width>(v + start);
    for (uint i = start; i < start + width; i++)
      if (active(mask, i)) result[i] = total;
  }
}

// Prefix operation within each block of `width` lanes.
template <class T, class Op, bool inclusive, uint width>
SM_UNCHECKED void prefix_op(const void* const* args, void* ret, uint mask) {
  const T* value = (const T*)args[0];
  T* result = (T*)ret;
  T total{};
  for (uint i = 0; i < simd_width; i++) {
    if (i % width == 0) total = __is_same(Op, op_product) ? T(1) : T(0);
    if (!active(mask, i)) continue;
    T before = total;
    total = Op::apply(total, value[i]);
    result[i] = inclusive ? total : before;
  }
}

// One collective per component: the components of a vector are independent.
template <class Op, uint width, class T> SM_FN T reduce(T x) {
  return sync_simd<T>(&reduce_op<T, Op, width>, x);
}
template <class Op, uint width, class T, int N> SM_FN vec<T, N> reduce(vec<T, N> a) {
  using R = vec<T, N>;
#define SM_REDUCED(k, f) f<Op, width>(a.k)
  SM_EACH(R, N, SM_REDUCED, reduce)
#undef SM_REDUCED
}
template <class Op, bool inclusive, uint width, class T> SM_FN T prefix(T x) {
  return sync_simd<T>(&prefix_op<T, Op, inclusive, width>, x);
}
template <class Op, bool inclusive, uint width, class T, int N> SM_FN vec<T, N> prefix(vec<T, N> a) {
  using R = vec<T, N>;
#define SM_RUNNING(k, f) f<Op, inclusive, width>(a.k)
  SM_EACH(R, N, SM_RUNNING, prefix)
#undef SM_RUNNING
}
}  // namespace sm

// All functions that SIMD-groups and quads share, under their own prefix.
#define SM_LANE_FUNCTION(group, name, type_class, call)                              \
  template <class T, class = ::sm::type_class<T>> SM_FN T group##_##name(T x) { return call; }
#define SM_LANE_SHUFFLE(group, name, from, width)                                    \
  template <class T, class = ::sm::if_simd<T>> SM_FN T group##_##name(T x, ushort n) { \
    return ::sm::shuffle<::sm::from, width>(x, n);                                   \
  }
#define SM_LANE_FUNCTIONS(group, width)                                                            \
  SM_LANE_FUNCTION(group, sum, if_simd, (::sm::reduce<::sm::op_sum, width>(x)))                    \
  SM_LANE_FUNCTION(group, product, if_simd, (::sm::reduce<::sm::op_product, width>(x)))            \
  SM_LANE_FUNCTION(group, min, if_simd, (::sm::reduce<::sm::op_min, width>(x)))                    \
  SM_LANE_FUNCTION(group, max, if_simd, (::sm::reduce<::sm::op_max, width>(x)))                    \
  SM_LANE_FUNCTION(group, and, if_simd_integer, (::sm::reduce<::sm::op_and, width>(x)))            \
  SM_LANE_FUNCTION(group, or, if_simd_integer, (::sm::reduce<::sm::op_or, width>(x)))              \
  SM_LANE_FUNCTION(group, xor, if_simd_integer, (::sm::reduce<::sm::op_xor, width>(x)))            \
  SM_LANE_FUNCTION(group, prefix_inclusive_sum, if_simd, (::sm::prefix<::sm::op_sum, true, width>(x)))   \
  SM_LANE_FUNCTION(group, prefix_exclusive_sum, if_simd, (::sm::prefix<::sm::op_sum, false, width>(x)))  \
  SM_LANE_FUNCTION(group, prefix_inclusive_product, if_simd, (::sm::prefix<::sm::op_product, true, width>(x)))  \
  SM_LANE_FUNCTION(group, prefix_exclusive_product, if_simd, (::sm::prefix<::sm::op_product, false, width>(x))) \
  SM_LANE_FUNCTION(group, broadcast_first, if_simd, (::sm::broadcast_first<width>(x)))             \
  SM_LANE_SHUFFLE(group, broadcast, from_lane, width)                                              \
  SM_LANE_SHUFFLE(group, shuffle, from_lane, width)                                                \
  SM_LANE_SHUFFLE(group, shuffle_up, from_below, width)                                            \
  SM_LANE_SHUFFLE(group, shuffle_down, from_above, width)                                          \
  SM_LANE_SHUFFLE(group, shuffle_xor, from_xor, width)                                             \
  SM_LANE_SHUFFLE(group, shuffle_rotate_up, from_below_rotated, width)                              \
  SM_LANE_SHUFFLE(group, shuffle_rotate_down, from_above_rotated, width)                            \
  template <class T, class = ::sm::if_simd<T>>                                                     \
  SM_FN T group##_shuffle_and_fill_up(T x, ::sm::same<T> filling, ushort n, ushort modulo = width) { \
    return ::sm::fill<true>(x, filling, n, modulo);                                                \
  }                                                                                                \
  template <class T, class = ::sm::if_simd<T>>                                                     \
  SM_FN T group##_shuffle_and_fill_down(T x, ::sm::same<T> filling, ushort n, ushort modulo = width) { \
    return ::sm::fill<false>(x, filling, n, modulo);                                               \
  }
