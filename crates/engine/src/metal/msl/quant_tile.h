#include "quant.h"

// A tile of the product of vectors and weights, `out[vector, row]`, by SIMD-group matrices: up to 64 vectors, and 16
// rows of the weights for each of up to four SIMD-groups. Weights are dequantised on the way to threadgroup memory, so
// that each is read and dequantised once for all vectors of the tile.
//
// Double buffering: while one slice of the depth is multiplied, the next is loaded to registers.
//
// `vector_blocks` (1, 2, 4 or 8, and at most twice `simd_groups`) is the number of blocks of eight vectors of a tile;
// it and `simd_groups` are function constants, or numbers that the compiler knows. The threadgroup has 32 `simd_groups`
// threads and (8 `vector_blocks` + 16 `simd_groups`) QUANT_PITCH floats of threadgroup memory.

// Depth of a slice, and pitch of lines in threadgroup memory, which keeps neighbours in a column in different banks.
#define QUANT_TILE_DEPTH 32
#define QUANT_PITCH (QUANT_TILE_DEPTH + 4)

// The sums of a SIMD-group: eight vectors by 8 rows each.
struct QuantTileSums {
    simdgroup_float8x8 of[8][2];

    void clear() {
        UNROLL for (uint j = 0; j < 8; j++) {
            UNROLL for (uint i = 0; i < 2; i++) {
                of[j][i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
            }
        }
    }

    // Adds the product of the slices in threadgroup memory; the weights from the first row of this SIMD-group on.
    void add(threadgroup const float* vectors, threadgroup const float* weights, uint vector_blocks) {
        for (uint k = 0; k < QUANT_TILE_DEPTH; k += 8) {
            simdgroup_float8x8 w[2];
            UNROLL for (uint i = 0; i < 2; i++) {
                simdgroup_load(w[i], weights + 8 * i * QUANT_PITCH + k, QUANT_PITCH, ulong2(0, 0), true);
            }
            UNROLL for (uint j = 0; j < 8; j++) {
                if (j < vector_blocks) {
                    simdgroup_float8x8 x;
                    simdgroup_load(x, vectors + 8 * j * QUANT_PITCH + k, QUANT_PITCH);
                    UNROLL for (uint i = 0; i < 2; i++) {
                        simdgroup_multiply_accumulate(of[j][i], x, w[i], of[j][i]);
                    }
                }
            }
        }
    }

    // Passes every sum of the tile to `store(vector, row, sum)`, counted from the first vector of the tile and the
    // first row of this SIMD-group. This lane has two neighbours of a line of each matrix.
    template <typename Store> void store(Store store, uint vector_blocks, uint lane) {
        const uint vector = lane / 16 * 4 + lane / 2 % 4;
        const uint row = lane / 8 % 2 * 4 + lane % 2 * 2;
        UNROLL for (uint j = 0; j < 8; j++) {
            if (j < vector_blocks) {
                UNROLL for (uint i = 0; i < 2; i++) {
                    const float2 two = of[j][i].thread_elements();
                    store(vector + 8 * j, row + 8 * i, two.x);
                    store(vector + 8 * j, row + 8 * i + 1, two.y);
                }
            }
        }
    }
};

// Vectors, `stride` floats apart: the first of a tile, and how many there are from it on.
struct QuantVectors {
    device const float* from;
    ulong stride;
    uint count;
};

// Four elements of a vector, zeros past its end.
inline float4 quant_four(device const float* vector, uint at, uint cols) {
    if (at + 4 <= cols) {
        return float4(*(device const packed_float4*)(vector + at));
    }
    float4 four = 0;
    for (uint i = 0; i < 4; i++) {
        four[i] = at + i < cols ? vector[at + i] : 0.0f;
    }
    return four;
}

// The elements of a slice that a thread loads: a chunk of a row of the weights, and some of the vectors.
template <int FORMAT> struct QuantSlice {
    float chunk[CHUNK];
    float4 fours[4];

    // `line` is the row of the weights that this thread loads.
    void load(device const uchar* line, thread const QuantVectors& x, uint k, uint cols, uint vector_blocks,
              uint simd_groups, uint index) {
        Weights<FORMAT>::read(line, k / CHUNK + index % 2, cols, chunk);
        UNROLL for (uint e = 0; e < 4; e++) {
            const uint at = index + e * 32 * simd_groups;
            if (at < vector_blocks * 64) {
                const uint vector = at / 8;
                fours[e] = vector < x.count ? quant_four(x.from + vector * x.stride, k + at % 8 * 4, cols) : float4(0);
            }
        }
    }

    void store(threadgroup float* vectors, threadgroup float* weights, uint vector_blocks, uint simd_groups,
               uint index) const {
        threadgroup float4* to = (threadgroup float4*)(weights + index / 2 * QUANT_PITCH + index % 2 * CHUNK);
        UNROLL for (uint i = 0; i < 4; i++) {
            to[i] = float4(chunk[4 * i], chunk[4 * i + 1], chunk[4 * i + 2], chunk[4 * i + 3]);
        }
        UNROLL for (uint e = 0; e < 4; e++) {
            const uint at = index + e * 32 * simd_groups;
            if (at < vector_blocks * 64) {
                *(threadgroup float4*)(vectors + at / 8 * QUANT_PITCH + at % 8 * 4) = fours[e];
            }
        }
    }
};

// Adds the product of vectors and `rows` rows of weights, from the first ones of the tile on.
template <int FORMAT>
inline void quant_multiply(thread QuantTileSums& sums, device const uchar* weights, uint rows, QuantVectors x,
                           uint cols, threadgroup float* shared, uint vector_blocks, uint simd_groups, uint index) {
    threadgroup float* lines = shared + 8 * vector_blocks * QUANT_PITCH;
    // Rows past the end repeat the last one.
    device const uchar* line = weights + min(index / 2, rows - 1) * Weights<FORMAT>::row_bytes(cols);
    QuantSlice<FORMAT> slice;
    slice.load(line, x, 0, cols, vector_blocks, simd_groups, index);
    for (uint k = 0; k < cols; k += QUANT_TILE_DEPTH) {
        slice.store(shared, lines, vector_blocks, simd_groups, index);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (k + QUANT_TILE_DEPTH < cols) {
            slice.load(line, x, k + QUANT_TILE_DEPTH, cols, vector_blocks, simd_groups, index);
        }
        sums.add(shared, lines + index / 32 * 16 * QUANT_PITCH, vector_blocks);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}
