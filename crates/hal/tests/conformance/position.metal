// Every thread-position attribute, in one to three dimensions and in every type it may have.
#include <metal_stdlib>
using namespace metal;

template <typename T>
kernel void positions_1d(device uint* out [[buffer(0)]],
                         T grid_position [[thread_position_in_grid]],
                         T grid [[threads_per_grid]],
                         T position [[thread_position_in_threadgroup]],
                         T threads [[threads_per_threadgroup]],
                         T dispatched [[dispatch_threads_per_threadgroup]],
                         T group [[threadgroup_position_in_grid]],
                         T groups [[threadgroups_per_grid]],
                         T index [[thread_index_in_threadgroup]],
                         T lane [[thread_index_in_simdgroup]],
                         T simdgroup [[simdgroup_index_in_threadgroup]],
                         T width [[threads_per_simdgroup]],
                         T execution_width [[thread_execution_width]],
                         T simdgroups [[simdgroups_per_threadgroup]],
                         T dispatched_simdgroups [[dispatch_simdgroups_per_threadgroup]],
                         T quad_lane [[thread_index_in_quadgroup]],
                         T quad [[quadgroup_index_in_threadgroup]],
                         T quads [[quadgroups_per_threadgroup]],
                         T dispatched_quads [[dispatch_quadgroups_per_threadgroup]]) {
  device uint* o = out + uint(grid_position) * 18;
  o[0] = grid_position;
  o[1] = grid;
  o[2] = position;
  o[3] = threads;
  o[4] = dispatched;
  o[5] = group;
  o[6] = groups;
  o[7] = index;
  o[8] = lane;
  o[9] = simdgroup;
  o[10] = width;
  o[11] = execution_width;
  o[12] = simdgroups;
  o[13] = dispatched_simdgroups;
  o[14] = quad_lane;
  o[15] = quad;
  o[16] = quads;
  o[17] = dispatched_quads;
}
template [[host_name("positions_uint")]] [[kernel]] decltype(positions_1d<uint>) positions_1d<uint>;
template [[host_name("positions_ushort")]] [[kernel]] decltype(positions_1d<ushort>) positions_1d<ushort>;

template <typename V>
kernel void positions_2d(device uint* out [[buffer(0)]],
                         V grid_position [[thread_position_in_grid]],
                         V grid [[threads_per_grid]],
                         V position [[thread_position_in_threadgroup]],
                         V threads [[threads_per_threadgroup]],
                         V dispatched [[dispatch_threads_per_threadgroup]],
                         V group [[threadgroup_position_in_grid]],
                         V groups [[threadgroups_per_grid]],
                         uint index [[thread_index_in_threadgroup]]) {
  uint linear = uint(grid_position.x) + uint(grid_position.y) * uint(grid.x);
  device uint* o = out + linear * 15;
  V values[7] = {grid_position, grid, position, threads, dispatched, group, groups};
  for (uint k = 0; k < 7; k++) {
    o[2 * k] = values[k].x;
    o[2 * k + 1] = values[k].y;
  }
  o[14] = index;
}
template [[host_name("positions_uint2")]] [[kernel]] decltype(positions_2d<uint2>) positions_2d<uint2>;
template [[host_name("positions_ushort2")]] [[kernel]] decltype(positions_2d<ushort2>) positions_2d<ushort2>;

template <typename V>
kernel void positions_3d(device uint* out [[buffer(0)]],
                         V grid_position [[thread_position_in_grid]],
                         V grid [[threads_per_grid]],
                         V position [[thread_position_in_threadgroup]],
                         V threads [[threads_per_threadgroup]],
                         V dispatched [[dispatch_threads_per_threadgroup]],
                         V group [[threadgroup_position_in_grid]],
                         V groups [[threadgroups_per_grid]],
                         ushort index [[thread_index_in_threadgroup]]) {
  uint linear = grid_position.x + uint(grid.x) * (grid_position.y + uint(grid.y) * grid_position.z);
  device uint* o = out + linear * 22;
  V values[7] = {grid_position, grid, position, threads, dispatched, group, groups};
  for (uint k = 0; k < 7; k++) {
    for (uint d = 0; d < 3; d++) {
      o[3 * k + d] = values[k][d];
    }
  }
  o[21] = index;
}
template [[host_name("positions_uint3")]] [[kernel]] decltype(positions_3d<uint3>) positions_3d<uint3>;
template [[host_name("positions_ushort3")]] [[kernel]] decltype(positions_3d<ushort3>) positions_3d<ushort3>;

// A scalar position in a grid of more dimensions is its x; scalars and vectors may be mixed.
kernel void scalar_in_two_dimensions(device atomic_uint* out [[buffer(0)]],
                                     uint x [[thread_position_in_grid]],
                                     ushort lane [[thread_index_in_simdgroup]]) {
  atomic_fetch_add_explicit(out + x, 1u, memory_order_relaxed);
  atomic_fetch_or_explicit(out + 15, 1u << lane, memory_order_relaxed);
}

// Lanes and SIMD-groups of a threadgroup whose rows are not whole SIMD-groups.
kernel void lanes_of_rows(device uint* out [[buffer(0)]], uint2 position [[thread_position_in_threadgroup]],
                          uint2 threads [[threads_per_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint index [[thread_index_in_threadgroup]]) {
  uint linear = position.y * threads.x + position.x;
  out[linear * 3] = simdgroup * 32 + lane;
  out[linear * 3 + 1] = index;
  out[linear * 3 + 2] = linear;
}

// The attributes of a function that is not a template, with only the output buffer.
[[kernel]] void bare(device uint* out, uint3 p [[thread_position_in_grid]], uint3 n [[threads_per_grid]]) {
  out[p.x + n.x * (p.y + n.y * p.z)] = p.x * 100 + p.y * 10 + p.z;
}
