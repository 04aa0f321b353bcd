// Barriers and SIMD-group functions in divergent control flow, and similar kernels in which all threads reach them.
#include <metal_stdlib>
using namespace metal;

kernel void two_barriers(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                         uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = float(i);
  if (i < 20) {
    threadgroup_barrier(mem_flags::mem_threadgroup);  // DEFECT(divergent-barrier) two_barriers
  } else {
    threadgroup_barrier(mem_flags::mem_threadgroup);  // DEFECT(divergent-barrier) two_barriers
  }
  out[gid] = shared[i];
}
kernel void one_barrier(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                        uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  if (i < 20) {
    shared[i] = float(i);
  } else {
    shared[i] = 2;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = shared[63 - i];
}
kernel void barrier_for_some(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                             uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = 0;
  if (i < 32) {
    shared[i] = float(i);
    threadgroup_barrier(mem_flags::mem_threadgroup);  // DEFECT(divergent-barrier) barrier_for_some
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);  // DEFECT(divergent-barrier) barrier_for_some
  out[gid] = shared[i];
}
kernel void barrier_for_whole_groups(device float* out [[buffer(0)]], constant uint& n [[buffer(2)]],
                                     uint i [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]],
                                     uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = 0;
  if (g == 1 || n > 1000) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    shared[i] = float(i);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = shared[63 - i];
}
kernel void trips_by_thread(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                            uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = 0;
  for (uint k = 0; k < 1 + i / 32; k++) {
    threadgroup_barrier(mem_flags::mem_threadgroup);  // DEFECT(divergent-barrier) trips_by_thread
    shared[i] += 1;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);  // DEFECT(divergent-barrier) trips_by_thread
  out[gid] = shared[i];
}
kernel void trips_for_all(device float* out [[buffer(0)]], constant uint& n [[buffer(2)]],
                          uint i [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]],
                          uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = 0;
  for (uint k = 0; k < n / 32 + g; k++) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    shared[i] += 1;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = shared[63 - i];
}
void rendezvous(threadgroup float* shared, uint i) {
  shared[i] += 1;
  threadgroup_barrier(mem_flags::mem_threadgroup);  // DEFECT(divergent-barrier) barrier_in_function
}
kernel void barrier_in_function(device float* out [[buffer(0)]], threadgroup float* scratch [[threadgroup(0)]],
                                uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  scratch[i] = 0;
  if (i % 2 == 0) rendezvous(scratch, i);
  threadgroup_barrier(mem_flags::mem_threadgroup);  // DEFECT(divergent-barrier) barrier_in_function
  out[gid] = scratch[i];
}
kernel void barrier_in_function_for_all(device float* out [[buffer(0)]],
                                        threadgroup float* scratch [[threadgroup(0)]],
                                        uint i [[thread_index_in_threadgroup]],
                                        uint gid [[thread_position_in_grid]]) {
  scratch[i] = 0;
  for (uint k = 0; k < 3; k++) rendezvous(scratch, i);
  out[gid] = scratch[63 - i];
}

kernel void returns_before_barrier(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                   uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = in[gid];
  if (i >= 50) return;
  threadgroup_barrier(mem_flags::mem_threadgroup);  // DEFECT(early-return) returns_before_barrier
  out[gid] = shared[i / 2];
}
kernel void returns_after_barrier(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                  uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i >= 50) return;
  out[gid] = shared[63 - i];
}
kernel void whole_group_returns(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                uint i [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]],
                                uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  if (g == 0) return;
  shared[i] = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = shared[63 - i];
}
template <uint N>
kernel void rows(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                 uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  if (gid >= N) {
    return;
  }
  shared[i] = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);  // DEFECT(early-return) rows_100
  out[gid] = shared[i / 2];
}
template [[host_name("rows_100")]] [[kernel]] decltype(rows<100>) rows<100>;
template [[host_name("rows_64")]] [[kernel]] decltype(rows<64>) rows<64>;
kernel void returns_in_a_loop(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                              uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = 0;
  for (uint k = 0; k < 4; k++) {
    if (k == 2 && i == 7) return;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // DEFECT(early-return) returns_in_a_loop
    shared[i] += 1;
  }
  out[gid] = shared[i];
}
kernel void leaves_a_loop_together(device float* out [[buffer(0)]], constant uint& n [[buffer(2)]],
                                   uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = 0;
  for (uint k = 0; k < 4; k++) {
    if (k == 2 && n == 128) break;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    shared[i] += 1;
  }
  out[gid] = shared[i];
}

