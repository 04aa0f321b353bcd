#include "quant_tile.h"

// Products of up to 16 vectors and weights, `out[row, vector]`: a SIMD-group has 16 rows. Every lane dequantises the
// weights of its elements of SIMD-group matrices, so that each is read and dequantised once for all vectors, without
// threadgroup memory or barriers.
//
// A step is 64 of the depth. Slot `k` of the eight products that a matrix adds up stands for 8 neighbours of them, one
// in each of eight matrices: a lane, which has slots 2 p and 2 p + 1 of a row, has chunk p of it, and its elements of
// the vectors are neighbours, too.
//
// Sums do not depend on the number of vectors.

// SIMD-groups of a threadgroup, and floats of a tile.
#define SKINNY_SIMD_GROUPS 4
#define SKINNY_SUMS 256

// Elements of a lane in a SIMD-group matrix: a line, and the first of two neighbours in it.
struct QuantLane {
    uint line;
    uint column;

    QuantLane(uint lane) : line(lane / 16 * 4 + lane / 2 % 4), column(lane / 8 % 2 * 4 + lane % 2 * 2) {}
};

struct QuantSkinnySums {
    // Eight rows by eight vectors each.
    simdgroup_float8x8 of[2][2];

    void clear() {
        UNROLL for (uint i = 0; i < 2; i++) {
            UNROLL for (uint m = 0; m < 2; m++) {
                of[i][m] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
            }
        }
    }

    // Adds products with `8 vector_blocks` vectors. `first` and `second` are this lane's row of the upper and of the
    // lower eight. Steps begin with `begin`, and every `stride`-th is taken.
    template <int FIRST, int SECOND>
    void add(device const uchar* first, device const uchar* second, QuantVectors x, uint cols, uint vector_blocks,
             uint begin, uint stride, QuantLane position) {
        const uint chunks = (cols + CHUNK - 1) / CHUNK;
        for (uint step = begin; step * 4 < chunks; step += stride) {
            const uint at = step * 4 + position.column / 2, depth = step * 64 + position.line * 8;
            float w[2][CHUNK];
            if (at < chunks) {
                Weights<FIRST>::read(first, at, cols, w[0]);
                Weights<SECOND>::read(second, at, cols, w[1]);
            } else {
                UNROLL for (uint i = 0; i < CHUNK; i++) {
                    w[0][i] = 0;
                    w[1][i] = 0;
                }
            }
            // Eight neighbours of two vectors of each block.
            float4 x_values[2][2][2];
            UNROLL for (uint m = 0; m < 2; m++) {
                UNROLL for (uint u = 0; u < 2; u++) {
                    const uint vector = 8 * m + position.column + u;
                    const bool exists = m < vector_blocks && vector < x.count;
                    UNROLL for (uint h = 0; h < 2; h++) {
                        x_values[m][u][h] =
                            exists ? quant_four(x.from + vector * x.stride, depth + 4 * h, cols) : float4(0);
                    }
                }
            }
            UNROLL for (uint j = 0; j < 8; j++) {
                simdgroup_float8x8 weights[2];
                UNROLL for (uint i = 0; i < 2; i++) {
                    weights[i].thread_elements()[0] = w[i][j];
                    weights[i].thread_elements()[1] = w[i][8 + j];
                }
                UNROLL for (uint m = 0; m < 2; m++) {
                    if (m < vector_blocks) {
                        simdgroup_float8x8 vectors;
                        vectors.thread_elements()[0] = x_values[m][0][j / 4][j % 4];
                        vectors.thread_elements()[1] = x_values[m][1][j / 4][j % 4];
                        UNROLL for (uint i = 0; i < 2; i++) {
                            simdgroup_multiply_accumulate(of[i][m], weights[i], vectors, of[i][m]);
                        }
                    }
                }
            }
        }
    }

    // Adds up the sums of `splits` SIMD-groups, always in the same order; the first of them has the result. `partials`
    // has space for SKINNY_SUMS of each.
    void combine(threadgroup float* partials, uint splits, uint lane, uint simd_group) {
        if (splits == 1) {
            return;
        }
        UNROLL for (uint i = 0; i < 2; i++) {
            UNROLL for (uint m = 0; m < 2; m++) {
                UNROLL for (uint e = 0; e < 2; e++) {
                    const uint at = (i * 4 + m * 2 + e) * 32 + lane;
                    partials[simd_group * SKINNY_SUMS + at] = of[i][m].thread_elements()[e];
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (simd_group % splits != 0) {
            return;
        }
        UNROLL for (uint i = 0; i < 2; i++) {
            UNROLL for (uint m = 0; m < 2; m++) {
                UNROLL for (uint e = 0; e < 2; e++) {
                    const uint at = (i * 4 + m * 2 + e) * 32 + lane;
                    float sum = of[i][m].thread_elements()[e];
                    for (uint other = 1; other < splits; other++) {
                        sum += partials[(simd_group + other) * SKINNY_SUMS + at];
                    }
                    of[i][m].thread_elements()[e] = sum;
                }
            }
        }
    }

    // Passes every sum to `store(vector, row, sum)`, counted from the first row of this SIMD-group.
    template <typename Store> void store(Store store, uint vector_blocks, QuantLane position) {
        UNROLL for (uint i = 0; i < 2; i++) {
            UNROLL for (uint m = 0; m < 2; m++) {
                if (m < vector_blocks) {
                    UNROLL for (uint e = 0; e < 2; e++) {
                        store(8 * m + position.column + e, 8 * i + position.line, of[i][m].thread_elements()[e]);
                    }
                }
            }
        }
    }
};

// Adds products with 16 rows from `row` on, of `rows`; rows past the end repeat the last one.
template <int FORMAT>
inline void quant_skinny_rows(thread QuantSkinnySums& sums, device const uchar* weights, uint row, uint rows,
                              QuantVectors x,
                              uint cols, uint vector_blocks, uint begin, uint stride, QuantLane position) {
    const ulong bytes = Weights<FORMAT>::row_bytes(cols);
    device const uchar* first = weights + min(row + position.line, rows - 1) * bytes;
    device const uchar* second = weights + min(row + 8 + position.line, rows - 1) * bytes;
    sums.template add<FORMAT, FORMAT>(first, second, x, cols, vector_blocks, begin, stride, position);
}
