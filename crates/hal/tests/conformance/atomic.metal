// Atomic operations on device and threadgroup memory.
#include <metal_stdlib>
using namespace metal;

kernel void device_integers(device atomic_int* ints [[buffer(0)]], device atomic_uint* uints [[buffer(1)]],
                            uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(&ints[0], int(i) - 100, memory_order_relaxed);
  atomic_fetch_sub_explicit(&ints[1], 3, memory_order_relaxed);
  atomic_fetch_min_explicit(&ints[2], 50 - int(i), memory_order_relaxed);
  atomic_fetch_max_explicit(&ints[3], int(i) - 400, memory_order_relaxed);
  atomic_fetch_and_explicit(&ints[4], ~(1 << (i % 8)), memory_order_relaxed);
  atomic_fetch_or_explicit(&ints[5], 1 << (i % 20), memory_order_relaxed);
  atomic_fetch_xor_explicit(&ints[6], int(i), memory_order_relaxed);
  atomic_fetch_add_explicit(uints + 0, 0x01000001u, memory_order_relaxed);
  atomic_fetch_sub_explicit(uints + 1, 1u, memory_order_relaxed);
  atomic_fetch_min_explicit(uints + 2, 0x80000000u + i, memory_order_relaxed);
  atomic_fetch_max_explicit(uints + 3, 0x80000000u + i, memory_order_relaxed);
  atomic_fetch_xor_explicit(uints + 4, 1u << (i % 32), memory_order_relaxed);
}

// Every thread takes its own ticket, in any order.
kernel void tickets(device atomic_uint* counter [[buffer(0)]], device uint* taken [[buffer(1)]],
                    device atomic_uint* last [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  uint ticket = atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
  taken[ticket] += i + 1;
  uint before = atomic_exchange_explicit(last, i, memory_order_relaxed);
  if (before == i) taken[0] = 0xffffffff;
}

// Loads, stores and the results of the fetching forms, by one thread.
kernel void results(device atomic_int* a [[buffer(0)]], device int* out [[buffer(1)]]) {
  atomic_store_explicit(a, 12, memory_order_relaxed);
  out[0] = atomic_load_explicit(a, memory_order_relaxed);
  out[1] = atomic_exchange_explicit(a, 13, memory_order_relaxed);
  out[2] = atomic_fetch_add_explicit(a, 2, memory_order_relaxed);
  out[3] = atomic_fetch_sub_explicit(a, 5, memory_order_relaxed);
  out[4] = atomic_fetch_and_explicit(a, 6, memory_order_relaxed);
  out[5] = atomic_fetch_or_explicit(a, 9, memory_order_relaxed);
  out[6] = atomic_fetch_xor_explicit(a, 15, memory_order_relaxed);
  out[7] = atomic_fetch_min_explicit(a, -4, memory_order_relaxed);
  out[8] = atomic_fetch_max_explicit(a, 40, memory_order_relaxed);
  int expected = 41;
  out[9] = atomic_compare_exchange_weak_explicit(a, &expected, 7, memory_order_relaxed, memory_order_relaxed);
  out[10] = expected;
  out[11] = atomic_load_explicit(a, memory_order_relaxed);
}

// A compare-and-exchange loop, as float maxima are written.
kernel void compare_exchange(device atomic_uint* maximum [[buffer(0)]], const device float* in [[buffer(1)]],
                             device atomic_int* sum [[buffer(2)]], uint i [[thread_position_in_grid]]) {
  float mine = in[i];
  uint seen = atomic_load_explicit(maximum, memory_order_relaxed);
  while (as_type<float>(seen) < mine &&
         !atomic_compare_exchange_weak_explicit(maximum, &seen, as_type<uint>(mine), memory_order_relaxed,
                                                memory_order_relaxed)) {
  }
  int old = atomic_load_explicit(sum, memory_order_relaxed);
  bool done;
  do {
    done = atomic_compare_exchange_weak_explicit(sum, &old, old + int(mine), memory_order_relaxed,
                                                 memory_order_relaxed);
  } while (!done);
}

kernel void floats(device atomic_float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                   uint i [[thread_position_in_grid]]) {
  atomic_fetch_add_explicit(out, in[i], memory_order_relaxed);
  atomic_fetch_sub_explicit(&out[1], 0.5f, memory_order_relaxed);
  if (i == 0) {
    atomic_store_explicit(&out[2], 2.5f, memory_order_relaxed);
    atomic_store_explicit(&out[3], atomic_load_explicit(&out[2], memory_order_relaxed) * 2, memory_order_relaxed);
    atomic_exchange_explicit(&out[4], 8.0f, memory_order_relaxed);
  }
}

// Atomics in threadgroup memory: a histogram.
kernel void histogram(const device uchar* in [[buffer(0)]], device atomic_uint* out [[buffer(1)]],
                      constant uint& n [[buffer(2)]], uint i [[thread_index_in_threadgroup]],
                      uint gid [[thread_position_in_grid]], uint threads [[threads_per_threadgroup]]) {
  threadgroup atomic_uint bins[16];
  threadgroup atomic_int maximum;
  for (uint k = i; k < 16; k += threads) atomic_store_explicit(&bins[k], 0, memory_order_relaxed);
  if (i == 0) atomic_store_explicit(&maximum, -1, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (gid < n) {
    atomic_fetch_add_explicit(&bins[in[gid] % 16], 1u, memory_order_relaxed);
    atomic_fetch_max_explicit(&maximum, int(in[gid]), memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint k = i; k < 16; k += threads) {
    uint count = atomic_load_explicit(&bins[k], memory_order_relaxed);
    if (count > 0) atomic_fetch_add_explicit(&out[k], count, memory_order_relaxed);
  }
  if (i == 0) atomic_fetch_max_explicit(&out[16], uint(atomic_load_explicit(&maximum, memory_order_relaxed)), memory_order_relaxed);
}

// The template form, atomic_bool, and atomics in structs.
struct State {
  atomic_uint count;
  uint limit;
  atomic<int> sum;
};
kernel void in_structs(device State& state [[buffer(0)]], device atomic_bool* seen [[buffer(1)]],
                       uint i [[thread_position_in_grid]]) {
  if (i < state.limit) {
    atomic_fetch_add_explicit(&state.count, 1u, memory_order_relaxed);
    atomic_fetch_add_explicit(&state.sum, int(i), memory_order_relaxed);
    atomic_store_explicit(seen, true, memory_order_relaxed);
  }
}
