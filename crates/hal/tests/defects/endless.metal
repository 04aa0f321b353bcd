// Endless loops, including locks, and similar finite loops.
#include <metal_stdlib>
using namespace metal;

kernel void empty_loop(device uint* out [[buffer(0)]], constant uint& n [[buffer(2)]],
                       uint gid [[thread_position_in_grid]]) {
  uint k = 2 * gid;
  while (k != n + 1) {  // DEFECT(timeout) empty_loop
    k += 2;
  }
  out[gid] = k;
}
kernel void long_loop(device uint* out [[buffer(0)]], constant uint& n [[buffer(2)]],
                      uint gid [[thread_position_in_grid]]) {
  uint k = gid;
  for (uint e = 0; e < n; e++) {
    for (uint f = 0; f < 64; f++) k = k * 5 + f;
  }
  out[gid] = k;
}
kernel void inner_loop(device uint* out [[buffer(0)]], constant uint& n [[buffer(2)]],
                       uint gid [[thread_position_in_grid]]) {
  uint k = 0;
  for (uint e = 0; e < n; e++) {
    for (uint f = 0; f < n; f += k) {  // DEFECT(timeout) inner_loop
      out[gid] += f;
    }
    k++;
  }
}
kernel void loop_over_a_flag(device uint* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                             uint gid [[thread_position_in_grid]]) {
  threadgroup atomic_uint flag;
  if (i == 0) atomic_store_explicit(&flag, 0, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i == 0) {
    while (atomic_load_explicit(&flag, memory_order_relaxed) == 0) {}  // DEFECT(timeout) loop_over_a_flag
  } else {
    atomic_store_explicit(&flag, 1, memory_order_relaxed);
  }
  out[gid] = 1;
}

// The lane that owns the lock waits for those that spin on it.
kernel void lock_by_every_lane(device atomic_uint* out [[buffer(0)]], uint g [[threadgroup_position_in_grid]],
                               uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  device atomic_uint* lock = out + 32 * (2 * g + simdgroup);
  while (atomic_exchange_explicit(lock, 1, memory_order_relaxed) != 0) {  // DEFECT(timeout) lock_by_every_lane
  }
  uint count = atomic_load_explicit(lock + 1, memory_order_relaxed);
  atomic_store_explicit(lock + 1, count + 1, memory_order_relaxed);
  atomic_store_explicit(lock, 0, memory_order_relaxed);
}
kernel void ticket_by_every_lane(device atomic_uint* out [[buffer(0)]], uint g [[threadgroup_position_in_grid]],
                                 uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  device atomic_uint* lock = out + 32 * (2 * g + simdgroup);
  uint ticket = atomic_fetch_add_explicit(lock, 1, memory_order_relaxed);
  while (atomic_load_explicit(lock + 1, memory_order_relaxed) != ticket) {  // DEFECT(timeout) ticket_by_every_lane
  }
  uint count = atomic_load_explicit(lock + 2, memory_order_relaxed);
  atomic_store_explicit(lock + 2, count + 1, memory_order_relaxed);
  atomic_fetch_add_explicit(lock + 1, 1, memory_order_relaxed);
}
// The lock is released inside the loop.
kernel void lock_in_the_loop(device atomic_uint* out [[buffer(0)]]) {
  bool done = false;
  while (!done) {
    if (atomic_exchange_explicit(out, 1, memory_order_relaxed) == 0) {
      uint count = atomic_load_explicit(out + 1, memory_order_relaxed);
      atomic_store_explicit(out + 1, count + 1, memory_order_relaxed);
      atomic_store_explicit(out, 0, memory_order_relaxed);
      done = true;
    }
  }
}
// One lane of each SIMD-group takes the lock.
kernel void lock_by_one_lane(device atomic_uint* out [[buffer(0)]], uint lane [[thread_index_in_simdgroup]]) {
  if (lane == 0) {
    while (atomic_exchange_explicit(out, 1, memory_order_relaxed) != 0) {}
    uint count = atomic_load_explicit(out + 1, memory_order_relaxed);
    atomic_store_explicit(out + 1, count + 1, memory_order_relaxed);
    atomic_store_explicit(out, 0, memory_order_relaxed);
  }
}
kernel void compare_and_exchange(device atomic_uint* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                 uint gid [[thread_position_in_grid]]) {
  uint expected = atomic_load_explicit(out, memory_order_relaxed);
  uint wanted;
  do {
    wanted = as_type<uint>(as_type<float>(expected) + in[gid]);
  } while (!atomic_compare_exchange_weak_explicit(out, &expected, wanted, memory_order_relaxed, memory_order_relaxed));
}
kernel void histogram(device atomic_uint* out [[buffer(0)]], const device float* in [[buffer(1)]],
                      constant uint& n [[buffer(2)]], uint gid [[thread_position_in_grid]]) {
  for (uint k = gid; k < n; k += 64) {
    uint before = atomic_fetch_add_explicit(out + uint(in[k]) % 16, 1, memory_order_relaxed);
    if (before > 1000) break;
  }
}
