#include "types.h"
#include "band.h"
#include "quant_batch.h"
#include "host/QuantMatmulArgs.h"

// Products of vectors and quantised weights of the format Q_FORMAT: out[vector, row] = sum over k of x[vector, k]
// w[row, k].

// SIMD-groups of a threadgroup.
#define TEAM 4
// Vectors, and rows of the weights that a SIMD-group takes together; at most four of either.
FUNCTION_CONSTANT(uint, VECTORS);
FUNCTION_CONSTANT(uint, EACH);
// SIMD-groups that split the columns.
FUNCTION_CONSTANT(uint, ACROSS);
// The shape of a tile: quant_tile.h.
FUNCTION_CONSTANT(uint, EIGHTS);
FUNCTION_CONSTANT(uint, TILE_TEAM);

// GEMV: lanes stream the chunks of a row, and reuse those of the vectors for all rows. Grid: rows.
kernel void ENTRY(quant_few)(device const uchar* weights, device const float* x, device float* output,
                             constant QuantMatmulArgs& p, BAND_ARGUMENT,
                             uint group [[threadgroup_position_in_grid]],
                             uint lane [[thread_index_in_simdgroup]],
                             uint simd_group [[simdgroup_index_in_threadgroup]]) {
    if (BANDED) {
        group += band.origin.x;
    }
    threadgroup float parts[TEAM][16];
    const uint first = (group * (TEAM / ACROSS) + simd_group / ACROSS) * EACH;
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
    for (uint at = simd_group % ACROSS * 32 + lane; at < chunks; at += ACROSS * 32) {
        float4 known[4][4];
        UNROLL for (uint v = 0; v < 4; v++) {
            if (v < VECTORS) {
                device const float* from = x + p.offset + v * ulong(p.cols);
                UNROLL for (uint i = 0; i < 4; i++) {
                    known[v][i] = quant_four(from, at * CHUNK + 4 * i, p.cols);
                }
            }
        }
        UNROLL for (uint r = 0; r < 4; r++) {
            if (r < EACH) {
                float w[CHUNK];
                Weights<Q_FORMAT>::read(lines[r], at, p.cols, w);
                UNROLL for (uint v = 0; v < 4; v++) {
                    if (v < VECTORS) {
                        float sum = 0;
                        UNROLL for (uint i = 0; i < 4; i++) {
                            sum += dot(float4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]), known[v][i]);
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
            if (r < EACH && v < VECTORS) {
                const float all = simd_sum(sums[r][v]);
                sum = lane == r * 4 + v ? all : sum;
            }
        }
    }
    if (ACROSS > 1) {
        if (lane < 16) {
            parts[simd_group][lane] = sum;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (simd_group % ACROSS != 0) {
            return;
        }
        for (uint i = 1; i < ACROSS; i++) {
            sum += lane < 16 ? parts[simd_group + i][lane] : 0.0f;
        }
    }
    const uint row = first + lane / 4, vector = lane % 4;
    if (lane / 4 < EACH && vector < VECTORS && row < p.rows) {
        output[vector * ulong(p.rows) + row] = sum;
    }
}

// Stores the sums that are inside the result.
struct Inside {
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
kernel void ENTRY(quant_batch)(device const uchar* weights, device const float* x, device float* output,
                               constant QuantMatmulArgs& p, BAND_ARGUMENT,
                               uint group [[threadgroup_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simd_group [[simdgroup_index_in_threadgroup]]) {
    if (BANDED) {
        group += band.origin.x;
    }
    threadgroup float parts[BATCH_TEAM * BATCH_SUMS];
    const uint row = (group * (BATCH_TEAM / ACROSS) + simd_group / ACROSS) * 16;
    const QuantPlace place(lane);
    QuantVectors vectors;
    vectors.from = x + p.offset;
    vectors.stride = p.cols;
    vectors.count = p.vectors;
    QuantBatch sums;
    sums.clear();
    quant_batch_rows<Q_FORMAT>(sums, weights, row, p.rows, vectors, p.cols, EIGHTS, simd_group % ACROSS, ACROSS, place);
    sums.join(parts, ACROSS, lane, simd_group);
    if (simd_group % ACROSS != 0) {
        return;
    }
    Inside inside;
    inside.output = output + row;
    inside.vectors = p.vectors;
    inside.rows = row < p.rows ? p.rows - row : 0;
    inside.stride = p.rows;
    sums.put(inside, EIGHTS, place);
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
    const uint vector = group.x * EIGHTS * 8, row = group.y * TILE_TEAM * 16, own = row + simd_group * 16;
    QuantVectors vectors;
    vectors.from = x + p.offset + vector * ulong(p.cols);
    vectors.stride = p.cols;
    vectors.count = p.vectors - vector;
    QuantSums sums;
    sums.clear();
    quant_multiply<Q_FORMAT>(sums, weights + row * Weights<Q_FORMAT>::row_bytes(p.cols), p.rows - row, vectors,
                             p.cols, shared, EIGHTS, TILE_TEAM, index);
    Inside inside;
    inside.output = output + vector * ulong(p.rows) + own;
    inside.vectors = p.vectors - vector;
    inside.rows = own < p.rows ? p.rows - own : 0;
    inside.stride = p.rows;
    sums.put(inside, EIGHTS, lane);
}
