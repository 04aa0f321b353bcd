// The type names of MSL (float4, packed_half3, float4x4, ...), visible globally and in metal::.
#pragma once

#define SM_VECTOR_NAMES(name, T)                 \
  typedef metal::vec<T, 2> name##2;              \
  typedef metal::vec<T, 3> name##3;              \
  typedef metal::vec<T, 4> name##4;              \
  typedef metal::packed_vec<T, 2> packed_##name##2; \
  typedef metal::packed_vec<T, 3> packed_##name##3; \
  typedef metal::packed_vec<T, 4> packed_##name##4; \
  namespace metal {                              \
  using ::name##2;                               \
  using ::name##3;                               \
  using ::name##4;                               \
  using ::packed_##name##2;                      \
  using ::packed_##name##3;                      \
  using ::packed_##name##4;                      \
  }
SM_VECTOR_NAMES(bool, bool)
SM_VECTOR_NAMES(char, char)
SM_VECTOR_NAMES(uchar, uchar)
SM_VECTOR_NAMES(short, short)
SM_VECTOR_NAMES(ushort, ushort)
SM_VECTOR_NAMES(int, int)
SM_VECTOR_NAMES(uint, uint)
SM_VECTOR_NAMES(long, long)
SM_VECTOR_NAMES(ulong, ulong)
SM_VECTOR_NAMES(half, half)
SM_VECTOR_NAMES(bfloat, bfloat)
SM_VECTOR_NAMES(float, float)
#undef SM_VECTOR_NAMES

#define SM_MATRIX_NAME(name, T, C, R)                \
  typedef metal::matrix<T, C, R> name##C##x##R;      \
  namespace metal { using ::name##C##x##R; }
#define SM_MATRIX_NAMES(name, T)                                                         \
  SM_MATRIX_NAME(name, T, 2, 2) SM_MATRIX_NAME(name, T, 2, 3) SM_MATRIX_NAME(name, T, 2, 4) \
  SM_MATRIX_NAME(name, T, 3, 2) SM_MATRIX_NAME(name, T, 3, 3) SM_MATRIX_NAME(name, T, 3, 4) \
  SM_MATRIX_NAME(name, T, 4, 2) SM_MATRIX_NAME(name, T, 4, 3) SM_MATRIX_NAME(name, T, 4, 4)
// MSL names no bfloat matrices: user code spells them matrix<bfloat, 4, 4>.
SM_MATRIX_NAMES(float, float)
SM_MATRIX_NAMES(half, half)
#undef SM_MATRIX_NAMES
#undef SM_MATRIX_NAME

namespace metal {
using ::bfloat;
using ::half;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::intptr_t;
using ::ptrdiff_t;
using ::size_t;
using ::uchar;
using ::uint;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::uintptr_t;
using ::ulong;
using ::ushort;
}  // namespace metal
