// Threadgroup memory that is read before it was written, and similar kernels that write it first.
#include <metal_stdlib>
using namespace metal;

kernel void half_written(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                         uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  if (i < 32) shared[i] = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = shared[63 - i];  // DEFECT(uninitialised) half_written
}
kernel void wholly_written(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                           uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  if (i < 32) shared[i] = in[gid];
  if (i >= 32) shared[i] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = shared[63 - i];
}

struct Best {
  float value;
  uint index;
};
kernel void forgotten_field(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                            uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup Best best[64];
  best[i].value = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = float(best[63 - i].index);  // DEFECT(uninitialised) forgotten_field
}
kernel void every_field(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                        uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup Best best[64];
  best[i].value = in[gid];
  best[i].index = i;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = float(best[63 - i].index);
}

kernel void accumulated(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                        threadgroup float* scratch [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]],
                        uint gid [[thread_position_in_grid]]) {
  scratch[i] += in[gid];  // DEFECT(uninitialised) accumulated
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = scratch[63 - i];
}
kernel void accumulated_from_zero(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                  threadgroup float* scratch [[threadgroup(0)]],
                                  uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  scratch[i] = 0;
  scratch[i] += in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = scratch[63 - i];
}

// One element is written per thread, but more are read.
kernel void read_in_a_loop(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                           uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[80];
  shared[i] = 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0;
  for (uint k = 0; k < 80; k++) {
    sum += shared[k];  // DEFECT(uninitialised) read_in_a_loop
  }
  out[gid] = sum;
}
kernel void filled_in_a_loop(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                             uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[80];
  for (uint k = i; k < 80; k += 64) shared[k] = 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0;
  for (uint k = 0; k < 80; k++) {
    sum += shared[k];
  }
  out[gid] = sum;
}

kernel void scalar_never_written(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                 uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup float total;
  if (in[gid] < -1) total = 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = total;  // DEFECT(uninitialised) scalar_never_written
}
kernel void scalar_written(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                           uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup float total;
  if (i == 0) total = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = total;
}

float sum_of(const threadgroup float* values, uint n) {
  float sum = 0;
  for (uint k = 0; k < n; k++) sum += values[k];  // DEFECT(uninitialised) in_function
  return sum;
}
kernel void in_function(device float* out [[buffer(0)]], threadgroup float* scratch [[threadgroup(0)]],
                        uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  if (i % 2 == 0) scratch[i] = 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = sum_of(scratch, 64);
}
kernel void in_function_written(device float* out [[buffer(0)]], threadgroup float* scratch [[threadgroup(0)]],
                                uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  scratch[i] = i % 2 == 0 ? 1 : 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = sum_of(scratch, 64);
}

template <typename T, uint N>
kernel void halo(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                 uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup T line[66];
  line[i + 1] = T(in[gid]);
  if (i < N) line[i * 65] = T(0);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  T left = line[i];
  T right = line[i + 2];  // DEFECT(uninitialised) halo_on_one_side
  out[gid] = float(left + right);
}
template [[host_name("halo_on_one_side")]] [[kernel]] decltype(halo<half, 1>) halo<half, 1>;
template [[host_name("halo_on_both_sides")]] [[kernel]] decltype(halo<half, 2>) halo<half, 2>;

kernel void part_of_a_vector(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                             uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup packed_float3 points[64];
  points[i][0] = in[gid];
  points[i][1] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = points[63 - i][0] + points[63 - i][2];  // DEFECT(uninitialised) part_of_a_vector
}
kernel void all_of_a_vector(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                            uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup packed_float3 points[64];
  points[i] = packed_float3(in[gid], 0, 1);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = points[63 - i][0] + points[63 - i][2];
}
