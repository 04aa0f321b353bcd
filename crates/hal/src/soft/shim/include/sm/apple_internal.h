// Builtins of Apple's compiler that public code calls by name (MLX's bfloat functions do). The last
// argument selects fast math; both forms are the same here.
#pragma once

#define SM_BUILTIN1(name) SM_FN float __metal_##name(float x, bool = false) { return metal::name(x); }
#define SM_BUILTIN2(name) \
  SM_FN float __metal_##name(float x, float y, bool = false) { return metal::name(x, y); }
#define SM_BUILTIN3(name) \
  SM_FN float __metal_##name(float x, float y, float z, bool = false) { return metal::name(x, y, z); }
SM_BUILTIN1(acos) SM_BUILTIN1(acosh) SM_BUILTIN1(asin) SM_BUILTIN1(asinh) SM_BUILTIN1(atan)
SM_BUILTIN1(atanh) SM_BUILTIN1(ceil) SM_BUILTIN1(cos) SM_BUILTIN1(cosh) SM_BUILTIN1(cospi)
SM_BUILTIN1(exp) SM_BUILTIN1(exp10) SM_BUILTIN1(exp2) SM_BUILTIN1(fabs) SM_BUILTIN1(floor)
SM_BUILTIN1(fract) SM_BUILTIN1(log) SM_BUILTIN1(log10) SM_BUILTIN1(log2) SM_BUILTIN1(rint)
SM_BUILTIN1(round) SM_BUILTIN1(rsqrt) SM_BUILTIN1(saturate) SM_BUILTIN1(sin) SM_BUILTIN1(sinh)
SM_BUILTIN1(sinpi) SM_BUILTIN1(sqrt) SM_BUILTIN1(tan) SM_BUILTIN1(tanh) SM_BUILTIN1(tanpi)
SM_BUILTIN1(trunc)
SM_BUILTIN2(atan2) SM_BUILTIN2(copysign) SM_BUILTIN2(divide) SM_BUILTIN2(fdim) SM_BUILTIN2(fmax)
SM_BUILTIN2(fmin) SM_BUILTIN2(fmod) SM_BUILTIN2(nextafter) SM_BUILTIN2(pow) SM_BUILTIN2(powr)
SM_BUILTIN3(fma) SM_BUILTIN3(fmax3) SM_BUILTIN3(fmedian3) SM_BUILTIN3(fmin3)
#undef SM_BUILTIN1
#undef SM_BUILTIN2
#undef SM_BUILTIN3
SM_FN float __metal_ldexp(float x, int k, bool = false) { return metal::ldexp(x, k); }
SM_FN float __metal_frexp(float x, int* k, bool = false) { return metal::frexp(x, *k); }

SM_FN ushort __metal_get_thread_index_in_simdgroup(ushort = 0) { return (ushort)(sm_lane() % 32); }
SM_FN ushort __metal_get_simdgroup_size(ushort = 0) { return 32; }

#define SM_BUILTIN_REDUCE(name) \
  template <class T> SM_FN T __metal_simd_##name(T x) { return metal::simd_##name(x); }
SM_BUILTIN_REDUCE(sum) SM_BUILTIN_REDUCE(product) SM_BUILTIN_REDUCE(max) SM_BUILTIN_REDUCE(min)
SM_BUILTIN_REDUCE(prefix_exclusive_sum) SM_BUILTIN_REDUCE(prefix_inclusive_sum)
SM_BUILTIN_REDUCE(prefix_exclusive_product) SM_BUILTIN_REDUCE(prefix_inclusive_product)
SM_BUILTIN_REDUCE(broadcast_first)
#undef SM_BUILTIN_REDUCE
// The bitwise reductions operate on the bits of a float.
#define SM_BUILTIN_BITWISE(name)                                                                  \
  template <class T> SM_FN T __metal_simd_##name(T x) {                                           \
    if constexpr (metal::is_floating_point_v<T>) {                                                \
      using W = typename ::sm::word<sizeof(T)>::type;                                             \
      return __builtin_bit_cast(T, metal::simd_##name(__builtin_bit_cast(W, x)));                 \
    } else {                                                                                      \
      return metal::simd_##name(x);                                                               \
    }                                                                                             \
  }
SM_BUILTIN_BITWISE(and) SM_BUILTIN_BITWISE(or) SM_BUILTIN_BITWISE(xor)
#undef SM_BUILTIN_BITWISE
#define SM_BUILTIN_SHUFFLE(name) \
  template <class T> SM_FN T __metal_simd_##name(T x, ushort n) { return metal::simd_##name(x, n); }
SM_BUILTIN_SHUFFLE(broadcast) SM_BUILTIN_SHUFFLE(shuffle) SM_BUILTIN_SHUFFLE(shuffle_down)
SM_BUILTIN_SHUFFLE(shuffle_up) SM_BUILTIN_SHUFFLE(shuffle_xor) SM_BUILTIN_SHUFFLE(shuffle_rotate_up)
SM_BUILTIN_SHUFFLE(shuffle_rotate_down)
#undef SM_BUILTIN_SHUFFLE
template <class T> SM_FN T __metal_simd_shuffle_and_fill_up(T x, T f, ushort n, ushort modulo = 32) {
  return metal::simd_shuffle_and_fill_up(x, f, n, modulo);
}
template <class T> SM_FN T __metal_simd_shuffle_and_fill_down(T x, T f, ushort n, ushort modulo = 32) {
  return metal::simd_shuffle_and_fill_down(x, f, n, modulo);
}
