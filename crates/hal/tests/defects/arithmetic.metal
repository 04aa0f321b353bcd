// Operations with undefined results, misaligned vectors, and similar correct kernels.
#include <metal_stdlib>
using namespace metal;

// Division.

kernel void divides_by_zero(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  uint divisor = gid % 4;
  out[gid] = float(100 / divisor);  // DEFECT(division-by-zero) divides_by_zero
}
kernel void divides_by_more(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  uint divisor = gid % 4 + 1;
  out[gid] = float(100 / divisor);
}
kernel void remainder_of_zero(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  int divisor = int(gid % 4);
  out[gid] = float(100 % divisor);  // DEFECT(division-by-zero) remainder_of_zero
}
kernel void unused_quotient(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  uint quotient = 100 / (gid % 4);  // DEFECT(division-by-zero) unused_quotient
  out[gid] = gid % 4 == 0 ? 0.0f : 1.0f;
}
kernel void smallest_by_minus_one(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  int smallest = gid == 3 ? INT_MIN : INT_MIN + 1;
  int divisor = -1 - int(gid / 128);
  out[gid] = float(smallest / divisor);  // DEFECT(division-by-zero) smallest_by_minus_one
}
kernel void almost_smallest_by_minus_one(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  int smallest = INT_MIN + 1 + int(gid / 128);
  int divisor = -1 - int(gid / 128);
  out[gid] = float(smallest / divisor);
}
kernel void vector_divides_by_zero(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  uint4 divisor = uint4(1, 2, 3, gid % 2);
  uint4 quotient = uint4(12) / divisor;  // DEFECT(division-by-zero) vector_divides_by_zero
  out[gid] = float(quotient.x + quotient.w);
}
kernel void vector_divides_by_more(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  uint4 divisor = uint4(1, 2, 3, gid % 2 + 1);
  uint4 quotient = uint4(12) / divisor;
  out[gid] = float(quotient.x + quotient.w);
}

// Shifts.

kernel void shifts_too_far(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  out[gid] = float(1u << (gid % 33));  // DEFECT(shift) shifts_too_far
}
kernel void shifts_far(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  out[gid] = float(1u << (gid % 32));
}
kernel void shifts_by_minus_one(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  out[gid] = float(int(gid) >> (int(gid % 8) - 1));  // DEFECT(shift) shifts_by_minus_one
}
kernel void vector_shifts_too_far(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  uint4 shifted = uint4(8) >> uint4(0, 1, 2, gid % 40);  // DEFECT(shift) vector_shifts_too_far
  out[gid] = float(shifted.y);
}
kernel void vector_shifts_far(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  uint4 shifted = uint4(8) >> uint4(0, 1, 2, gid % 32);
  ushort2 narrow = ushort2(8) << ushort2(gid % 16);
  ulong wide = 1ul << (gid % 64);
  out[gid] = float(shifted.y) + float(narrow.x) + float(wide >> 63);
}
kernel void narrow_shift_too_far(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  ushort2 narrow = ushort2(8) << ushort2(gid % 17);  // DEFECT(shift) narrow_shift_too_far
  out[gid] = float(narrow.x);
}

// Alignment.

kernel void misaligned_load(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                            uint gid [[thread_position_in_grid]]) {
  float4 v = *(const device float4*)(in + gid % 100);  // DEFECT(misaligned) misaligned_load
  out[gid] = v.x + v.y + v.z + v.w;
}
kernel void aligned_load(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                         uint gid [[thread_position_in_grid]]) {
  float4 v = *(const device float4*)(in + gid % 25 * 4);
  out[gid] = v.x + v.y + v.z + v.w;
}
kernel void packed_load(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                        uint gid [[thread_position_in_grid]]) {
  float4 v = float4(*(const device packed_float4*)(in + gid % 100));
  float3 w = float3(((const device packed_float3*)in)[gid % 32]);
  out[gid] = v.x + v.y + v.z + v.w + w.x + w.y + w.z;
}
kernel void misaligned_store(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                             uint gid [[thread_position_in_grid]]) {
  if (gid == 7) *(device float2*)(out + gid) = float2(in[gid], 1);  // DEFECT(misaligned) misaligned_store
}
kernel void aligned_store(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                          uint gid [[thread_position_in_grid]]) {
  if (gid == 8) *(device float2*)(out + gid) = float2(in[gid], 1);
}
kernel void misaligned_half_vector(device float* out [[buffer(0)]], const device half* in [[buffer(1)]],
                              uint gid [[thread_position_in_grid]]) {
  half4 v = *(const device half4*)(in + gid % 50 * 2);  // DEFECT(misaligned) misaligned_half_vector
  out[gid] = float(v.x + v.w);
}
kernel void misaligned_threadgroup_vector(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                          uint gid [[thread_position_in_grid]],
                                          uint i [[thread_index_in_threadgroup]]) {
  threadgroup float shared[68];
  shared[i] = in[gid];
  if (i < 4) shared[64 + i] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float4 v = *(threadgroup float4*)(shared + i % 64);  // DEFECT(misaligned) misaligned_threadgroup_vector
  out[gid] = v.x + v.w;
}

// Locations of accesses that an optimiser would merge.

kernel void stores_on_both_branches(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                uint gid [[thread_position_in_grid]]) {
  uint at = gid + 100;
  if (in[gid] > 50)
    out[at] = in[gid];  // DEFECT(bounds) stores_on_both_branches
  else
    out[at] = 2;  // DEFECT(bounds) stores_on_both_branches
}
kernel void stores_in_a_chain(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                              uint gid [[thread_position_in_grid]]) {
  uint at = gid + 100;
  float x = in[gid];
  if (x > 70) {
    out[at] = x;  // DEFECT(bounds) stores_in_a_chain
    return;
  }
  if (x > 30) {
    out[at] = x * 2;  // DEFECT(bounds) stores_in_a_chain
    return;
  }
  out[at] = -x;  // DEFECT(bounds) stores_in_a_chain
}
kernel void sums_in_memory(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                           uint gid [[thread_position_in_grid]], constant uint& count [[buffer(2)]]) {
  for (uint i = 0; i < count; ++i) {
    out[gid + 100] += in[i];  // DEFECT(bounds) sums_in_memory
  }
}
