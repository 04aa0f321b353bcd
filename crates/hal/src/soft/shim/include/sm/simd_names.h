// <simd/simd.h>: the type names that Apple's SIMD library shares between Metal and other languages.
#pragma once

#define SM_SIMD_NAMES(name, T)            \
  typedef metal::vec<T, 2> vector_##name##2, simd_##name##2; \
  typedef metal::vec<T, 3> vector_##name##3, simd_##name##3; \
  typedef metal::vec<T, 4> vector_##name##4, simd_##name##4; \
  namespace simd {                        \
  using ::name##2;                        \
  using ::name##3;                        \
  using ::name##4;                        \
  using ::packed_##name##2;               \
  using ::packed_##name##3;               \
  using ::packed_##name##4;               \
  }
SM_SIMD_NAMES(char, char)
SM_SIMD_NAMES(uchar, uchar)
SM_SIMD_NAMES(short, short)
SM_SIMD_NAMES(ushort, ushort)
SM_SIMD_NAMES(int, int)
SM_SIMD_NAMES(uint, uint)
SM_SIMD_NAMES(long, long)
SM_SIMD_NAMES(ulong, ulong)
SM_SIMD_NAMES(half, half)
SM_SIMD_NAMES(float, float)
#undef SM_SIMD_NAMES

#define SM_SIMD_MATRIX(C, R)                                                       \
  typedef metal::matrix<float, C, R> matrix_float##C##x##R, simd_float##C##x##R;   \
  typedef metal::matrix<half, C, R> matrix_half##C##x##R, simd_half##C##x##R;      \
  namespace simd {                                                                 \
  using ::float##C##x##R;                                                          \
  using ::half##C##x##R;                                                           \
  }
SM_SIMD_MATRIX(2, 2) SM_SIMD_MATRIX(2, 3) SM_SIMD_MATRIX(2, 4)
SM_SIMD_MATRIX(3, 2) SM_SIMD_MATRIX(3, 3) SM_SIMD_MATRIX(3, 4)
SM_SIMD_MATRIX(4, 2) SM_SIMD_MATRIX(4, 3) SM_SIMD_MATRIX(4, 4)
#undef SM_SIMD_MATRIX
