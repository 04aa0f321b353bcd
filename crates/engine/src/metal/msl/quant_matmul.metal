#include "types.h"
#include "band.h"
#include "quant_skinny.h"
#include "host/QuantMatmulArgs.h"

// Products of vectors and quantised weights of the format Q_FORMAT: out[vector, row] = sum over k of x[vector, k]
// w[row, k].

// SIMD-groups of a threadgroup.
#define SIMD_GROUPS 4
// Vectors, and rows of the weights that a SIMD-group takes together; at most four of either.
FUNCTION_CONSTANT(uint, VECTORS);
FUNCTION_CONSTANT(uint, GEMV_ROWS);
// SIMD-groups that split the columns.
FUNCTION_CONSTANT(uint, SIMD_SPLITS);
// The shape of a tile: quant_tile.h.
FUNCTION_CONSTANT(uint, VECTOR_BLOCKS);
FUNCTION_CONSTANT(uint, TILE_SIMD_GROUPS);

// GEMV: lanes stream the chunks of a row, and reuse those of the vectors for all rows. Grid: rows.
kernel void ENTRY(quant_gemv)(device const uchar* weights, device const float* x, device float* output,
                              constant QuantMatmulArgs& p, BAND_ARGUMENT,
                              uint group [[threadgroup_position_in_grid]],
                              uint lane [[thread_index_in_simdgroup]],
                              uint simd_group [[simdgroup_index_in_threadgroup]]) {
    if (BANDED) {
        group += band.origin.x;
    }
    threadgroup float partials[SIMD_GROUPS][16];
    const uint first = (group * (SIMD_GROUPS / SIMD_SPLITS) + simd_group / SIMD_SPLITS) * GEMV_ROWS;
    device const uchar* lines[4];
    UNROLL for (uint r = 0; r < 4; r++) {
        // Rows past the end repeat the last one.
        lines[r] = weights + min(first + r, p.rows - 1) * Weights<Q_FORMAT>::row_bytes(p.cols);
    }
    float sums[4][4];
    UNROLL for (uint r = 0; r < 4; r++) {
        UNROLL for (uint v = 0; v < 4; v++) {
            sums[r][v] = 0;
        }
    }
    const uint chunks = (p.cols + CHUNK - 1) / CHUNK;
    for (uint at = simd_group % SIMD_SPLITS * 32 + lane; at < chunks; at += SIMD_SPLITS * 32) {
        float4 x_values[4][4];
        UNROLL for (uint v = 0; v < 4; v++) {
            if (v < VECTORS) {
                device const float* from = x + p.offset + v * ulong(p.cols);
                UNROLL for (uint i = 0; i < 4; i++) {
                    x_values[v][i] = quant_four(from, at * CHUNK + 4 * i, p.cols);
                }
            }
        }
        UNROLL for (uint r = 0; r < 4; r++) {
            if (r < GEMV_ROWS) {
                float w[CHUNK];
                Weights<Q_FORMAT>::read(lines[r], at, p.cols, w);
                UNROLL for (uint v = 0; v < 4; v++) {
                    if (v < VECTORS) {
                        float sum = 0;
                        UNROLL for (uint i = 0; i < 4; i++) {
                            sum += dot(float4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]), x_values[v][i]);
                        }
                        sums[r][v] += sum;
                    }
                }
            }
        }
    }
    // Lane i gets sum i.
    float sum = 0;
    UNROLL for (uint r = 0; r < 4; r++) {
        UNROLL for (uint v = 0; v < 4; v++) {
            if (r < GEMV_ROWS && v < VECTORS) {
                const float all = simd_sum(sums[r][v]);
                sum = lane == r * 4 + v ? all : sum;
            }
        }
    }
    if (SIMD_SPLITS > 1) {
        if (lane < 16) {
            partials[simd_group][lane] = sum;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (simd_group % SIMD_SPLITS != 0) {
            return;
        }
        for (uint i = 1; i < SIMD_SPLITS; i++) {
            sum += lane < 16 ? partials[simd_group + i][lane] : 0.0f;
        }
    }
    const uint row = first + lane / 4, vector = lane % 4;
    if (lane / 4 < GEMV_ROWS && vector < VECTORS && row < p.rows) {
        output[vector * ulong(p.rows) + row] = sum;
    }
}