kernel void simd_in_both_branches(device float* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]],
                                  uint gid [[thread_position_in_grid]]) {
  float v;
  if (lane < 8) {
    v = simd_sum(float(lane));  // DEFECT(divergent-simd) simd_in_both_branches
  } else {
    v = simd_max(float(lane));  // DEFECT(divergent-simd) simd_in_both_branches
  }
  out[gid] = v;
}
kernel void simd_by_simdgroup(device float* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]],
                              uint gid [[thread_position_in_grid]]) {
  float v;
  if (simdgroup == 0) {
    v = simd_sum(float(lane));
  } else {
    v = simd_max(float(lane));
  }
  out[gid] = v;
}
kernel void simd_trips_by_lane(device float* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]],
                               uint gid [[thread_position_in_grid]]) {
  float v = 0;
  for (uint k = 0; k < 1 + lane % 3; k++) {
    v += simd_sum(1.0f);  // DEFECT(divergent-simd) simd_trips_by_lane
  }
  v += simd_max(v);  // DEFECT(divergent-simd) simd_trips_by_lane
  out[gid] = v;
}
kernel void simd_trips_by_simdgroup(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]],
                                    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  float v = 0;
  for (uint k = 0; k < 1 + simdgroup; k++) {
    v += simd_sum(1.0f);
  }
  v += simd_max(v);
  out[gid] = v;
}
float total(float v) {
  for (ushort offset = 16; offset > 0; offset /= 2) {
    v += simd_shuffle_xor(v, offset);  // DEFECT(divergent-simd) simd_in_function
  }
  return v;
}
kernel void simd_in_function(device float* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]],
                             uint gid [[thread_position_in_grid]]) {
  float v = float(lane);
  if (lane % 2 == 0) v = total(v);
  v += simd_broadcast(v, 1);  // DEFECT(divergent-simd) simd_in_function
  out[gid] = v;
}
kernel void simd_in_function_for_all(device float* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]],
                                     uint gid [[thread_position_in_grid]]) {
  float v = total(float(lane));
  v += simd_broadcast(v, 1);
  if (lane % 2 == 0) v += 1;
  out[gid] = v;
}
template <typename T>
kernel void simd_in_switch(device float* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]],
                           uint gid [[thread_position_in_grid]]) {
  T v = T(lane);
  switch (lane % 3) {
    case 0:
      v = simd_shuffle_down(v, 3);  // DEFECT(divergent-simd) simd_in_switch_half
      break;
    case 1:
      v = simd_shuffle_up(v, 3);  // DEFECT(divergent-simd) simd_in_switch_half
      break;
    default:
      v = T(0);
  }
  v += simd_sum(v);  // DEFECT(divergent-simd) simd_in_switch_half
  out[gid] = float(v);
}
template [[host_name("simd_in_switch_half")]] [[kernel]] decltype(simd_in_switch<half>) simd_in_switch<half>;

// Larger correct kernels.
kernel void softmax(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                    threadgroup float* scratch [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                    uint gid [[thread_position_in_grid]]) {
  float largest = simd_max(in[gid]);
  if (lane == 0) scratch[simdgroup] = largest;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  largest = max(scratch[0], scratch[1]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float e = exp(in[gid] - largest);
  float sum = simd_sum(e);
  if (lane == 0) scratch[simdgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = e / (scratch[0] + scratch[1]);
}
kernel void bitonic_sort(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                         uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup float values[64];
  values[i] = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint size = 2; size <= 64; size *= 2) {
    for (uint stride = size / 2; stride > 0; stride /= 2) {
      uint j = i ^ stride;
      float a = values[i], b = values[j];
      threadgroup_barrier(mem_flags::mem_threadgroup);
      bool up = (i & size) == 0;
      values[i] = (i < j) == up ? min(a, b) : max(a, b);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
  out[gid] = values[i];
}
kernel void matrix_product(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                           uint i [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
  threadgroup float a[8][8];
  threadgroup float b[8][9];
  uint row = i / 8, column = i % 8;
  float sum = 0;
  for (uint k = 0; k < 2; k++) {
    a[row][column] = in[k * 64 + i];
    b[row][column] = in[(1 - k) * 64 + column * 8 + row];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint e = 0; e < 8; e++) sum += a[row][e] * b[e][column];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  out[g * 64 + i] = sum;
}
kernel void double_buffered_scan(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                 uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup float buffers[2][64];
  uint from = 0;
  buffers[0][i] = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint offset = 1; offset < 64; offset *= 2) {
    buffers[1 - from][i] = buffers[from][i] + (i >= offset ? buffers[from][i - offset] : 0);
    from = 1 - from;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  out[gid] = buffers[from][i];
}
struct Candidate {
  float value;
  uint index;
};
Candidate better(Candidate a, Candidate b) {
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}
kernel void argmax(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                   uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
                   uint i [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]],
                   uint gid [[thread_position_in_grid]]) {
  threadgroup Candidate winners[2];
  Candidate mine = {in[gid], i};
  for (ushort offset = 16; offset > 0; offset /= 2) {
    Candidate other = {simd_shuffle_down(mine.value, offset), simd_shuffle_down(mine.index, offset)};
    mine = better(mine, other);
  }
  if (lane == 0) winners[simdgroup] = mine;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i == 0) out[g] = float(better(winners[0], winners[1]).index);
}
