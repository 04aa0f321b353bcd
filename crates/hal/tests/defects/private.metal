// Private memory that is read before it was written or accessed out of bounds, and similar correct kernels.
// The harness binds: 0 = 128 floats (written), 1 = 128 floats whose value is (37 i) mod 101, 2 = the count.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

// Variables.

kernel void accumulates_into_nothing(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                     uint gid [[thread_position_in_grid]]) {
  float acc;
  for (uint i = 0; i < 4; ++i) acc += in[(gid + i) % 128];  // DEFECT(uninitialised) accumulates_into_nothing
  out[gid] = acc;
}
kernel void accumulates_from_zero(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                  uint gid [[thread_position_in_grid]]) {
  float acc;
  acc = 0;
  for (uint i = 0; i < 4; ++i) acc += in[(gid + i) % 128];
  out[gid] = acc;
}

kernel void set_by_some(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                        uint gid [[thread_position_in_grid]]) {
  float best;
  if (in[gid] > 50) best = in[gid];
  out[gid] = best;  // DEFECT(uninitialised) set_by_some
}
kernel void used_where_set(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                           uint gid [[thread_position_in_grid]]) {
  float best;
  if (in[gid] > 50) best = in[gid];
  out[gid] = 0;
  if (in[gid] > 50) out[gid] = best;
}

kernel void forgotten_case(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  float scale;
  switch (gid % 4) {
    case 0: scale = 1; break;
    case 1: scale = 2; break;
    case 2: scale = 4; break;
  }
  out[gid] = scale;  // DEFECT(uninitialised) forgotten_case
}
kernel void every_case(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  float scale;
  switch (gid % 4) {
    case 0: scale = 1; break;
    case 1: scale = 2; break;
    case 2: scale = 4; break;
    default: scale = 8;
  }
  out[gid] = scale;
}

// A variable of a loop body is a new one in every iteration.
kernel void kept_from_last_time(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                uint gid [[thread_position_in_grid]], constant uint& count [[buffer(2)]]) {
  float sum = 0;
  for (uint i = 0; i < count; ++i) {
    float scale;
    if (i == 0) scale = in[gid];
    sum += scale;  // DEFECT(uninitialised) kept_from_last_time
  }
  out[gid] = sum;
}
kernel void set_every_time(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                           uint gid [[thread_position_in_grid]], constant uint& count [[buffer(2)]]) {
  float sum = 0;
  for (uint i = 0; i < count; ++i) {
    float scale;
    if (i == 0) scale = in[gid];
    else scale = 1;
    sum += scale;
  }
  out[gid] = sum;
}

// Vectors.

kernel void last_component_missing(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                   uint gid [[thread_position_in_grid]]) {
  float4 v;
  v.x = in[gid];
  v.y = 1;
  v.z = 2;
  out[gid] = v.x + v.w;  // DEFECT(uninitialised) last_component_missing
}
kernel void written_components_only(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                    uint gid [[thread_position_in_grid]]) {
  float4 v;
  v.x = in[gid];
  v.y = 1;
  float4 copy = v;
  copy *= 2;
  float2 low = copy.xy;
  out[gid] = low.x + copy.y + dot(v.xy, float2(1, 2));
}

kernel void empty_vector(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                         uint gid [[thread_position_in_grid]]) {
  float4 sum;
  sum = fma(float4(in[gid]), float4(2), sum);  // DEFECT(uninitialised) empty_vector
  out[gid] = sum.x;
}
kernel void swizzled_vector(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                            uint gid [[thread_position_in_grid]]) {
  float4 sum;
  sum.zw = float2(in[gid]);
  sum.xy = sum.wz;
  sum = fma(float4(in[gid]), float4(2), sum);
  float3 three;
  three.x = 1;
  three.yz = sum.xy;
  half3 narrow = half3(three);
  out[gid] = sum.x + three.z + float(narrow.y);
}

kernel void component_by_index(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                               uint gid [[thread_position_in_grid]]) {
  float4 v;
  for (uint i = 0; i < 3; ++i) v[i] = in[gid];
  out[gid] = v[gid % 4];  // DEFECT(uninitialised) component_by_index
}
kernel void all_components_by_index(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                    uint gid [[thread_position_in_grid]]) {
  float4 v;
  for (uint i = 0; i < 4; ++i) v[i] = in[gid];
  out[gid] = v[gid % 4];
}

// Arrays.

kernel void element_missing(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                            uint gid [[thread_position_in_grid]]) {
  float part[8];
  for (uint i = 0; i < 7; ++i) part[i] = in[gid] * float(i);
  out[gid] = part[gid % 8];  // DEFECT(uninitialised) element_missing
}
kernel void written_elements_only(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                  uint gid [[thread_position_in_grid]]) {
  float part[8];
  for (uint i = 0; i < 7; ++i) part[i] = in[gid] * float(i);
  out[gid] = part[gid % 7];
}

