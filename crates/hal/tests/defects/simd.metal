// SIMD-group functions that read from inactive lanes, or that need all lanes of the SIMD-group, and similar correct
// kernels.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

kernel void shuffle_from_outside_the_branch(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                            uint lane [[thread_index_in_simdgroup]],
                                            uint gid [[thread_position_in_grid]]) {
  float v = in[gid];
  if (lane < 16) {
    v = simd_shuffle(v, lane + 16);  // DEFECT(inactive-lane) shuffle_from_outside_the_branch
  }
  out[gid] = v;
}
kernel void shuffle_inside_the_branch(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                      uint lane [[thread_index_in_simdgroup]], uint gid [[thread_position_in_grid]]) {
  float v = in[gid];
  if (lane < 16) {
    v = simd_shuffle(v, 15 - lane);
  }
  out[gid] = v;
}
kernel void shuffle_from_a_lane_that_returned(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                              uint lane [[thread_index_in_simdgroup]],
                                              uint gid [[thread_position_in_grid]]) {
  if (lane == 3) return;
  out[gid] = simd_broadcast(in[gid], 3);  // DEFECT(inactive-lane) shuffle_from_a_lane_that_returned
}
kernel void broadcast_of_an_active_lane(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                             uint lane [[thread_index_in_simdgroup]],
                                             uint gid [[thread_position_in_grid]]) {
  if (lane == 3) return;
  out[gid] = simd_broadcast(in[gid], 4) + simd_broadcast_first(in[gid]);
}
kernel void butterfly_of_even_lanes(device half4* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]],
                                    uint i [[thread_position_in_grid]]) {
  half4 v = half4(half(lane));
  if (lane % 2 == 0) {
    v += simd_shuffle_xor(v, 1);  // DEFECT(inactive-lane) butterfly_of_even_lanes
  }
  if (i < 32) out[i] = v;
}
kernel void butterfly_over_even_lanes(device half4* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]],
                                      uint i [[thread_position_in_grid]]) {
  half4 v = half4(half(lane));
  if (lane % 2 == 0) {
    v += simd_shuffle_xor(v, 2);
  }
  if (i < 32) out[i] = v;
}
// The first lane adds a value of an inactive lane.
kernel void reduction_beyond_the_branch(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                        uint lane [[thread_index_in_simdgroup]],
                                        uint gid [[thread_position_in_grid]]) {
  float v = in[gid];
  if (lane < 8) {
    for (ushort offset = 8; offset > 0; offset /= 2) {
      v += simd_shuffle_down(v, offset);  // DEFECT(inactive-lane) reduction_beyond_the_branch
    }
  }
  out[gid] = v;
}
// The values that the last lanes read are discarded.
kernel void reduction_in_the_branch(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                    uint lane [[thread_index_in_simdgroup]], uint gid [[thread_position_in_grid]]) {
  float v = in[gid];
  if (lane < 8) {
    for (ushort offset = 4; offset > 0; offset /= 2) {
      v += simd_shuffle_down(v, offset);
    }
  }
  if (lane == 0) out[gid] = v;
}
kernel void reduction_of_all(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                             uint lane [[thread_index_in_simdgroup]], uint gid [[thread_position_in_grid]]) {
  float v = in[gid];
  for (ushort offset = 16; offset > 0; offset /= 2) {
    v += simd_shuffle_down(v, offset);
  }
  if (lane == 0) out[gid] = v;
}
kernel void scan_with_a_hole(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                             uint lane [[thread_index_in_simdgroup]], uint gid [[thread_position_in_grid]]) {
  if (lane == 5) return;
  float v = in[gid];
  float left = simd_shuffle_and_fill_up(v, 0.0f, 1);  // DEFECT(inactive-lane) scan_with_a_hole
  out[gid] = v + left;
}
kernel void scan(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                 uint lane [[thread_index_in_simdgroup]], uint gid [[thread_position_in_grid]]) {
  float v = in[gid];
  for (ushort offset = 1; offset < 32; offset *= 2) {
    float left = simd_shuffle_and_fill_up(v, 0.0f, offset);
    v += left;
  }
  float down = simd_shuffle_and_fill_down(v, 0.0f, 1, 8);
  out[gid] = v + down;
}
kernel void quad_of_two(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                        uint lane [[thread_index_in_quadgroup]], uint gid [[thread_position_in_grid]]) {
  float v = in[gid];
  if (lane < 2) v = quad_shuffle(v, 3 - lane);  // DEFECT(inactive-lane) quad_of_two
  out[gid] = v;
}
kernel void quad_of_four(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                         uint lane [[thread_index_in_quadgroup]], uint q [[quadgroup_index_in_threadgroup]],
                         uint gid [[thread_position_in_grid]]) {
  float v = in[gid];
  if (q % 2 == 0) v = quad_shuffle(v, 3 - lane) + quad_broadcast(v, 3) + quad_shuffle_rotate_down(v, 1);
  out[gid] = v;
}

