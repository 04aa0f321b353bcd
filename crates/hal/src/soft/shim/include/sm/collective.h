// Data exchange between the lanes of a SIMD-group: the operations behind every shuffle.
//
// Shuffles only move bits, so they are compiled once for each size. A vector is moved in words of up to
// 64 bits.
#pragma once

namespace metal {
// Apple's own constraint: no 64-bit types, no bfloat. User code overloads the functions for those.
template <class T, class = void>
struct __is_valid_simdgroup_type
    : bool_constant<__is_same(T, float) || __is_same(T, half) ||
                    (is_integral_v<T> && !__is_same(T, bool) && sizeof(T) <= 4)> {};
template <class T, int N>
struct __is_valid_simdgroup_type<vec<T, N>, void> : __is_valid_simdgroup_type<T> {};
}  // namespace metal

namespace sm {
constexpr uint simd_width = 32;
constexpr uint all_lanes = 0xffffffff;

template <class T> using if_simd = enable_if_t<metal::__is_valid_simdgroup_type<T>::value>;
template <class T>
using if_simd_integer =
    enable_if_t<metal::__is_valid_simdgroup_type<T>::value && !__is_same(T, float) && !__is_same(T, half) &&
                !__is_same(T, vec<float, 2>) && !__is_same(T, vec<float, 3>) && !__is_same(T, vec<float, 4>) &&
                !__is_same(T, vec<half, 2>) && !__is_same(T, vec<half, 3>) && !__is_same(T, vec<half, 4>)>;

SM_FN bool active(uint mask, uint lane) { return mask >> lane & 1; }

template <int bytes> struct word;
template <> struct word<1> { using type = uchar; };
template <> struct word<2> { using type = ushort; };
template <> struct word<4> { using type = uint; };
template <> struct word<8> { using type = ulong; };

// The source lane of each kind of shuffle, for lane `i` with argument `n`. `width` is 32 for
// SIMD-groups and 4 for quads, or the modulo of a fill. A lane past the end keeps its own value.
struct from_lane {
  static SM_FN uint source(uint i, uint n, uint width) { return (i & ~(width - 1)) | (n & (width - 1)); }
};
struct from_below {
  static SM_FN uint source(uint i, uint n, uint width) { return (i & (width - 1)) >= n ? i - n : i; }
};
struct from_above {
  static SM_FN uint source(uint i, uint n, uint width) { return (i & (width - 1)) + n < width ? i + n : i; }
};
struct from_xor {
  static SM_FN uint source(uint i, uint n, uint width) { return i ^ (n & (width - 1)); }
};
struct from_below_rotated {
  static SM_FN uint source(uint i, uint n, uint width) { return from_lane::source(i, i - n, width); }
};
struct from_above_rotated {
  static SM_FN uint source(uint i, uint n, uint width) { return from_lane::source(i, i + n, width); }
};

// Inactive source lanes that check mode reports. A lane that reads past the edge of the active lanes usually discards the
// value: every step of a reduction does so in its last lanes. So shuffles up and down are only reported if the source is
// between active lanes, or if the lane whose result is used reads it: the lowest of a shuffle down, the highest of a
// shuffle up.
SM_FN uint block_of(uint lane, uint width) { return (uint)(((1ul << width) - 1) << (lane & ~(width - 1))); }
struct any_source {
  static SM_FN bool is_reported(uint, uint, uint) { return true; }
};
struct source_below {
  static SM_FN bool is_reported(uint lane, uint source, uint block) {
    return (block & ((1u << source) - 1)) != 0 || (block >> lane) == 1;
  }
};
struct source_above {
  static SM_FN bool is_reported(uint lane, uint source, uint block) {
    return (block >> source) != 0 || (block & ((1u << lane) - 1)) == 0;
  }
};
template <class From> struct reported : any_source {};
template <> struct reported<from_below> : source_below {};
template <> struct reported<from_above> : source_above {};

#if SM_CHECK
template <class Rule> SM_FN void report_inactive(uint lane, uint source, uint mask, uint width) {
  if (Rule::is_reported(lane, source, mask & block_of(lane, width))) sm_rt_table->inactive_lane(lane, source);
}
#else
template <class Rule> SM_FN void report_inactive(uint, uint, uint, uint) {}
#endif

// args: values, n (ushort).
template <class W, class From, uint width>
SM_UNCHECKED void shuffle_op(const void* const* args, void* ret, uint mask) {
  const W* value = (const W*)args[0];
  const ushort* n = (const ushort*)args[1];
  W* result = (W*)ret;
  if (mask == all_lanes) {
    for (uint i = 0; i < simd_width; i++) result[i] = value[From::source(i, n[i], width)];
    return;
  }
  for (uint i = 0; i < simd_width; i++) {
    if (!active(mask, i)) continue;
    uint source = From::source(i, n[i], width);
    if (!active(mask, source)) {
      report_inactive<reported<From>>(i, source, mask, width);
      source = i;
    }
    result[i] = value[source];
  }
}

// args: values, filling, n (ushort), modulo (ushort). If the source is outside a lane's block of
// `modulo` lanes, the filling of the lane at the other end of the block is used instead.
template <class W, bool up>
SM_UNCHECKED void fill_op(const void* const* args, void* ret, uint mask) {
  const W* value = (const W*)args[0];
  const W* filling = (const W*)args[1];
  const ushort* n = (const ushort*)args[2];
  const ushort* modulo = (const ushort*)args[3];
  W* result = (W*)ret;
  for (uint i = 0; i < simd_width; i++) {
    if (!active(mask, i)) continue;
    uint last = (uint)modulo[i] - 1;
    uint inside = i & last;
    bool within = up ? inside >= n[i] : inside + n[i] <= last;
    uint source = (i & ~last) | ((up ? inside - n[i] : inside + n[i]) & last);
    if (!active(mask, source)) {
      using rule = metal::conditional_t<up, source_below, source_above>;
      if (within) report_inactive<rule>(i, source, mask, (uint)modulo[i]);
      source = i;
    }
    result[i] = within ? value[source] : filling[source];
  }
}

// args: values. The value of the first active lane (of each block of `width` lanes).
template <class W, uint width>
SM_UNCHECKED void broadcast_first_op(const void* const* args, void* ret, uint mask) {
  const W* value = (const W*)args[0];
  W* result = (W*)ret;
  if (mask == all_lanes) {
    for (uint i = 0; i < simd_width; i++) result[i] = value[i & ~(width - 1)];
    return;
  }
  for (uint start = 0; start < simd_width; start += width) {
    uint block = (uint)(((1ul << width) - 1) << start) & mask;
    if (!block) continue;
    W first = value[__builtin_ctz(block)];
    for (uint i = start; i < start + width; i++)
      if (active(mask, i)) result[i] = first;
  }
}

// args: a flag (uint, 0 or 1). The flags of all active lanes as a mask.
SM_UNCHECKED inline void ballot_op(const void* const* args, void* ret, uint mask) {
  const uint* flag = (const uint*)args[0];
  uint* result = (uint*)ret;
  uint votes = 0;
  if (mask == all_lanes) {
    for (uint i = 0; i < simd_width; i++) votes |= flag[i] << i;
    for (uint i = 0; i < simd_width; i++) result[i] = votes;
    return;
  }
  for (uint i = 0; i < simd_width; i++)
    if (active(mask, i)) votes |= flag[i] << i;
  for (uint i = 0; i < simd_width; i++)
    if (active(mask, i)) result[i] = votes;
}
SM_FN uint ballot(bool flag) { return sync_simd<uint>(&ballot_op, (uint)flag); }

// Calls `f` with the bits of x in words of 1, 2, 4 or 8 bytes, and reassembles its results.
template <class T, class F> SM_FN T by_words(T x, F f) {
  constexpr int size = sizeof(T) > 8 ? 8 : sizeof(T);
  using W = typename word<size>::type;
  W in[sizeof(T) / size], out[sizeof(T) / size];
  __builtin_memcpy(in, (const void*)&x, sizeof(T));
  out[0] = f(in[0], 0);
  if constexpr (sizeof(T) / size > 1) out[1] = f(in[1], 1);
  T result;
  __builtin_memcpy((void*)&result, out, sizeof(T));
  return result;
}
#define SM_LAMBDA(...) [&](__VA_ARGS__) __attribute__((always_inline))

template <class From, uint width, class T> SM_FN T shuffle(T x, ushort n) {
  return by_words(x, SM_LAMBDA(auto w, int) {
    using W = decltype(w);
    return sync_simd<W>(&shuffle_op<W, From, width>, w, n);
  });
}
template <uint width, class T> SM_FN T broadcast_first(T x) {
  return by_words(x, SM_LAMBDA(auto w, int) {
    using W = decltype(w);
    return sync_simd<W>(&broadcast_first_op<W, width>, w);
  });
}
template <bool up, class T> SM_FN T fill(T x, T filling, ushort n, ushort modulo) {
  return by_words(x, SM_LAMBDA(auto w, int index) {
    using W = decltype(w);
    W fillings[sizeof(T) / sizeof(W)];
    __builtin_memcpy(fillings, (const void*)&filling, sizeof(T));
    return sync_simd<W>(&fill_op<W, up>, w, fillings[index], n, modulo);
  });
}
}  // namespace sm
