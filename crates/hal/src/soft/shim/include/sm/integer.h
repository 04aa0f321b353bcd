// <metal_integer>: functions of integers and of integer vectors.
#pragma once

namespace sm {
template <class T> struct widened;
template <> struct widened<char> { using type = int; };
template <> struct widened<signed char> { using type = int; };
template <> struct widened<uchar> { using type = int; };
template <> struct widened<short> { using type = int; };
template <> struct widened<ushort> { using type = uint; };
template <> struct widened<int> { using type = long; };
template <> struct widened<uint> { using type = ulong; };
template <> struct widened<long> { using type = __int128; };
template <> struct widened<ulong> { using type = unsigned __int128; };
// A type that can represent the product of two values of T.
template <class T> using wide = typename widened<T>::type;

template <class T> constexpr uint width = sizeof(T) * 8;
template <class T> using bits = __make_unsigned(T);

template <class T> SM_CX T mulhi(T a, T b) { return (T)(((wide<T>)a * (wide<T>)b) >> width<T>); }
template <class T> SM_CX T saturated(wide<T> v) {
  constexpr T low = metal::numeric_limits<T>::min(), high = metal::numeric_limits<T>::max();
  return v < (wide<T>)low ? low : v > (wide<T>)high ? high : (T)v;
}
template <class T> SM_CX T addsat(T a, T b) {
  T sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? metal::numeric_limits<T>::min() : metal::numeric_limits<T>::max();
}
template <class T> SM_CX T subsat(T a, T b) {
  T difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return a < b ? metal::numeric_limits<T>::min() : metal::numeric_limits<T>::max();
}
template <class T> SM_CX T madsat(T a, T b, T c) {
  if constexpr (__is_same(T, ulong)) {
    // The product alone can fill 128 bits.
    ulong product = 0;
    return __builtin_mul_overflow(a, b, &product) ? ~0ul : addsat(product, c);
  } else {
    return saturated<T>((wide<T>)a * (wide<T>)b + (wide<T>)c);
  }
}
template <class T> SM_CX T clz(T x) {
  return (T)(x == 0 ? width<T> : (uint)__builtin_clzl((ulong)(bits<T>)x) - (64 - width<T>));
}
template <class T> SM_CX T ctz(T x) {
  return (T)(x == 0 ? width<T> : (uint)__builtin_ctzl((ulong)(bits<T>)x));
}
template <class T> SM_CX T reverse_bits(T x) {
  if constexpr (sizeof(T) == 1) return (T)__builtin_bitreverse8((uchar)x);
  else if constexpr (sizeof(T) == 2) return (T)__builtin_bitreverse16((ushort)x);
  else if constexpr (sizeof(T) == 4) return (T)__builtin_bitreverse32((uint)x);
  else return (T)__builtin_bitreverse64((ulong)x);
}
template <class T> SM_CX T rotate(T v, T by) {
  uint n = (uint)by & (width<T> - 1);
  bits<T> u = (bits<T>)v;
  return n == 0 ? v : (T)((bits<T>)(u << n) | (bits<T>)(u >> (width<T> - n)));
}
// Signed results are sign-extended.
template <class T> SM_CX T extract_bits(T x, uint offset, uint count) {
  if (count == 0 || offset >= width<T>) return 0;
  if (offset + count > width<T>) count = width<T> - offset;
  return (T)((T)((bits<T>)x << (width<T> - offset - count)) >> (width<T> - count));
}
template <class T> SM_CX T insert_bits(T base, T insert, uint offset, uint count) {
  if (count == 0 || offset >= width<T>) return base;
  bits<T> ones = count >= width<T> ? (bits<T>)~(bits<T>)0 : (bits<T>)(((bits<T>)1 << count) - 1);
  bits<T> mask = (bits<T>)(ones << offset);
  return (T)(((bits<T>)base & ~mask) | ((bits<T>)((bits<T>)insert << offset) & mask));
}
template <class T> SM_CX bits<T> absdiff(T a, T b) {
  return a < b ? (bits<T>)((bits<T>)b - (bits<T>)a) : (bits<T>)((bits<T>)a - (bits<T>)b);
}
}  // namespace sm

