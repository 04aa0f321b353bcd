// Data races, and similar kernels without one.
//
// A marker names its kernel; if two accesses race, a report on either line is correct.
#include <metal_stdlib>
using namespace metal;

kernel void missing_barrier(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                            uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  shared[i] = in[gid];        // DEFECT(race) missing_barrier
  out[gid] = shared[63 - i];  // DEFECT(race) missing_barrier
}
kernel void with_barrier(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                         uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  shared[i] = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = shared[63 - i];
}

kernel void tree_without_barrier(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                 threadgroup float* scratch [[threadgroup(0)]],
                                 uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]],
                                 uint g [[threadgroup_position_in_grid]]) {
  scratch[i] = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint stride = 32; stride > 0; stride /= 2) {
    if (i < stride) {
      scratch[i] += scratch[i + stride];  // DEFECT(race) tree_without_barrier
    }
  }
  if (i == 0) out[g] = scratch[0];
}
kernel void tree_with_barrier(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                              threadgroup float* scratch [[threadgroup(0)]],
                              uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]],
                              uint g [[threadgroup_position_in_grid]]) {
  scratch[i] = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint stride = 32; stride > 0; stride /= 2) {
    if (i < stride) {
      scratch[i] += scratch[i + stride];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (i == 0) out[g] = scratch[0];
}

// There is a barrier between write and read, but not between the read and the next write.
kernel void reused_without_barrier(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                                   uint gid [[thread_position_in_grid]]) {
  threadgroup float total;
  float sum = 0;
  for (uint round = 0; round < 4; round++) {
    if (i == 0) {
      total = float(round);  // DEFECT(race) reused_without_barrier
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum += total;  // DEFECT(race) reused_without_barrier
  }
  out[gid] = sum;
}
kernel void reused_with_barrier(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                                uint gid [[thread_position_in_grid]]) {
  threadgroup float total;
  float sum = 0;
  for (uint round = 0; round < 4; round++) {
    if (i == 0) {
      total = float(round);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum += total;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  out[gid] = sum;
}

void put(threadgroup float* values, uint i, float value) {
  values[i] = value;  // DEFECT(race) in_functions
}
float get(threadgroup float* values, uint i) {
  return values[i];  // DEFECT(race) in_functions
}
kernel void in_functions(device float* out [[buffer(0)]], threadgroup float* scratch [[threadgroup(0)]],
                         uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  put(scratch, i, 1);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  put(scratch, i, 2);
  out[gid] = get(scratch, (i + 1) % 64);
}
kernel void in_functions_ordered(device float* out [[buffer(0)]], threadgroup float* scratch [[threadgroup(0)]],
                                 uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  put(scratch, i, 1);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  put(scratch, i, 2);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = get(scratch, (i + 1) % 64);
}

template <typename T, bool ordered>
T exchange(threadgroup T* values, T mine, uint i) {
  values[i] = mine;  // DEFECT(race) exchange_int
  if (ordered) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  T other = values[i ^ 33];  // DEFECT(race) exchange_int
  return other;
}
template <typename T, bool ordered>
kernel void exchanging(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                       uint gid [[thread_position_in_grid]]) {
  threadgroup T values[64];
  values[i] = T(0);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = float(exchange<T, ordered>(values, T(i), i));
}
template [[host_name("exchange_int")]] [[kernel]] decltype(exchanging<int, false>) exchanging<int, false>;
template [[host_name("exchange_ordered")]] [[kernel]] decltype(exchanging<int, true>) exchanging<int, true>;

// A simdgroup barrier orders one SIMD-group, not two.
kernel void across_simdgroups(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                              uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  shared[i] = float(i);  // DEFECT(race) across_simdgroups
  simdgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = shared[(i + 32) % 64];  // DEFECT(race) across_simdgroups
}
kernel void within_a_simdgroup(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                               uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  shared[i] = float(i);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = shared[i ^ 7];
}

// Barriers that order no memory, or the wrong memory.
kernel void barrier_for_nothing(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                                uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  shared[i] = float(i);  // DEFECT(race) barrier_for_nothing
  threadgroup_barrier(mem_flags::mem_none);
  out[gid] = shared[(i + 9) % 64];  // DEFECT(race) barrier_for_nothing
}
kernel void barrier_for_device_memory(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                                      uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  shared[i] = float(i);  // DEFECT(race) barrier_for_device_memory
  threadgroup_barrier(mem_flags::mem_device);
  out[gid] = shared[(i + 9) % 64];  // DEFECT(race) barrier_for_device_memory
}
kernel void barrier_for_both(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                             uint gid [[thread_position_in_grid]]) {
  threadgroup float shared[64];
  shared[i] = float(i);
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  out[gid] = shared[(i + 9) % 64];
}
kernel void device_memory_with_wrong_flags(device float* out [[buffer(0)]],
                                           uint i [[thread_index_in_threadgroup]],
                                           uint gid [[thread_position_in_grid]]) {
  out[gid] = float(i);  // DEFECT(race) device_memory_with_wrong_flags
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float other = out[gid ^ 40];  // DEFECT(race) device_memory_with_wrong_flags
  threadgroup_barrier(mem_flags::mem_device);
  out[gid] = other;
}
kernel void device_memory_with_right_flags(device float* out [[buffer(0)]],
                                           uint i [[thread_index_in_threadgroup]],
                                           uint gid [[thread_position_in_grid]]) {
  out[gid] = float(i);
  threadgroup_barrier(mem_flags::mem_device);
  float other = out[gid ^ 40];
  threadgroup_barrier(mem_flags::mem_device);
  out[gid] = other;
}

// All threads write one variable.
kernel void all_threads_write(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                            uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup float chosen;
  chosen = in[gid];  // DEFECT(race) all_threads_write
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = chosen;
}
kernel void one_thread_writes(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                       uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup float chosen;
  if (i == 17) chosen = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = chosen;
}

// Counting.
kernel void plain_counter(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                          uint gid [[thread_position_in_grid]]) {
  threadgroup uint count;
  if (i == 0) count = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i % 3 == 0) {
    count += 1;  // DEFECT(race) plain_counter
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = float(count);
}
kernel void atomic_counter(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                           uint gid [[thread_position_in_grid]]) {
  threadgroup atomic_uint count;
  if (i == 0) atomic_store_explicit(&count, 0, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (i % 3 == 0) {
    atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = float(atomic_load_explicit(&count, memory_order_relaxed));
}
kernel void plain_histogram(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                            uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup uint bins[8];
  if (i < 8) bins[i] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  bins[uint(in[gid]) % 8]++;  // DEFECT(race) plain_histogram
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = float(bins[i % 8]);
}
kernel void atomic_histogram(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                             uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  threadgroup atomic_uint bins[8];
  if (i < 8) atomic_store_explicit(&bins[i], 0, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(&bins[uint(in[gid]) % 8], 1, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = float(atomic_load_explicit(&bins[i % 8], memory_order_relaxed));
}

// Device memory, between threadgroups.
kernel void device_sum(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                       uint gid [[thread_position_in_grid]]) {
  out[0] += in[gid];  // DEFECT(race) device_sum
}
kernel void device_atomic_sum(device atomic_float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                              uint gid [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(out, in[gid], memory_order_relaxed);
}
kernel void index_in_the_group(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                               uint i [[thread_index_in_threadgroup]], uint gid [[thread_position_in_grid]]) {
  out[i] = in[gid];  // DEFECT(race) index_in_the_group
}
kernel void index_in_the_grid(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                              uint gid [[thread_position_in_grid]]) {
  out[gid] = in[gid];
}
kernel void neighbours_group(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                             uint gid [[thread_position_in_grid]]) {
  out[gid] = float(i);  // DEFECT(race) neighbours_group
  threadgroup_barrier(mem_flags::mem_device);
  float other = out[(gid + 64) % 128];  // DEFECT(race) neighbours_group
  threadgroup_barrier(mem_flags::mem_device);
  if (other < 0) out[gid] = other;
}
kernel void own_group(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                      uint gid [[thread_position_in_grid]], uint g [[threadgroup_position_in_grid]]) {
  out[gid] = float(i);
  threadgroup_barrier(mem_flags::mem_device);
  float other = out[g * 64 + (i + 32) % 64];
  threadgroup_barrier(mem_flags::mem_device);
  if (other < 0) out[gid] = other;
}
kernel void in_place_shift(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  if (gid < 127) out[gid] = out[gid + 1];  // DEFECT(race) in_place_shift
}
kernel void shift(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                  uint gid [[thread_position_in_grid]]) {
  if (gid < 127) out[gid] = in[gid + 1];
}
// Atomic on one side only.
kernel void half_atomic(device atomic_uint* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  device uint* plain = (device uint*)out;
  if (gid == 70) {
    plain[3] = 1;  // DEFECT(race) half_atomic
  } else {
    atomic_fetch_add_explicit(out + 3, 1, memory_order_relaxed);  // DEFECT(race) half_atomic
  }
}
kernel void all_atomic(device atomic_uint* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  if (gid == 70) {
    atomic_store_explicit(out + 3, 1, memory_order_relaxed);
  } else {
    atomic_fetch_add_explicit(out + 3, 1, memory_order_relaxed);
  }
}

// Parts of one word, and partially overlapping vectors.
kernel void overlapping_vectors(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  device packed_float2* pair = (device packed_float2*)(out + gid / 2 * 2 + gid % 2);
  if (gid < 126) *pair = packed_float2(1, 2);  // DEFECT(race) overlapping_vectors
}
kernel void neighbouring_vectors(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  device packed_float2* pair = (device packed_float2*)(out + 2 * gid);
  if (gid < 64) *pair = packed_float2(1, 2);
}
kernel void neighbouring_bytes(device uchar* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                               uint gid [[thread_position_in_grid]]) {
  threadgroup half pieces[65];
  threadgroup uchar bytes[64];
  pieces[i] = half(i);
  bytes[i] = uchar(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = bytes[63 - i] + uchar(pieces[63 - i]);
}

// One thread of each SIMD-group writes, all read.
kernel void partials_without_barrier(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                     uint lane [[thread_index_in_simdgroup]], uint i [[thread_index_in_threadgroup]],
                                     uint simdgroup [[simdgroup_index_in_threadgroup]],
                                     uint gid [[thread_position_in_grid]]) {
  threadgroup float partial[2];
  if (i < 2) partial[i] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = simd_sum(in[gid]);
  if (lane == 0) partial[simdgroup] = sum;  // DEFECT(race) partials_without_barrier
  out[gid] = partial[0] + partial[1];       // DEFECT(race) partials_without_barrier
}
kernel void partials_with_barrier(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                  uint lane [[thread_index_in_simdgroup]], uint i [[thread_index_in_threadgroup]],
                                  uint simdgroup [[simdgroup_index_in_threadgroup]],
                                  uint gid [[thread_position_in_grid]]) {
  threadgroup float partial[2];
  if (i < 2) partial[i] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = simd_sum(in[gid]);
  if (lane == 0) partial[simdgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = partial[0] + partial[1];
}
