// Threadgroup memory and barriers.
#include <metal_stdlib>
using namespace metal;

// A tree reduction over several SIMD-groups, in host-sized memory.
kernel void tree_sum(const device int* in [[buffer(0)]], device int* out [[buffer(1)]],
                     threadgroup int* scratch [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]],
                     uint n [[threads_per_threadgroup]], uint g [[threadgroup_position_in_grid]],
                     uint gid [[thread_position_in_grid]]) {
  scratch[i] = in[gid];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint stride = n / 2; stride > 0; stride /= 2) {
    if (i < stride) scratch[i] += scratch[i + stride];
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (i == 0) out[g] = scratch[0];
}

// SIMD-groups first, then across them, in memory the kernel declares.
kernel void two_level_sum(const device float* in [[buffer(0)]], device float* out [[buffer(1)]],
                          uint i [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]],
                          uint g [[threadgroup_position_in_grid]], uint gid [[thread_position_in_grid]]) {
  threadgroup float partial[32];
  threadgroup float total;
  float sum = simd_sum(in[gid]);
  if (lane == 0) partial[simdgroup] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simdgroup == 0) {
    float value = lane < simdgroups ? partial[lane] : 0.0f;
    value = simd_sum(value);
    if (lane == 0) total = value;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  out[gid] = total + float(g);
}

struct Pair {
  float key;
  uint index;
};

// Several variables of several types: none may overlap another.
kernel void several_variables(device uint* out [[buffer(0)]], threadgroup half4* host [[threadgroup(0)]],
                              threadgroup ushort* other [[threadgroup(1)]],
                              uint i [[thread_index_in_threadgroup]]) {
  threadgroup uchar bytes[33];
  threadgroup Pair pairs[64];
  threadgroup float tile[8][9];
  threadgroup packed_float3 packed[64];
  threadgroup atomic_uint counter;
  threadgroup bool flag;
  if (i == 0) {
    atomic_store_explicit(&counter, 100u, memory_order_relaxed);
    flag = true;
  }
  if (i < 33) bytes[i] = uchar(i + 1);
  pairs[i] = Pair{float(i) * 2, 1000 + i};
  tile[i / 8][i % 8] = float(i);
  if (i < 8) tile[i][8] = -1.0f;
  packed[i] = packed_float3(i, i + 1, i + 2);
  host[i] = half4(i);
  other[i] = ushort(7 * i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  atomic_fetch_add_explicit(&counter, 1u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint j = 63 - i;
  device uint* o = out + 9 * i;
  o[0] = bytes[j % 33];
  o[1] = uint(pairs[j].key);
  o[2] = pairs[j].index;
  o[3] = uint(tile[i % 8][i / 8]);
  o[4] = uint(packed[j][2]);
  o[5] = uint(host[j].w);
  o[6] = other[j];
  o[7] = atomic_load_explicit(&counter, memory_order_relaxed);
  o[8] = flag && tile[i / 8][8] < 0 ? 1 : 0;
}

// Barriers inside functions, in loops and in branches taken by all threads.
void reverse(threadgroup int* values, uint i, uint n) {
  int mine = values[n - 1 - i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  values[i] = mine;
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
template <int ROUNDS>
void rotate_by(threadgroup int* values, uint i, uint n) {
  for (int r = 0; r < ROUNDS; r++) {
    int mine = values[(i + 1) % n];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    values[i] = mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}
kernel void barriers_in_functions(device int* out [[buffer(0)]], constant int& rounds [[buffer(1)]],
                                  threadgroup int* values [[threadgroup(0)]],
                                  uint i [[thread_index_in_threadgroup]],
                                  uint n [[threads_per_threadgroup]]) {
  values[i] = int(i);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int r = 0; r < rounds; r++) {
    if (r % 2 == 0) {
      reverse(values, i, n);
    } else {
      rotate_by<3>(values, i, n);
    }
  }
  out[i] = values[i];
}

// Values of every type live across a barrier.
kernel void live_across(const device float* in [[buffer(0)]], device float* out [[buffer(1)]],
                        uint i [[thread_index_in_threadgroup]]) {
  threadgroup float shared[128];
  float a = in[i];
  half h = half(a) + 1.0h;
  bfloat b = bfloat(a);
  char c = char(i);
  ulong wide = ulong(i) << 40;
  bool odd = i % 2 == 1;
  float4 v = float4(a, a + 1, a + 2, a + 3);
  float local[5] = {a, a * 2, a * 3, a * 4, a * 5};
  const device float* pointer = in + i;
  shared[i] = a;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float other = shared[127 - i];
  local[i % 5] = 0.0f;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  shared[i] = other;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = float(h) + float(b) + float(c) + float(wide >> 40) + (odd ? 0.5f : 0.0f) + v.x + v.y + v.z + v.w;
  for (int k = 0; k < 5; k++) sum += local[k];
  out[i] = sum + *pointer + shared[127 - i];
}

// Device memory is visible to the threads of a threadgroup after a barrier for it.
kernel void through_device_memory(device int* data [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                                  uint n [[threads_per_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
  device int* mine = data + g * n;
  mine[i] = int(i * 10 + g);
  threadgroup_barrier(mem_flags::mem_device);
  int other = mine[(i + 1) % n];
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  mine[i] = other;
}

// A simdgroup barrier orders the lanes of one SIMD-group.
kernel void within_simdgroups(device int* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]]) {
  threadgroup int shared[128];
  shared[i] = int(i);
  simdgroup_barrier(mem_flags::mem_threadgroup);
  int other = shared[i - lane + (lane + 5) % 32];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  shared[i] = other * 2;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  out[i] = shared[i ^ 1];
}

// Threads that are done with the data return after the last barrier; a loop with a uniform break.
kernel void prefix_maximum(const device int* in [[buffer(0)]], device int* out [[buffer(1)]],
                           constant uint& n [[buffer(2)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup int buffer[2][256];
  uint from = 0;
  buffer[0][i] = i < n ? in[i] : INT_MIN;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint offset = 1;; offset *= 2) {
    if (offset >= n) break;
    int mine = buffer[from][i];
    if (i >= offset) mine = max(mine, buffer[from][i - offset]);
    buffer[1 - from][i] = mine;
    from = 1 - from;
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (i >= n) return;
  out[i] = buffer[from][i];
}

// A tiled transposition over a two-dimensional grid.
kernel void transpose_tiles(const device float* in [[buffer(0)]], device float* out [[buffer(1)]],
                            constant uint2& size [[buffer(2)]], uint2 p [[thread_position_in_threadgroup]],
                            uint2 g [[threadgroup_position_in_grid]]) {
  threadgroup float tile[16][17];
  uint2 from = g * 16 + p;
  if (from.x < size.x && from.y < size.y) tile[p.y][p.x] = in[from.y * size.x + from.x];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint2 to = g.yx * 16 + p;
  if (to.x < size.y && to.y < size.x) out[to.y * size.y + to.x] = tile[p.x][p.y];
}

// All of the threadgroup memory.
kernel void all_of_it(device float* out [[buffer(0)]], uint i [[thread_index_in_threadgroup]]) {
  threadgroup float memory[8192];
  for (uint k = i; k < 8192; k += 256) memory[k] = float(k);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0;
  for (uint k = 0; k < 32; k++) sum += memory[(i * 32 + k + 4096) % 8192];
  out[i] = sum;
}
