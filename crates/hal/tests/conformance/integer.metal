// The integer functions, in every width and signedness.
#include <metal_stdlib>
using namespace metal;

// out[i * 24 + k]: function k of the i-th triple of arguments.
template <typename T>
kernel void integer_functions(const device T* in [[buffer(0)]], device T* out [[buffer(1)]],
                              uint i [[thread_position_in_grid]]) {
  T a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
  device T* o = out + 24 * i;
  o[0] = T(abs(a));
  o[1] = T(absdiff(a, b));
  o[2] = addsat(a, b);
  o[3] = subsat(a, b);
  o[4] = hadd(a, b);
  o[5] = rhadd(a, b);
  o[6] = mulhi(a, b);
  o[7] = madhi(a, b, c);
  o[8] = madsat(a, b, c);
  o[9] = min(a, b);
  o[10] = max(a, b);
  o[11] = min3(a, b, c);
  o[12] = max3(a, b, c);
  o[13] = median3(a, b, c);
  o[14] = clz(a);
  o[15] = ctz(a);
  o[16] = popcount(a);
  o[17] = reverse_bits(a);
  o[18] = rotate(a, T(3));
  o[19] = rotate(a, T(sizeof(T) * 8 - 1));
  o[20] = extract_bits(a, 2, 5);
  o[21] = insert_bits(a, b, 2, 5);
  o[22] = clamp(a, T(3), T(100));
  o[23] = extract_bits(a, 1, sizeof(T) * 8 - 1);
}
template [[host_name("functions_char")]] [[kernel]] decltype(integer_functions<char>) integer_functions<char>;
template [[host_name("functions_uchar")]] [[kernel]] decltype(integer_functions<uchar>) integer_functions<uchar>;
template [[host_name("functions_short")]] [[kernel]] decltype(integer_functions<short>) integer_functions<short>;
template [[host_name("functions_ushort")]] [[kernel]] decltype(integer_functions<ushort>) integer_functions<ushort>;
template [[host_name("functions_int")]] [[kernel]] decltype(integer_functions<int>) integer_functions<int>;
template [[host_name("functions_uint")]] [[kernel]] decltype(integer_functions<uint>) integer_functions<uint>;

// The functions that also take 64-bit integers.
template <typename T>
kernel void wide_functions(const device T* in [[buffer(0)]], device T* out [[buffer(1)]],
                           uint i [[thread_position_in_grid]]) {
  T a = in[3 * i], b = in[3 * i + 1], c = in[3 * i + 2];
  device T* o = out + 10 * i;
  o[0] = T(abs(a));
  o[1] = min(a, b);
  o[2] = max(a, b);
  o[3] = clamp(a, T(3), T(100));
  o[4] = clz(a);
  o[5] = ctz(a);
  o[6] = popcount(a);
  o[7] = mulhi(a, b);
  o[8] = T(ulong(a) + ulong(b) * ulong(c));
  o[9] = (a >> 3) ^ T(ulong(b) << 7);
}
template [[host_name("wide_long")]] [[kernel]] decltype(wide_functions<long>) wide_functions<long>;
template [[host_name("wide_ulong")]] [[kernel]] decltype(wide_functions<ulong>) wide_functions<ulong>;

// By component, on vectors.
kernel void vector_integer_functions(const device int4* in [[buffer(0)]], device int4* out [[buffer(1)]]) {
  int4 a = in[0], b = in[1], c = in[2];
  out[0] = addsat(a, b);
  out[1] = mulhi(a, b);
  out[2] = clz(a);
  out[3] = int4(popcount(uint4(a)));
  out[4] = rotate(a, int4(5));
  out[5] = median3(a, b, c);
  out[6] = clamp(a, b, max(b, c));
  out[7] = extract_bits(a, 4, 8);
  out[8] = insert_bits(a, b, 4, 8);
  out[9] = int4(absdiff(a, b));
  out[10] = min(a, b);
  out[11] = mul24(a & 0xfff, b & 0xfff);
  out[12] = mad24(a & 0xfff, b & 0xfff, c);
  out[13] = hadd(a, b);
}

// Shifts take the amount modulo the width; division truncates; unsigned arithmetic wraps.
kernel void scalar_arithmetic(const device int* in [[buffer(0)]], device int* out [[buffer(1)]]) {
  int a = in[0], b = in[1];  // -7, 2
  out[0] = a / b;
  out[1] = a % b;
  out[2] = a >> 1;
  out[3] = int(uint(a) >> 1);
  out[4] = int(0u - uint(b));
  out[5] = int(uchar(300 + b));
  out[6] = short(40000 + b);
  out[7] = a < 0u ? 1 : 0;
  out[8] = (a < 0) - (a > 0);
  ushort small = ushort(65535);
  small += 2;
  out[9] = small;
  char c = char(127 + b);
  out[10] = c;
  out[11] = int(long(a) * 1000000000000l >> 32);
}