namespace metal {
#define SM_INTEGER_FUNCTIONS(T)                                                                  \
  SM_CX T min(T a, T b) { return b < a ? b : a; }                                                \
  SM_CX T max(T a, T b) { return a < b ? b : a; }                                                \
  SM_CX T clamp(T x, T low, T high) { return min(max(x, low), high); }                           \
  SM_CX T min3(T a, T b, T c) { return min(a, min(b, c)); }                                      \
  SM_CX T max3(T a, T b, T c) { return max(a, max(b, c)); }                                      \
  SM_CX T median3(T a, T b, T c) { return max(min(a, b), min(max(a, b), c)); }                   \
  SM_CX T abs(T x) { return x < 0 ? (T)(0 - (::sm::bits<T>)x) : x; }                             \
  SM_CX ::sm::bits<T> absdiff(T a, T b) { return ::sm::absdiff<T>(a, b); }                       \
  SM_CX T addsat(T a, T b) { return ::sm::addsat<T>(a, b); }                                     \
  SM_CX T subsat(T a, T b) { return ::sm::subsat<T>(a, b); }                                     \
  SM_CX T hadd(T a, T b) { return (T)((a >> 1) + (b >> 1) + (a & b & 1)); }                      \
  SM_CX T rhadd(T a, T b) { return (T)((a >> 1) + (b >> 1) + ((a | b) & 1)); }                   \
  SM_CX T mulhi(T a, T b) { return ::sm::mulhi<T>(a, b); }                                       \
  SM_CX T madhi(T a, T b, T c) { return (T)((::sm::bits<T>)::sm::mulhi<T>(a, b) + (::sm::bits<T>)c); } \
  SM_CX T madsat(T a, T b, T c) { return ::sm::madsat<T>(a, b, c); }                             \
  SM_CX T popcount(T x) { return (T)__builtin_popcountl((ulong)(::sm::bits<T>)x); }              \
  SM_CX T clz(T x) { return ::sm::clz<T>(x); }                                                   \
  SM_CX T ctz(T x) { return ::sm::ctz<T>(x); }                                                   \
  SM_CX T reverse_bits(T x) { return ::sm::reverse_bits<T>(x); }                                 \
  SM_CX T rotate(T v, T by) { return ::sm::rotate<T>(v, by); }                                   \
  SM_CX T extract_bits(T x, uint offset, uint count) { return ::sm::extract_bits<T>(x, offset, count); } \
  SM_CX T insert_bits(T base, T insert, uint offset, uint count) {                               \
    return ::sm::insert_bits<T>(base, insert, offset, count);                                    \
  }
SM_INTEGER_FUNCTIONS(char)
SM_INTEGER_FUNCTIONS(signed char)
SM_INTEGER_FUNCTIONS(uchar)
SM_INTEGER_FUNCTIONS(short)
SM_INTEGER_FUNCTIONS(ushort)
SM_INTEGER_FUNCTIONS(int)
SM_INTEGER_FUNCTIONS(uint)
SM_INTEGER_FUNCTIONS(long)
SM_INTEGER_FUNCTIONS(ulong)
#undef SM_INTEGER_FUNCTIONS

// Operands of at most 24 bits; the result for others is undefined, so the full product is correct.
SM_CX int mul24(int a, int b) { return (int)((uint)a * (uint)b); }
SM_CX uint mul24(uint a, uint b) { return a * b; }
SM_CX int mad24(int a, int b, int c) { return (int)((uint)a * (uint)b + (uint)c); }
SM_CX uint mad24(uint a, uint b, uint c) { return a * b + c; }

SM_LIFT2(addsat, if_integer)
SM_LIFT2(subsat, if_integer)
SM_LIFT2(hadd, if_integer)
SM_LIFT2(rhadd, if_integer)
SM_LIFT2(mulhi, if_integer)
SM_LIFT2(rotate, if_integer)
SM_LIFT2(mul24, if_integer)
SM_LIFT3(mad24, if_integer)
SM_LIFT3(madhi, if_integer)
SM_LIFT3(madsat, if_integer)
SM_LIFT1(popcount, if_integer)
SM_LIFT1(clz, if_integer)
SM_LIFT1(ctz, if_integer)
SM_LIFT1(reverse_bits, if_integer)

template <class T, int N>
SM_CX vec<::sm::bits<T>, N> absdiff(vec<T, N> a, ::sm::same<vec<T, N>> b) {
  using R = vec<::sm::bits<T>, N>;
  SM_EACH(R, N, SM_CALL2, ::sm::absdiff<T>)
}
#define SM_EXTRACT(k, f) f(a.k, offset, count)
#define SM_INSERT(k, f) f(a.k, b.k, offset, count)
template <class T, int N> SM_CX vec<T, N> extract_bits(vec<T, N> a, uint offset, uint count) {
  using R = vec<T, N>;
  SM_EACH(R, N, SM_EXTRACT, extract_bits)
}
template <class T, int N>
SM_CX vec<T, N> insert_bits(vec<T, N> a, ::sm::same<vec<T, N>> b, uint offset, uint count) {
  using R = vec<T, N>;
  SM_EACH(R, N, SM_INSERT, insert_bits)
}
#undef SM_EXTRACT
#undef SM_INSERT
}  // namespace metal
