// Functions that the compiler inserts calls of: floating-point conversions that its support library may
// lack, and the callbacks of the memory checker's instrumentation.
#pragma once

#define SM_SUPPORT extern "C" SM_EMITTED __attribute__((weak, visibility("hidden"), used, SM_UNSEEN))

namespace sm {
// The bits of a float rounded to 16 bits, ties to even; zero if it is subnormal.
SM_FN ushort bfloat_bits(uint f) {
  uint rounded = (f + 0x7fff + (f >> 16 & 1)) >> 16;
  uint kept_nan = f >> 16 | 0x40;
  uint number = f & 0x7f800000 ? rounded : f >> 16 & 0x8000;
  return (ushort)((f & 0x7fffffff) > 0x7f800000 ? kept_nan : number);
}
SM_FN ushort half_bits(uint f) {
  uint sign = f >> 16 & 0x8000, magnitude = f & 0x7fffffff;
  if (magnitude > 0x7f800000) return (ushort)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return (ushort)(sign | 0x7c00);  // rounds past the largest half
  if (magnitude < 0x38800000) {
    // Subnormal: adding 0.5 lets the float unit round to multiples of 2^-24.
    float shifted = __builtin_bit_cast(float, magnitude) + 0.5f;
    return (ushort)(sign | (__builtin_bit_cast(uint, shifted) - 0x3f000000));
  }
  return (ushort)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}
SM_FN uint float_bits(ushort h) {
  uint sign = (uint)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
  if (exponent == 31) return sign | 0x7f800000 | fraction << 13;
  if (exponent != 0) return sign | (exponent + 112) << 23 | fraction << 13;
  float small = (float)fraction * 0x1p-24f;
  return sign | __builtin_bit_cast(uint, small);
}
// A double rounded to odd as a float: the last bit is set if the conversion is inexact, so that rounding
// once more gives the right result.
SM_FN uint odd_float_bits(double d) {
  float f = (float)d;
  uint u = __builtin_bit_cast(uint, f);
  if ((double)f == d || f != f) return u;
  if (__builtin_fabs((double)f) > __builtin_fabs(d)) u--;
  return u | 1;
}
}  // namespace sm

// The IR pass replaces `fptrunc float to bfloat` with this. The compiler would use an instruction of the processor, if
// there is one, or call __truncsfbf2, which cannot be inlined, so that no loop that rounds to bfloat would be vectorised.
extern "C" SM_EMITTED inline __attribute__((always_inline, visibility("hidden"), used, SM_UNSEEN)) __bf16
sm_round_bfloat(float x) {
  return __builtin_bit_cast(__bf16, ::sm::bfloat_bits(__builtin_bit_cast(uint, x)));
}

SM_SUPPORT __bf16 __truncsfbf2(float x) {
  return __builtin_bit_cast(__bf16, ::sm::bfloat_bits(__builtin_bit_cast(uint, x)));
}
SM_SUPPORT __bf16 __truncdfbf2(double x) {
  return __builtin_bit_cast(__bf16, ::sm::bfloat_bits(::sm::odd_float_bits(x)));
}
SM_SUPPORT _Float16 __truncdfhf2(double x) {
  return __builtin_bit_cast(_Float16, ::sm::half_bits(::sm::odd_float_bits(x)));
}
SM_SUPPORT _Float16 __truncsfhf2(float x) {
  return __builtin_bit_cast(_Float16, ::sm::half_bits(__builtin_bit_cast(uint, x)));
}
SM_SUPPORT float __extendhfsf2(_Float16 x) {
  return __builtin_bit_cast(float, ::sm::float_bits(__builtin_bit_cast(ushort, x)));
}

#if SM_CHECK
// The IR pass reports loads, stores and atomics itself; these perform the operations.
SM_SUPPORT void __tsan_init() {}

// The IR pass inserts calls of it for loops that exhaust the iterations of their thread.
SM_SUPPORT void sm_step(uint location) { sm_rt_table->step(location); }

#define SM_TSAN_FETCH(bits, T, name)                                                       \
  SM_SUPPORT T __tsan_atomic##bits##_fetch_##name(volatile T* p, T v, int) {               \
    return __atomic_fetch_##name(p, v, __ATOMIC_SEQ_CST);                                  \
  }
#define SM_TSAN_ATOMICS(bits, T)                                                           \
  SM_SUPPORT T __tsan_atomic##bits##_load(const volatile T* p, int) {                      \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                           \
  }                                                                                        \
  SM_SUPPORT void __tsan_atomic##bits##_store(volatile T* p, T v, int) {                   \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                              \
  }                                                                                        \
  SM_SUPPORT T __tsan_atomic##bits##_exchange(volatile T* p, T v, int) {                   \
    return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                    \
  }                                                                                        \
  SM_SUPPORT T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T v, int, int) { \
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    return expected;                                                                       \
  }                                                                                        \
  SM_TSAN_FETCH(bits, T, add)                                                              \
  SM_TSAN_FETCH(bits, T, sub)                                                              \
  SM_TSAN_FETCH(bits, T, and)                                                              \
  SM_TSAN_FETCH(bits, T, or)                                                               \
  SM_TSAN_FETCH(bits, T, xor)                                                              \
  SM_TSAN_FETCH(bits, T, nand)
SM_TSAN_ATOMICS(8, uchar)
SM_TSAN_ATOMICS(16, ushort)
SM_TSAN_ATOMICS(32, uint)
SM_TSAN_ATOMICS(64, ulong)
#undef SM_TSAN_ATOMICS
#undef SM_TSAN_FETCH
SM_SUPPORT void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
SM_SUPPORT void __tsan_atomic_signal_fence(int) { __atomic_signal_fence(__ATOMIC_SEQ_CST); }

// Bulk copies have no source location of their own: location 0 is "unknown".
namespace sm {
constexpr uint access_write = 1u << 31;
}
SM_SUPPORT void* __tsan_memcpy(void* to, const void* from, ulong size) {
  sm_rt_table->access((void*)from, (uint)size, 0);
  sm_rt_table->access(to, (uint)size | ::sm::access_write, 0);
  return __builtin_memcpy(to, from, size);
}
SM_SUPPORT void* __tsan_memmove(void* to, const void* from, ulong size) {
  sm_rt_table->access((void*)from, (uint)size, 0);
  sm_rt_table->access(to, (uint)size | ::sm::access_write, 0);
  return __builtin_memmove(to, from, size);
}
SM_SUPPORT void* __tsan_memset(void* to, int value, ulong size) {
  sm_rt_table->access(to, (uint)size | ::sm::access_write, 0);
  return __builtin_memset(to, value, size);
}
#endif
#undef SM_SUPPORT
