// Subnormal numbers: flushed to zero in arithmetic of float and bfloat, kept by half and by operations that only move bits.
#include <metal_stdlib>
using namespace metal;

constant float product_of_literals = 1e-20f * -1e-20f;
constant float literals[2] = {1e-40f, -0x1p-149f};
constant float from_host [[function_constant(0)]];
constant float derived = from_host * 0.5f;

// One row of results for each pair of numbers.
kernel void arithmetic(device const float2* pairs [[buffer(0)]], device float* out [[buffer(1)]],
                       uint i [[thread_position_in_grid]]) {
  float x = pairs[i].x, y = pairs[i].y;
  device float* o = out + 15 * i;
  o[0] = x + y;
  o[1] = x - y;
  o[2] = x * y;
  o[3] = x / y;
  o[4] = fma(x, y, x);
  o[5] = sqrt(x);
  o[6] = floor(x);
  o[7] = ceil(x);
  o[8] = x == 0 ? 1 : 2;
  o[9] = x < y ? 1 : 2;
  o[10] = (int)(x * 0x1p100f * 0x1p100f);
  o[11] = ldexp(x, 30);
  o[12] = fmod(x, y);
  o[13] = x ? 1 : 2;
  o[14] = x * 0x1p126f;
}

// Functions with subnormal arguments or results.
kernel void functions(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) {
  float x = in[i];
  int exponent;
  device float* o = out + 16 * i;
  o[0] = precise::sin(x);
  o[1] = precise::tan(x);
  o[2] = precise::asin(x);
  o[3] = precise::atan(x);
  o[4] = precise::sinh(x);
  o[5] = precise::asinh(x);
  o[6] = precise::atanh(x);
  o[7] = precise::atan2(x, 1.0f);
  o[8] = precise::pow(fabs(x), 1.0f);
  o[9] = frexp(x, exponent);
  o[10] = exponent;
  o[11] = sign(x);
  o[12] = precise::cos(x);
  o[13] = precise::log(fabs(x));
  o[14] = precise::log10(fabs(x));
  o[15] = precise::exp(-88.0f - fabs(x));
}

kernel void moves(device const float* in [[buffer(0)]], device const bfloat* brains [[buffer(1)]],
                  device uint* out [[buffer(2)]], device float* copies [[buffer(3)]], device bfloat* brain_copies [[buffer(4)]],
                  uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  threadgroup float shared[32];
  float x = in[i];
  shared[lane] = x;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  device uint* o = out + 8 * i;
  o[0] = as_type<uint>(x);
  o[1] = as_type<uint>(-x);
  o[2] = as_type<uint>(fabs(x));
  o[3] = as_type<uint>(copysign(x, -1.0f));
  o[4] = as_type<uint>(select(1.0f, x, i < 1000));
  o[5] = as_type<uint>(simd_shuffle(x, ushort(lane ^ 1)));
  o[6] = as_type<uint>(shared[lane ^ 1]);
  o[7] = as_type<uint>(float4(x, 1, 2, 3).wzyx.w);
  copies[i] = as_type<float>(as_type<uint>(in[i]));
  brain_copies[i] = brains[i];
}

kernel void in_half(device const half2* pairs [[buffer(0)]], device half* out [[buffer(1)]],
                    device float* wide [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  half x = pairs[i].x, y = pairs[i].y;
  device half* o = out + 8 * i;
  o[0] = x + y;
  o[1] = x - y;
  o[2] = x * y;
  o[3] = x / y;
  o[4] = half(float(x));
  o[5] = half(float(x) * 0.5f);
  o[6] = fma(x, y, x);
  o[7] = max(x, half(0.0h));
  wide[i] = x;
}

kernel void in_bfloat(device const bfloat2* pairs [[buffer(0)]], device const float* wide [[buffer(1)]],
                      device bfloat* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  bfloat x = pairs[i].x, y = pairs[i].y;
  device bfloat* o = out + 6 * i;
  o[0] = x + y;
  o[1] = x - y;
  o[2] = x * y;
  o[3] = x / y;
  o[4] = bfloat(wide[i]);
  o[5] = bfloat(float(x) * float(y));
}

constexpr constant float small_constant = 1e-20f;
constant float table[2] = {1e-20f, 3.0f};
constexpr float small_function() { return 1e-21f; }
constant constexpr float another = small_function();
static_assert(small_constant > 1e-21f, "a constant expression");

kernel void folded(device float* out [[buffer(0)]], device bfloat* brain [[buffer(1)]], device half* small [[buffer(2)]],
                   uint i [[thread_position_in_grid]]) {
  float tiny = 1e-25f;
  const float least = 0x1p-126f;
  out[0] = product_of_literals;
  out[1] = literals[i];
  out[2] = literals[i + 1];
  out[3] = tiny * tiny;
  out[4] = -least / 2;
  out[5] = least - least * 1.5f;
  out[6] = derived;
  out[7] = from_host * 2.0f;
  out[8] = product_of_literals * 1e30f;
  out[9] = 1e-20f * 1e-20f * -1e30f;
  out[10] = 1e-40f * 1e30f;
  out[11] = table[i] * table[i] * 1e30f;
  out[12] = small_constant * 1e20f + another * 0;
  brain[0] = bfloat(-1e-39f);
  brain[1] = bfloat(1e-30f) * bfloat(1e-20f);
  small[0] = half(0x1p-24f);
  small[1] = half(0x1p-20f) * half(0x1p-3f);
}

kernel void collectives(device const float* in [[buffer(0)]], device float* out [[buffer(1)]],
                        device atomic_float* sum [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  float x = in[i];
  out[5 * i] = simd_sum(x);
  out[5 * i + 1] = simd_max(x);
  out[5 * i + 2] = simd_min(-x);
  out[5 * i + 3] = simd_prefix_inclusive_sum(x);
  out[5 * i + 4] = simd_product(0x1p-5f);
  atomic_fetch_add_explicit(sum, x, memory_order_relaxed);
  if (i == 0) atomic_store_explicit(sum + 1, x, memory_order_relaxed);
}