kernel void across_a_barrier(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                             uint gid [[thread_position_in_grid]], constant uint& count [[buffer(2)]]) {
  float part[64];
  for (uint i = 1; i < count / 2; ++i) part[i] = in[gid];
  threadgroup_barrier(mem_flags::mem_none);
  out[gid] = part[gid % 64];  // DEFECT(uninitialised) across_a_barrier
}
kernel void wholly_written_before_a_barrier(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                            uint gid [[thread_position_in_grid]],
                                            constant uint& count [[buffer(2)]]) {
  float part[64];
  for (uint i = 0; i < count / 2; ++i) part[i] = in[gid];
  threadgroup_barrier(mem_flags::mem_none);
  out[gid] = part[gid % 64];
}

void fill(thread float* part, uint count, float value) {
  for (uint i = 0; i < count; ++i) part[i] = value;
}
float total(thread const float* part, uint count) {
  float sum = 0;
  for (uint i = 0; i < count; ++i) sum += part[i];  // DEFECT(uninitialised) filled_too_little
  return sum;
}
kernel void filled_too_little(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                              uint gid [[thread_position_in_grid]]) {
  float part[12];
  fill(part, 11, in[gid]);
  out[gid] = total(part, 12);
}
kernel void filled_by_a_function(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                 uint gid [[thread_position_in_grid]]) {
  float part[12];
  fill(part, 11, in[gid]);
  out[gid] = total(part, 11);
}

void set(thread float& value, float to) { value = to; }
void twice(thread float& value) { value *= 2; }  // DEFECT(uninitialised) doubled_before_set
kernel void doubled_before_set(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                               uint gid [[thread_position_in_grid]]) {
  float value;
  twice(value);
  set(value, in[gid]);
  out[gid] = value;
}
kernel void doubled_after_set(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                              uint gid [[thread_position_in_grid]]) {
  float value;
  set(value, in[gid]);
  twice(value);
  out[gid] = value;
}

// Structures: padding, copies and members.

struct Entry {
  char tag;
  float value;
  float extra[3];
};
Entry made(float value) {
  Entry entry;
  entry.tag = 1;
  entry.value = value;
  return entry;
}
kernel void member_missing(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                           uint gid [[thread_position_in_grid]]) {
  Entry entry = made(in[gid]);
  Entry copy = entry;
  out[gid] = copy.value + copy.extra[1];  // DEFECT(uninitialised) member_missing
}
struct Padded {
  char tag;
  float value;
};
float value_of(Padded padded) { return padded.value; }
kernel void padding_is_copied(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                              uint gid [[thread_position_in_grid]]) {
  Entry entry = made(in[gid]);
  Entry copy;
  copy = entry;
  Padded padded;
  padded.value = copy.value;
  out[gid] = copy.value + float(copy.tag) + value_of(padded);
}

struct Tile {
  float data[4][2];
  thread float2& at(uint i) { return *(thread float2*)data[i]; }
  thread float& element(uint i, uint j) { return data[i][j]; }
};
kernel void tile_row_missing(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                             uint gid [[thread_position_in_grid]]) {
  Tile tile;
  for (uint i = 0; i < 3; ++i) tile.at(i) = float2(in[gid], 1);
  out[gid] = tile.element(gid % 4, 1);  // DEFECT(uninitialised) tile_row_missing
}
kernel void whole_tile(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                       uint gid [[thread_position_in_grid]]) {
  Tile tile;
  for (uint i = 0; i < 4; ++i) tile.at(i) = float2(in[gid], 1);
  out[gid] = tile.element(gid % 4, 1);
}

// Variables that library functions write.
kernel void library_writes(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                           uint gid [[thread_position_in_grid]]) {
  float whole;
  float part = modf(in[gid] + 0.5f, whole);
  float cosine;
  float sine = sincos(in[gid], cosine);
  int exponent;
  float mantissa = frexp(in[gid] + 1, exponent);
  simdgroup_float8x8 a, b, c;
  simdgroup_load(a, in, 8);
  b = simdgroup_float8x8(1);
  simdgroup_multiply(c, a, b);
  simdgroup_multiply_accumulate(c, a, b, c);
  array<float, 4> list;
  for (uint i = 0; i < 4; ++i) list[i] = in[gid];
  out[gid] = whole + part + sine + cosine + mantissa + float(exponent) + c.thread_elements()[0] + list[gid % 4];
}

// Bounds.

kernel void one_past_the_end(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                             uint gid [[thread_position_in_grid]]) {
  float part[5] = {0, 1, 2, 3, 4};
  part[gid % 6] += in[gid];  // DEFECT(bounds) one_past_the_end
  out[gid] = part[0];
}
kernel void up_to_the_end(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                          uint gid [[thread_position_in_grid]]) {
  float part[5] = {0, 1, 2, 3, 4};
  part[gid % 5] += in[gid];
  out[gid] = part[0];
}

