// Conversions by value and by bits.
#include <metal_stdlib>
using namespace metal;

// The same bits in another type; every pair of equal size.
kernel void bits(const device uint4* in [[buffer(0)]], device uint* out [[buffer(1)]]) {
  uint4 v = in[0];
  uint n = 0;
  out[n++] = as_type<uint>(as_type<float>(v.x));
  out[n++] = as_type<uint>(as_type<int>(v.y));
  out[n++] = as_type<uint>(as_type<half2>(v.x));
  out[n++] = as_type<uint>(as_type<half2>(v.x).yx);
  out[n++] = as_type<uint>(as_type<uchar4>(v.y).wzyx);
  out[n++] = as_type<uint>(as_type<short2>(v.z).yx);
  out[n++] = as_type<ushort>(as_type<half>(ushort(v.z)));
  out[n++] = as_type<ushort>(as_type<bfloat>(ushort(v.w)));
  float4 f = as_type<float4>(v);
  out[n++] = as_type<uint4>(f).w;
  uint2 halves = as_type<uint2>(as_type<half4>(v.xy));
  out[n++] = halves.x;
  out[n++] = halves.y;
  ulong wide = as_type<ulong>(v.xy);
  out[n++] = uint(wide >> 32);
  out[n++] = as_type<uint2>(wide).x;
  out[n++] = as_type<uint>(1.0f);
  out[n++] = as_type<ushort>(half(-2.0h));
  out[n++] = as_type<uint>(-0.0f);
  out[n++] = as_type<char4>(0x01020304).x == 4 ? 1 : 0;
}

kernel void from_float(const device float* in [[buffer(0)]], device int* ints [[buffer(1)]],
                       device uint* uints [[buffer(2)]], device short* shorts [[buffer(3)]],
                       device uchar* uchars [[buffer(4)]], device long* longs [[buffer(5)]],
                       device ushort* bools [[buffer(6)]], device ushort* half_bits [[buffer(7)]],
                       device ushort* bfloat_bits [[buffer(8)]], uint i [[thread_position_in_grid]]) {
  float x = in[i];
  ints[i] = int(x);
  uints[i] = uint(abs(x));
  shorts[i] = static_cast<short>(x);
  uchars[i] = (uchar)abs(x);
  longs[i] = long(x) * 3;
  bools[i] = bool(x) ? 1 : 0;
  half_bits[i] = as_type<ushort>(half(x));
  bfloat_bits[i] = as_type<ushort>(bfloat(x));
}

// Rounding of floats to the narrow formats, and of integers to float.
kernel void narrow(const device float* in [[buffer(0)]], device half* halves [[buffer(1)]],
                   device bfloat* bfloats [[buffer(2)]], device float* back [[buffer(3)]],
                   uint i [[thread_position_in_grid]]) {
  halves[i] = static_cast<half>(in[i]);
  bfloats[i] = static_cast<bfloat>(in[i]);
  back[2 * i] = float(half(in[i]));
  back[2 * i + 1] = float(bfloat(in[i]));
}

kernel void from_integers(const device int* in [[buffer(0)]], device float* floats [[buffer(1)]],
                          device half* halves [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  floats[3 * i] = float(in[i]);
  floats[3 * i + 1] = float(uint(in[i]));
  floats[3 * i + 2] = float(long(in[i]) << 20);
  halves[i] = half(short(in[i]));
}

// Between the two 16-bit formats, which only an explicit cast does.
kernel void between_narrow(const device half* in [[buffer(0)]], device bfloat* out [[buffer(1)]],
                           device half* back [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  bfloat b = static_cast<bfloat>(in[i]);
  out[i] = b;
  back[i] = static_cast<half>(b);
}
