// Quad-group functions: four consecutive lanes.
#include <metal_stdlib>
using namespace metal;

// out[i * 18 + k]
template <typename T>
kernel void quads(const device T* in [[buffer(0)]], device T* out [[buffer(1)]],
                  uint i [[thread_position_in_grid]], ushort lane [[thread_index_in_quadgroup]]) {
  T v = in[i];
  T fill = in[i ^ 4];
  device T* o = out + 18 * i;
  o[0] = quad_sum(v);
  o[1] = quad_max(v);
  o[2] = quad_min(v);
  o[3] = quad_product(v);
  o[4] = quad_prefix_inclusive_sum(v);
  o[5] = quad_prefix_exclusive_sum(v);
  o[6] = quad_prefix_inclusive_product(v);
  o[7] = quad_prefix_exclusive_product(v);
  o[8] = quad_broadcast(v, 2);
  o[9] = quad_broadcast_first(v);
  o[10] = quad_shuffle(v, 3 - lane);
  o[11] = quad_shuffle_xor(v, 1);
  o[12] = quad_shuffle_up(v, 1);
  o[13] = quad_shuffle_down(v, 1);
  o[14] = quad_shuffle_rotate_up(v, 1);
  o[15] = quad_shuffle_rotate_down(v, 1);
  o[16] = quad_shuffle_and_fill_up(v, fill, 1);
  o[17] = quad_shuffle_and_fill_down(v, fill, 2);
}
template [[host_name("quads_float")]] [[kernel]] decltype(quads<float>) quads<float>;
template [[host_name("quads_half")]] [[kernel]] decltype(quads<half>) quads<half>;
template [[host_name("quads_int")]] [[kernel]] decltype(quads<int>) quads<int>;
template [[host_name("quads_ushort")]] [[kernel]] decltype(quads<ushort>) quads<ushort>;

kernel void quad_bits_and_votes(const device uint* in [[buffer(0)]], device uint* out [[buffer(1)]],
                                uint i [[thread_position_in_grid]]) {
  uint v = in[i];
  device uint* o = out + 9 * i;
  o[0] = quad_and(v);
  o[1] = quad_or(v);
  o[2] = quad_xor(v);
  o[3] = quad_all(v < 8);
  o[4] = quad_any(v == 5);
  o[5] = uint((quad_vote::vote_t)quad_ballot(v % 2 == 1));
  o[6] = uint((quad_vote::vote_t)quad_active_threads_mask());
  o[7] = quad_is_first();
  o[8] = quad_ballot(v > 100).any();
}
