// 8 by 8 matrices of a SIMD-group.
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

// Loads and stores with stride, origin and transposition.
template <typename T>
kernel void loads_and_stores(const device T* in [[buffer(0)]], device T* out [[buffer(1)]]) {
  simdgroup_matrix<T, 8, 8> m;
  simdgroup_load(m, in);                              // 8 by 8, dense
  simdgroup_store(m, out);
  simdgroup_load(m, in, 20);                          // rows 20 apart
  simdgroup_store(m, out + 64, 8);
  simdgroup_load(m, in, 20, ulong2(3, 2));            // column 3, row 2
  simdgroup_store(m, out + 128, 8);
  simdgroup_load(m, in, 20, ulong2(0, 0), true);      // transposed
  simdgroup_store(m, out + 192, 8);
  simdgroup_load(m, in + 5, 20);
  simdgroup_store(m, out + 256, 16, ulong2(4, 1));    // into rows of 16
  simdgroup_store(m, out + 448, 8, ulong2(0, 0), true);
}
template [[host_name("stores_float")]] [[kernel]] decltype(loads_and_stores<float>) loads_and_stores<float>;
template [[host_name("stores_half")]] [[kernel]] decltype(loads_and_stores<half>) loads_and_stores<half>;
template [[host_name("stores_bfloat")]] [[kernel]] decltype(loads_and_stores<bfloat>) loads_and_stores<bfloat>;

template <typename T>
kernel void products(const device T* a [[buffer(0)]], const device T* b [[buffer(1)]],
                     const device T* c [[buffer(2)]], device T* out [[buffer(3)]],
                     uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  simdgroup_matrix<T, 8, 8> ma, mb, mc, md;
  simdgroup_load(ma, a + 64 * simdgroup, 8);
  simdgroup_load(mb, b, 8);
  simdgroup_load(mc, c, 8);
  device T* o = out + 256 * simdgroup;
  simdgroup_multiply(md, ma, mb);
  simdgroup_store(md, o, 8);
  simdgroup_multiply_accumulate(md, ma, mb, mc);
  simdgroup_store(md, o + 64, 8);
  simdgroup_multiply_accumulate(mc, ma, mb, mc);      // in place
  simdgroup_store(mc, o + 128, 8);
  md = ma * mb;
  simdgroup_store(md, o + 192, 8);
}
template [[host_name("products_float")]] [[kernel]] decltype(products<float>) products<float>;
template [[host_name("products_half")]] [[kernel]] decltype(products<half>) products<half>;
template [[host_name("products_bfloat")]] [[kernel]] decltype(products<bfloat>) products<bfloat>;

// Half operands, float accumulator; through threadgroup memory; a loop over the inner dimension.
kernel void mixed_product(const device half* a [[buffer(0)]], const device half* b [[buffer(1)]],
                          device float* out [[buffer(2)]], constant uint& inner [[buffer(3)]],
                          uint lane [[thread_index_in_simdgroup]]) {
  threadgroup half tile_a[64];
  threadgroup half tile_b[64];
  simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint k = 0; k < inner; k += 8) {
    for (uint e = lane; e < 64; e += 32) {
      tile_a[e] = a[(e / 8) * inner + k + e % 8];
      tile_b[e] = b[(k + e / 8) * 8 + e % 8];
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_half8x8 ma, mb;
    simdgroup_load(ma, tile_a, 8);
    simdgroup_load(mb, tile_b, 8);
    simdgroup_multiply_accumulate(sum, ma, mb, sum);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  simdgroup_store(sum, out, 8);
}

// The elements of a lane.
kernel void thread_elements(const device float* in [[buffer(0)]], device float* held [[buffer(1)]],
                            device float* out [[buffer(2)]], uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_float8x8 m;
  simdgroup_load(m, in, 8);
  held[2 * lane] = m.thread_elements()[0];
  held[2 * lane + 1] = m.thread_elements()[1];
  m.thread_elements()[0] *= 2.0f;
  m.thread_elements()[1] += float(lane);
  simdgroup_store(m, out, 8);
  simdgroup_float8x8 filled = make_filled_simdgroup_matrix<float, 8, 8>(3.5f);
  simdgroup_store(filled, out + 64, 8);
  simdgroup_float8x8 diagonal = simdgroup_float8x8(2.0f);
  simdgroup_multiply(m, diagonal, filled);
  simdgroup_store(m, out + 128, 8);
}

// Arrays of matrices, as in a tiled matmul.
kernel void arrays(const device float* a [[buffer(0)]], const device float* b [[buffer(1)]],
                   device float* out [[buffer(2)]]) {
  simdgroup_float8x8 ma[2];
  simdgroup_float8x8 mb[2];
  simdgroup_float8x8 mc[4] = {
      make_filled_simdgroup_matrix<float, 8, 8>(0.0f), make_filled_simdgroup_matrix<float, 8, 8>(0.0f),
      make_filled_simdgroup_matrix<float, 8, 8>(0.0f), make_filled_simdgroup_matrix<float, 8, 8>(0.0f)};
  for (uint k = 0; k < 16; k += 8) {
#pragma unroll(2)
    for (uint i = 0; i < 2; i++) {
      simdgroup_load(ma[i], a + 8 * i * 16 + k, 16);
      simdgroup_load(mb[i], b + k * 16 + 8 * i, 16);
    }
    for (uint i = 0; i < 4; i++) simdgroup_multiply_accumulate(mc[i], ma[i / 2], mb[i % 2], mc[i]);
  }
  for (uint i = 0; i < 4; i++) simdgroup_store(mc[i], out + (i / 2) * 8 * 16 + (i % 2) * 8, 16);
}
