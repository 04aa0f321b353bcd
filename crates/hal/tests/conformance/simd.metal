// SIMD-group functions.
#include <metal_stdlib>
using namespace metal;

// Reductions and scans, in every type: out[i * 10 + k].
template <typename T>
kernel void arithmetic(const device T* in [[buffer(0)]], device T* out [[buffer(1)]],
                       uint i [[thread_position_in_grid]]) {
  T v = in[i];
  device T* o = out + 10 * i;
  o[0] = simd_sum(v);
  o[1] = simd_max(v);
  o[2] = simd_min(v);
  o[3] = simd_prefix_inclusive_sum(v);
  o[4] = simd_prefix_exclusive_sum(v);
  T small = i % 16 == 3 ? T(2) : T(1);
  o[5] = simd_product(small);
  o[6] = simd_prefix_inclusive_product(small);
  o[7] = simd_prefix_exclusive_product(small);
  o[8] = simd_broadcast(v, 5);
  o[9] = simd_broadcast_first(v);
}
template [[host_name("arithmetic_float")]] [[kernel]] decltype(arithmetic<float>) arithmetic<float>;
template [[host_name("arithmetic_half")]] [[kernel]] decltype(arithmetic<half>) arithmetic<half>;
template [[host_name("arithmetic_int")]] [[kernel]] decltype(arithmetic<int>) arithmetic<int>;
template [[host_name("arithmetic_uint")]] [[kernel]] decltype(arithmetic<uint>) arithmetic<uint>;
template [[host_name("arithmetic_short")]] [[kernel]] decltype(arithmetic<short>) arithmetic<short>;
template [[host_name("arithmetic_ushort")]] [[kernel]] decltype(arithmetic<ushort>) arithmetic<ushort>;
template [[host_name("arithmetic_char")]] [[kernel]] decltype(arithmetic<char>) arithmetic<char>;
template [[host_name("arithmetic_uchar")]] [[kernel]] decltype(arithmetic<uchar>) arithmetic<uchar>;

template <typename T>
kernel void bitwise(const device T* in [[buffer(0)]], device T* out [[buffer(1)]],
                    uint i [[thread_position_in_grid]]) {
  T v = in[i];
  out[3 * i] = simd_and(v);
  out[3 * i + 1] = simd_or(v);
  out[3 * i + 2] = simd_xor(v);
}
template [[host_name("bitwise_int")]] [[kernel]] decltype(bitwise<int>) bitwise<int>;
template [[host_name("bitwise_uint")]] [[kernel]] decltype(bitwise<uint>) bitwise<uint>;
template [[host_name("bitwise_short")]] [[kernel]] decltype(bitwise<short>) bitwise<short>;
template [[host_name("bitwise_uchar")]] [[kernel]] decltype(bitwise<uchar>) bitwise<uchar>;

// Data movement, in every type: out[i * 14 + k].
template <typename T>
kernel void shuffles(const device T* in [[buffer(0)]], device T* out [[buffer(1)]],
                     uint i [[thread_position_in_grid]], ushort lane [[thread_index_in_simdgroup]]) {
  T v = in[i];
  T fill = in[i ^ 32];
  device T* o = out + 14 * i;
  o[0] = simd_shuffle(v, 31 - lane);
  o[1] = simd_shuffle(v, (lane * 3) % 32);
  o[2] = simd_shuffle_xor(v, 1);
  o[3] = simd_shuffle_xor(v, 13);
  o[4] = simd_shuffle_up(v, 1);
  o[5] = simd_shuffle_up(v, 16);
  o[6] = simd_shuffle_down(v, 1);
  o[7] = simd_shuffle_down(v, 7);
  o[8] = simd_shuffle_rotate_up(v, 3);
  o[9] = simd_shuffle_rotate_down(v, 3);
  o[10] = simd_shuffle_and_fill_up(v, fill, 4);
  o[11] = simd_shuffle_and_fill_down(v, fill, 4);
  o[12] = simd_shuffle_and_fill_up(v, fill, 3, 8);
  o[13] = simd_shuffle_and_fill_down(v, fill, 3, 8);
}
template [[host_name("shuffles_float")]] [[kernel]] decltype(shuffles<float>) shuffles<float>;
template [[host_name("shuffles_half")]] [[kernel]] decltype(shuffles<half>) shuffles<half>;
template [[host_name("shuffles_int")]] [[kernel]] decltype(shuffles<int>) shuffles<int>;
template [[host_name("shuffles_ushort")]] [[kernel]] decltype(shuffles<ushort>) shuffles<ushort>;
template [[host_name("shuffles_uchar")]] [[kernel]] decltype(shuffles<uchar>) shuffles<uchar>;