kernel void constant_index_too_large(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                     uint gid [[thread_position_in_grid]]) {
  float part[4];
  for (uint i = 0; i <= 4; ++i) part[i] = in[gid];  // DEFECT(bounds) constant_index_too_large
  out[gid] = part[gid % 4];
}
kernel void far_away(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                     uint gid [[thread_position_in_grid]]) {
  float part[4] = {1, 2, 3, 4};
  out[gid] = part[int(in[gid]) * 100000];  // DEFECT(bounds) far_away
}
kernel void before_the_start(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                             uint gid [[thread_position_in_grid]]) {
  float part[4] = {1, 2, 3, 4};
  out[gid] = part[int(gid % 4) - 1];  // DEFECT(bounds) before_the_start
}

float last(thread const float* part, uint count) {
  thread const float* end = part;
  for (uint i = 0; i < count; ++i) ++end;
  return *end;  // DEFECT(bounds) pointer_at_the_end
}
kernel void pointer_at_the_end(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                               uint gid [[thread_position_in_grid]]) {
  float part[4] = {1, 2, 3, in[gid]};
  out[gid] = last(part, 4);
}
kernel void pointer_at_the_last(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                uint gid [[thread_position_in_grid]]) {
  float part[4] = {1, 2, 3, in[gid]};
  out[gid] = last(part, 3);
}

kernel void component_five(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                           uint gid [[thread_position_in_grid]]) {
  float4 v = in[gid];
  out[gid] = v[gid % 5];  // DEFECT(bounds) component_five
}

float second(float part[2]) { return part[1]; }
kernel void rows_of_an_array(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                             uint gid [[thread_position_in_grid]]) {
  float part[3][4];
  thread float* flat = &part[0][0];
  for (uint i = 0; i < 12; ++i) flat[i] = in[gid];
  float2 pair = *(thread float2*)(flat + 2);
  thread float* here = in[gid] > 50 ? part[0] : part[1];
  float copy[2] = {pair.x, here[3]};
  out[gid] = part[gid % 3][gid % 4] + second(copy);
}

// Bit-fields, unions, and variables of the same name.

struct Flags {
  uint low : 4;
  uint high : 28;
};
union Word {
  uint whole;
  uchar part[4];
};
kernel void bits_and_parts(device float* out [[buffer(0)]], uint gid [[thread_position_in_grid]]) {
  Flags flags;
  flags.low = gid;
  flags.high = 3;
  Word word;
  word.part[0] = uchar(gid);
  out[gid] = float(flags.low + flags.high) + float(word.whole & 255);
}
kernel void far_outside_a_large_array(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                      uint gid [[thread_position_in_grid]]) {
  float large[20000];
  for (uint i = 0; i < 20000; i += 100) large[i] = in[gid];
  out[gid] = large[uint(in[gid]) * 100000 + 20000];  // DEFECT(bounds) far_outside_a_large_array
}

// Values that are read through a null pointer and never used.
template <bool with_index> float smallest(const device float* in, const device uint* index, uint count) {
  float values[4];
  uint indices[4];
  for (uint i = 0; i < 4; ++i) {
    values[i] = in[i % count];
    indices[i] = index[i];
  }
  float lowest = values[0];
  uint at = indices[0];
  for (uint i = 1; i < 4; ++i) {
    if (values[i] < lowest) {
      lowest = values[i];
      at = indices[i];
    }
  }
  return with_index ? float(at) : lowest;
}
kernel void nothing_behind_null(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                uint gid [[thread_position_in_grid]], constant uint& count [[buffer(2)]]) {
  out[gid] = smallest<false>(in, nullptr, count);
}

// Copies of uninitialised values.

kernel void copied_then_used(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                             uint gid [[thread_position_in_grid]]) {
  float value;
  float copy = value;
  if (in[gid] > 50) copy = 1;
  float again[2];
  again[0] = copy;
  out[gid] = again[0];  // DEFECT(uninitialised) copied_then_used
}
void swap(thread uint& a, thread uint& b) {
  uint was = a;
  a = b;
  b = was;
}
template <bool with_index>
void sort(thread float (&values)[4], thread uint (&indices)[4]) {
  for (uint i = 0; i < 4; ++i) {
    for (uint j = i & 1; j < 3; j += 2) {
      if (values[j + 1] < values[j]) {
        float was = values[j];
        values[j] = values[j + 1];
        values[j + 1] = was;
        swap(indices[j], indices[j + 1]);
      }
    }
  }
}
kernel void swapped_and_never_used(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                                   uint gid [[thread_position_in_grid]]) {
  float values[4];
  uint indices[4];
  for (uint i = 0; i < 4; ++i) values[i] = in[(gid + i) % 128];
  sort<false>(values, indices);
  out[gid] = values[gid % 4];
}
kernel void swapped_and_used(device float* out [[buffer(0)]], const device float* in [[buffer(1)]],
                             uint gid [[thread_position_in_grid]]) {
  float values[4];
  uint indices[4];
  for (uint i = 0; i < 4; ++i) values[i] = in[(gid + i) % 128];
  for (uint i = 0; i < 3; ++i) indices[i] = i;
  sort<true>(values, indices);
  out[gid] = float(indices[gid % 4]);  // DEFECT(uninitialised) swapped_and_used
}
