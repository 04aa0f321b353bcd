// Function constants.
#include <metal_stdlib>
using namespace metal;

constant bool flag [[function_constant(0)]];
constant int number [[function_constant(1)]];
constant uint count [[function_constant(2)]];
constant float scale [[function_constant(3)]];
constant half narrow [[function_constant(4)]];
constant short small [[function_constant(5)]];
constant ushort unsigned_small [[function_constant(6)]];
constant char tiny [[function_constant(7)]];
constant uchar unsigned_tiny [[function_constant(8)]];

kernel void every_type(device float* out [[buffer(0)]]) {
  out[0] = flag ? 1 : 0;
  out[1] = number;
  out[2] = count;
  out[3] = scale;
  out[4] = narrow;
  out[5] = small;
  out[6] = unsigned_small;
  out[7] = tiny;
  out[8] = unsigned_tiny;
}

// Constants derived from function constants, with defaults.
constant bool has_number = is_function_constant_defined(number);
constant int number_or_seven = is_function_constant_defined(number) ? number : 7;
constant int derived = number_or_seven * 2 + 1;
constant bool use_offset [[function_constant(10)]];
constant bool add_offset = is_function_constant_defined(use_offset) && use_offset;
constant uint tile [[function_constant(11)]];
constant uint tile_or_default = is_function_constant_defined(tile) ? tile : 4u;

kernel void derived_constants(device int* out [[buffer(0)]]) {
  out[0] = has_number;
  out[1] = number_or_seven;
  out[2] = derived;
  out[3] = add_offset;
  if (is_function_constant_defined(tile)) {
    out[4] = 100;
  } else {
    out[4] = 200;
  }
  int sum = 0;
  for (uint k = 0; k < tile_or_default; k++) sum += int(k);
  out[5] = sum;
}

// Arguments that are active only for some values.
kernel void gated_arguments(const device float* in [[buffer(0)]],
                            const device float* offset [[buffer(1), function_constant(add_offset)]],
                            constant float& bias [[buffer(2), function_constant(flag)]],
                            device float* out [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  float v = in[i];
  if (add_offset) v += offset[i];
  if (flag) v += bias;
  out[i] = v;
}

// Constants in templates, in functions and as sizes of loops around barriers.
template <typename T>
T combine(T a, T b) {
  return flag ? a * b : a + b;
}
template <typename T>
kernel void in_templates(const device T* in [[buffer(0)]], device T* out [[buffer(1)]],
                         threadgroup T* shared [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]],
                         uint n [[threads_per_threadgroup]]) {
  shared[i] = in[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  T v = in[i];
  for (uint k = 1; k < tile_or_default; k++) v = combine(v, shared[(i + k) % n]);
  out[i] = v;
}
template [[host_name("templated_float")]] [[kernel]] decltype(in_templates<float>) in_templates<float>;
template [[host_name("templated_int")]] [[kernel]] decltype(in_templates<int>) in_templates<int>;
