// Out-of-bounds accesses, and similar kernels that stay in bounds.
#include <metal_stdlib>
using namespace metal;

kernel void reads_one_past(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                           uint gid [[thread_position_in_grid]]) {
  out[gid] = in[gid] + in[gid + 1];  // DEFECT(bounds) reads_one_past
}
kernel void reads_inside(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                         constant uint& n [[buffer(2)]], uint gid [[thread_position_in_grid]]) {
  out[gid] = in[gid] + in[min(gid + 1, n - 1)];
}
kernel void writes_one_past(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  out[gid + 1] = 1;  // DEFECT(bounds) writes_one_past
}
kernel void writes_inside(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  if (gid < 127) out[gid + 1] = 1;
}
kernel void reads_before(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                         uint gid [[thread_position_in_grid]]) {
  out[gid] = in[int(gid) - 1];  // DEFECT(bounds) reads_before
}
kernel void reads_from_the_start(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                 uint gid [[thread_position_in_grid]]) {
  out[gid] = in[max(int(gid) - 1, 0)];
}
kernel void wraps_around(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                         uint gid [[thread_position_in_grid]]) {
  out[gid] = in[gid - 1];  // DEFECT(bounds) wraps_around
}
kernel void loops_too_far(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                          constant uint& n [[buffer(2)]], uint gid [[thread_position_in_grid]]) {
  float sum = 0;
  for (uint k = gid; k <= n; k += 16) {
    sum += in[k];  // DEFECT(bounds) loops_too_far
  }
  out[gid] = sum;
}
kernel void loops_to_the_end(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                             constant uint& n [[buffer(2)]], uint gid [[thread_position_in_grid]]) {
  float sum = 0;
  for (uint k = gid; k < n; k += 16) {
    sum += in[k];
  }
  out[gid] = sum;
}
kernel void vector_over_the_end(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                uint gid [[thread_position_in_grid]]) {
  const device packed_float4* four = (const device packed_float4*)(in + gid);
  float4 v = float4(*four);  // DEFECT(bounds) vector_over_the_end
  out[gid] = v.x + v.w;
}
kernel void vector_up_to_the_end(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                 uint gid [[thread_position_in_grid]]) {
  const device packed_float4* four = (const device packed_float4*)(in + min(gid, 124u));
  float4 v = float4(*four);
  out[gid] = v.x + v.w;
}
kernel void aligned_vector_over_the_end(device float4* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  if (gid <= 32) {
    out[gid] = float4(gid);  // DEFECT(bounds) aligned_vector_over_the_end
  }
}
kernel void aligned_vector_inside(device float4* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  if (gid < 32) {
    out[gid] = float4(gid);
  }
}
kernel void host_sized_memory(device float* out [[buffer(0)]], threadgroup float* scratch [[threadgroup(0)]],
                              uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  scratch[i + 1] = float(i);  // DEFECT(bounds) host_sized_memory
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = i > 0 ? scratch[i] : 0;
}
kernel void host_sized_memory_inside(device float* out [[buffer(0)]], threadgroup float* scratch [[threadgroup(0)]],
                                     uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  scratch[63 - i] = float(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = i > 0 ? scratch[i] : 0;
}
kernel void own_array(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                      uint gid [[thread_position_in_grid]]) {
  threadgroup float before[16];
  threadgroup float shared[64];
  threadgroup float after[16];
  if (i < 16) before[i] = after[i] = 0;
  shared[i + 1] = float(i);  // DEFECT(bounds) own_array
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = (i > 0 ? shared[i] : 0) + before[i % 16] + after[i % 16];
}
kernel void own_array_inside(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                             uint gid [[thread_position_in_grid]]) {
  threadgroup float before[16];
  threadgroup float shared[65];
  threadgroup float after[16];
  if (i < 16) before[i] = after[i] = 0;
  shared[i + 1] = float(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = (i > 0 ? shared[i] : 0) + before[i % 16] + after[i % 16];
}
kernel void tile_row(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                     uint gid [[thread_position_in_grid]]) {
  threadgroup float tile[7][8];
  tile[i / 8][i % 8] = 1;  // DEFECT(bounds) tile_row
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = tile[i % 7][0];
}
kernel void tile_of_eight(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                          uint gid [[thread_position_in_grid]]) {
  threadgroup float tile[8][8];
  tile[i / 8][i % 8] = 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = tile[i % 7][0];
}

float pick(const device float* values, uint k) {
  return values[k];  // DEFECT(bounds) in_function
}
kernel void in_function(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                        uint gid [[thread_position_in_grid]]) {
  out[gid] = pick(in, gid * 2);
}
kernel void in_function_inside(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                               uint gid [[thread_position_in_grid]]) {
  out[gid] = pick(in, gid * 2 % 128);
}
template <typename T, int STEP>
kernel void strided(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                    uint gid [[thread_position_in_grid]]) {
  const device T* values = (const device T*)in;
  out[gid] = float(values[gid * STEP]);  // DEFECT(bounds) strided_by_three
}
template [[host_name("strided_by_three")]] [[kernel]] decltype(strided<half, 3>) strided<half, 3>;
template [[host_name("strided_by_two")]] [[kernel]] decltype(strided<half, 2>) strided<half, 2>;

kernel void table_of_four(device float* out [[buffer(0)]], constant float* table [[buffer(3)]],
                          uint gid [[thread_position_in_grid]]) {
  out[gid] = table[gid % 5];  // DEFECT(bounds) table_of_four
}
kernel void table_inside(device float* out [[buffer(0)]], constant float* table [[buffer(3)]],
                         uint gid [[thread_position_in_grid]]) {
  out[gid] = table[gid % 4];
}
// The bounds check follows the access that it should guard.
kernel void guarded_too_late(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                             constant uint& n [[buffer(2)]], uint gid [[thread_position_in_grid]]) {
  out[gid] = in[gid + 64] > 1 && gid + 64 < n ? 1 : 0;  // DEFECT(bounds) guarded_too_late
}
kernel void guarded_in_time(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                            constant uint& n [[buffer(2)]], uint gid [[thread_position_in_grid]]) {
  out[gid] = gid + 64 < n && in[gid + 64] > 1 ? 1 : 0;
}
kernel void atomic_outside(device atomic_uint* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(&out[gid * 3 % 130], 1, memory_order_relaxed);  // DEFECT(bounds) atomic_outside
}
kernel void atomic_inside(device atomic_uint* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(&out[gid * 3 % 128], 1, memory_order_relaxed);
}
struct Row {
  float values[5];
  uint next;
};
kernel void member_outside(device Row* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  if (gid < 22) out[gid].next = gid;  // DEFECT(bounds) member_outside
}
kernel void member_inside(device Row* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  if (gid < 21) out[gid].next = gid;
}
kernel void matrix_outside(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]],
                           uint g [[threadgroup_position_in_grid]]) {
  simdgroup_float8x8 m;
  simdgroup_load(m, in + 64, 9);  // DEFECT(bounds) matrix_outside
  if (g == 0) simdgroup_store(m, out + 64 * simdgroup, 8);
}
kernel void matrix_inside(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint g [[threadgroup_position_in_grid]]) {
  simdgroup_float8x8 m;
  simdgroup_load(m, in + 57, 9);
  if (g == 0) simdgroup_store(m, out + 64 * simdgroup, 8);
}