// On vectors.
kernel void on_vectors(const device float4* in [[buffer(0)]], device float4* out [[buffer(1)]],
                       uint i [[thread_position_in_grid]], ushort lane [[thread_index_in_simdgroup]]) {
  float4 v = in[i];
  out[6 * i] = simd_sum(v);
  out[6 * i + 1] = simd_shuffle_xor(v, 2);
  out[6 * i + 2] = simd_broadcast(v, ushort(9));
  out[6 * i + 3] = float4(simd_max(v.xy), float2(simd_prefix_exclusive_sum(half2(v.zw))));
  out[6 * i + 4] = float4(float3(simd_shuffle_down(int3(v.xyz), 2)), 0);
  out[6 * i + 5] = simd_shuffle(v, ushort(31 - lane));
}

// Votes.
kernel void votes(const device uint* in [[buffer(0)]], device ulong* masks [[buffer(1)]],
                  device uint* out [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  uint v = in[i];
  simd_vote ballot = simd_ballot(v % 3 == 0);
  simd_vote active = simd_active_threads_mask();
  masks[2 * i] = static_cast<simd_vote::vote_t>(ballot);
  masks[2 * i + 1] = (simd_vote::vote_t)active;
  device uint* o = out + 8 * i;
  o[0] = simd_all(v < 1000);
  o[1] = simd_all(v % 2 == 0);
  o[2] = simd_any(v == 7);
  o[3] = simd_any(v > 1000);
  o[4] = ballot.any();
  o[5] = active.all() ? 1 : 0;
  o[6] = simd_is_first();
  o[7] = uint(popcount((simd_vote::vote_t)simd_ballot(v > 10)));
}

// Branches taken by whole SIMD-groups, and loops whose length differs only between SIMD-groups.
kernel void uniform_branches(const device int* in [[buffer(0)]], device int* out [[buffer(1)]],
                             uint i [[thread_position_in_grid]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  int v = in[i];
  if (simdgroup % 2 == 0) {
    v = simd_sum(v);
  } else {
    v = simd_max(v);
  }
  for (uint k = 0; k < simdgroup; k++) v += simd_shuffle_xor(v, ushort(1 << k)) + 1;
  out[i] = v;
}

// Some lanes are inactive.
kernel void some_lanes(const device int* in [[buffer(0)]], device int* out [[buffer(1)]],
                       uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  int v = in[i];
  int result = -1;
  if (lane < 12) {
    result = simd_sum(v);
  }
  out[i] = result;
}

// The last SIMD-group of the grid has fewer lanes.
kernel void partial_group(const device int* in [[buffer(0)]], device int* out [[buffer(1)]],
                          device ulong* masks [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  int v = in[i];
  out[5 * i] = simd_sum(v);
  out[5 * i + 1] = simd_max(v);
  out[5 * i + 2] = simd_prefix_exclusive_sum(v);
  out[5 * i + 3] = simd_broadcast_first(v);
  out[5 * i + 4] = simd_all(v >= 0) ? 1 : 0;
  masks[i] = (simd_vote::vote_t)simd_ballot(true);
}

// Reductions built from shuffles, in a function and in a template, as libraries write them.
template <typename T, int N>
T reduce(T v) {
#pragma unroll
  for (ushort offset = N / 2; offset > 0; offset /= 2) v += simd_shuffle_down(v, offset);
  return v;
}
float maximum(float v) {
  for (ushort mask = 16; mask > 0; mask >>= 1) v = max(v, simd_shuffle_xor(v, mask));
  return v;
}
kernel void by_shuffles(const device float* in [[buffer(0)]], device float* out [[buffer(1)]],
                        uint i [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
  float sum = reduce<float, 32>(in[i]);
  float most = maximum(in[i]);
  int count = reduce<int, 32>(int(in[i]) & 1);
  if (lane == 0) {
    out[3 * (i / 32)] = sum;
    out[3 * (i / 32) + 1] = most;
    out[3 * (i / 32) + 2] = float(count);
  }
}