kernel void load_in_half_a_simdgroup(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                     uint lane [[thread_index_in_simdgroup]], uint i [[thread_position_in_grid]]) {
  simdgroup_float8x8 m = make_filled_simdgroup_matrix<float, 8, 8>(0);
  if (lane < 16) {
    simdgroup_load(m, in, 8);  // DEFECT(divergent-simd) load_in_half_a_simdgroup
  }
  out[i] = m.thread_elements().x;
}
kernel void store_in_half_a_simdgroup(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                      uint lane [[thread_index_in_simdgroup]],
                                      uint simdgroup [[simdgroup_index_in_threadgroup]],
                                      uint g [[threadgroup_position_in_grid]]) {
  simdgroup_float8x8 m;
  simdgroup_load(m, in, 8);
  if (simdgroup == 1) return;
  if (lane % 2 == 1) return;
  simdgroup_store(m, out + 64 * g, 8);  // DEFECT(divergent-simd) store_in_half_a_simdgroup
}
kernel void multiply_in_half_a_simdgroup(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                         uint lane [[thread_index_in_simdgroup]], uint i [[thread_position_in_grid]]) {
  simdgroup_float8x8 m;
  simdgroup_load(m, in, 8);
  if (lane >= 4) {
    simdgroup_multiply(m, m, m);  // DEFECT(divergent-simd) multiply_in_half_a_simdgroup
  }
  out[i] = m.thread_elements().y;
}
kernel void matrices_in_one_simdgroup(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                      uint simdgroup [[simdgroup_index_in_threadgroup]],
                                      uint g [[threadgroup_position_in_grid]]) {
  if (simdgroup == 1) return;
  simdgroup_float8x8 a, b, c = make_filled_simdgroup_matrix<float, 8, 8>(0);
  for (uint k = 0; k <= g; k++) {
    simdgroup_load(a, in, 8);
    simdgroup_load(b, in + 8, 8, ulong2(0, 0), true);
    simdgroup_multiply_accumulate(c, a, b, c);
  }
  simdgroup_store(c, out + 64 * g, 8);
}
// Loads and stores of matrices order no memory.
kernel void matrix_without_barrier(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                   uint simdgroup [[simdgroup_index_in_threadgroup]],
                                   uint g [[threadgroup_position_in_grid]]) {
  threadgroup float tile[64];
  if (simdgroup == 1) return;
  simdgroup_float8x8 a, b;
  simdgroup_load(a, in, 8);
  simdgroup_store(a, tile, 8);
  simdgroup_load(b, tile, 8, ulong2(0, 0), true);  // DEFECT(race) matrix_without_barrier
  simdgroup_store(b, out + 64 * g, 8);
}
kernel void matrix_with_barrier(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                uint simdgroup [[simdgroup_index_in_threadgroup]],
                                uint g [[threadgroup_position_in_grid]]) {
  threadgroup float tile[64];
  if (simdgroup == 1) return;
  simdgroup_float8x8 a, b;
  simdgroup_load(a, in, 8);
  simdgroup_store(a, tile, 8);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_load(b, tile, 8, ulong2(0, 0), true);
  simdgroup_store(b, out + 64 * g, 8);
}