// Stores the sums that are inside the result.
struct BoundedStore {
    device float* output;
    uint vectors;
    uint rows;
    ulong stride;

    void operator()(uint vector, uint row, float sum) const {
        if (vector < vectors && row < rows) {
            output[vector * stride + row] = sum;
        }
    }
};

// Up to 16 vectors. Grid: rows, 16 for every SIMD_SPLITS SIMD-groups.
kernel void ENTRY(quant_skinny)(device const uchar* weights, device const float* x, device float* output,
                                constant QuantMatmulArgs& p, BAND_ARGUMENT,
                                uint group [[threadgroup_position_in_grid]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint simd_group [[simdgroup_index_in_threadgroup]]) {
    if (BANDED) {
        group += band.origin.x;
    }
    threadgroup float partials[SKINNY_SIMD_GROUPS * SKINNY_SUMS];
    const uint row = (group * (SKINNY_SIMD_GROUPS / SIMD_SPLITS) + simd_group / SIMD_SPLITS) * 16;
    const QuantLane position(lane);
    QuantVectors vectors;
    vectors.from = x + p.offset;
    vectors.stride = p.cols;
    vectors.count = p.vectors;
    QuantSkinnySums sums;
    sums.clear();
    quant_skinny_rows<Q_FORMAT>(sums, weights, row, p.rows, vectors, p.cols, VECTOR_BLOCKS, simd_group % SIMD_SPLITS,
                                SIMD_SPLITS, position);
    sums.combine(partials, SIMD_SPLITS, lane, simd_group);
    if (simd_group % SIMD_SPLITS != 0) {
        return;
    }
    BoundedStore bounded_store;
    bounded_store.output = output + row;
    bounded_store.vectors = p.vectors;
    bounded_store.rows = row < p.rows ? p.rows - row : 0;
    bounded_store.stride = p.rows;
    sums.store(bounded_store, VECTOR_BLOCKS, position);
}

// Any number of vectors. Grid: tiles of vectors, which share weights in the cache, and of rows.
kernel void ENTRY(quant_tile)(device const uchar* weights, device const float* x, device float* output,
                              constant QuantMatmulArgs& p, BAND_ARGUMENT,
                              threadgroup float* shared [[threadgroup(0)]],
                              uint2 group [[threadgroup_position_in_grid]],
                              uint index [[thread_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]],
                              uint simd_group [[simdgroup_index_in_threadgroup]]) {
    if (BANDED) {
        group += band.origin.xy;
    }
    const uint vector = group.x * VECTOR_BLOCKS * 8, row = group.y * TILE_SIMD_GROUPS * 16, own = row + simd_group * 16;
    QuantVectors vectors;
    vectors.from = x + p.offset + vector * ulong(p.cols);
    vectors.stride = p.cols;
    vectors.count = p.vectors - vector;
    QuantTileSums sums;
    sums.clear();
    quant_multiply<Q_FORMAT>(sums, weights + row * Weights<Q_FORMAT>::row_bytes(p.cols), p.rows - row, vectors,
                             p.cols, shared, VECTOR_BLOCKS, TILE_SIMD_GROUPS, index);
    BoundedStore bounded_store;
    bounded_store.output = output + vector * ulong(p.rows) + own;
    bounded_store.vectors = p.vectors - vector;
    bounded_store.rows = own < p.rows ? p.rows - own : 0;
    bounded_store.stride = p.rows;
    sums.store(bounded_store, VECTOR_BLOCKS, lane);
}
