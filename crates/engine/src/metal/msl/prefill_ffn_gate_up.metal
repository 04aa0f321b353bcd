#include "types.h"
#include "quant_skinny.h"
#include "activation.h"
#include "erf.h"
#include "host/FfnArgs.h"

// Gate and up projections of the FFN: `activation(gate x) * (up x)`, or `activation(up x)` without a gate. The formats
// are G_FORMAT and U_FORMAT.

// The shape of a tile: quant_tile.h.
FUNCTION_CONSTANT(uint, VECTOR_BLOCKS);
FUNCTION_CONSTANT(uint, SIMD_GROUPS);
FUNCTION_CONSTANT(bool, GATED);
FUNCTION_CONSTANT(bool, BIAS);
// 0: silu; 1: gelu; 2: gelu by tanh.
FUNCTION_CONSTANT(uint, ACTIVATION);
// SIMD-groups that split the columns of a skinny matmul: quant_skinny.h.
FUNCTION_CONSTANT(uint, SIMD_SPLITS);

inline float activate(float x) {
    switch (ACTIVATION) {
    case 0: return unary_silu(x);
    case 1: return unary_gelu(x);
    default: return unary_gelu_tanh(x);
    }
}

// The result of the products with the gate and with the up matrix.
inline float gated(float gate, float y, device const float* bias, constant FfnArgs& p, uint row) {
    if (BIAS) {
        gate += bias[row];
        y += bias[p.rows + row];
    }
    return y * activate(gate);
}

// Up to 16 vectors. Grid: rows, 16 for every SIMD_SPLITS SIMD-groups, or 8 with their gates.
kernel void ENTRY(prefill_ffn_gate_up_skinny)(device const uchar* gate [[buffer(0), function_constant(GATED)]],
                                              device const uchar* up [[buffer(1)]], device const float* x [[buffer(2)]],
                                              device const float* bias [[buffer(3), function_constant(BIAS)]],
                                              device float* output [[buffer(4)]], constant FfnArgs& p [[buffer(5)]],
                                              uint group [[threadgroup_position_in_grid]],
                                              uint lane [[thread_index_in_simdgroup]],
                                              uint simd_group [[simdgroup_index_in_threadgroup]]) {
    threadgroup float partials[SKINNY_SIMD_GROUPS * SKINNY_SUMS];
    const uint tall = GATED ? 8 : 16, begin = simd_group % SIMD_SPLITS;
    const uint own = (group * (SKINNY_SIMD_GROUPS / SIMD_SPLITS) + simd_group / SIMD_SPLITS) * tall;
    const QuantLane position(lane);
    QuantVectors vectors;
    vectors.from = x;
    vectors.stride = p.cols;
    vectors.count = p.vectors;
    QuantSkinnySums sums;
    sums.clear();
    if (GATED) {
        const uint row = min(own + position.line, p.rows - 1);
        sums.add<G_FORMAT, U_FORMAT>(gate + row * Weights<G_FORMAT>::row_bytes(p.cols),
                                     up + row * Weights<U_FORMAT>::row_bytes(p.cols), vectors, p.cols, VECTOR_BLOCKS, begin,
                                     SIMD_SPLITS, position);
    } else {
        quant_skinny_rows<U_FORMAT>(sums, up, own, p.rows, vectors, p.cols, VECTOR_BLOCKS, begin, SIMD_SPLITS,
                                    position);
    }
    sums.combine(partials, SIMD_SPLITS, lane, simd_group);
    if (begin != 0) {
        return;
    }
    UNROLL for (uint i = 0; i < 2; i++) {
        UNROLL for (uint m = 0; m < 2; m++) {
            UNROLL for (uint e = 0; e < 2; e++) {
                const uint v = 8 * m + position.column + e, row = own + 8 * i + position.line;
                if (GATED) {
                    if (i == 0 && v < p.vectors && row < p.rows) {
                        output[v * ulong(p.rows) + row] = gated(sums.of[0][m].thread_elements()[e],
                                                                sums.of[1][m].thread_elements()[e], bias, p, row);
                    }
                } else if (v < p.vectors && row < p.rows) {
                    const float y = sums.of[i][m].thread_elements()[e];
                    output[v * ulong(p.rows) + row] = activate(y + (BIAS ? bias[row] : 0.0f));
                }
            }
        }
    }
}

// Grid: tiles of vectors, and of rows. Biases are those of the gate, then of `up`.
kernel void ENTRY(prefill_ffn_gate_up)(device const uchar* gate [[buffer(0), function_constant(GATED)]],
                                       device const uchar* up [[buffer(1)]], device const float* x [[buffer(2)]],
                                       device const float* bias [[buffer(3), function_constant(BIAS)]],
                                       device float* output [[buffer(4)]], constant FfnArgs& p [[buffer(5)]],
                                       threadgroup float* shared [[threadgroup(0)]],
                                       uint2 group [[threadgroup_position_in_grid]],
                                       uint index [[thread_index_in_threadgroup]],
                                       uint lane [[thread_index_in_simdgroup]],
                                       uint simd_group [[simdgroup_index_in_threadgroup]]) {
    const uint vector = group.x * VECTOR_BLOCKS * 8, row = group.y * SIMD_GROUPS * 16, own = row + simd_group * 16;
    QuantVectors vectors;
    vectors.from = x + vector * ulong(p.cols);
    vectors.stride = p.cols;
    vectors.count = p.vectors - vector;
    QuantTileSums gates, sums;
    if (GATED) {
        gates.clear();
        quant_multiply<G_FORMAT>(gates, gate + row * Weights<G_FORMAT>::row_bytes(p.cols), p.rows - row, vectors,
                                 p.cols, shared, VECTOR_BLOCKS, SIMD_GROUPS, index);
    }
    sums.clear();
    quant_multiply<U_FORMAT>(sums, up + row * Weights<U_FORMAT>::row_bytes(p.cols), p.rows - row, vectors, p.cols,
                             shared, VECTOR_BLOCKS, SIMD_GROUPS, index);
    // This lane has two neighbours of a line of each matrix.
    const uint v = vector + lane / 16 * 4 + lane / 2 % 4, r = own + lane / 8 % 2 * 4 + lane % 2 * 2;
    UNROLL for (uint j = 0; j < 8; j++) {
        if (j < VECTOR_BLOCKS) {
            UNROLL for (uint i = 0; i < 2; i++) {
                const float2 two = sums.of[j][i].thread_elements();
                UNROLL for (uint e = 0; e < 2; e++) {
                    const uint at = r + 8 * i + e;
                    if (v + 8 * j < p.vectors && at < p.rows) {
                        float y = 0;
                        if (GATED) {
                            const float2 both = gates.of[j][i].thread_elements();
                            y = gated(both[e], two[e], bias, p, at);
                        } else {
                            y = activate(two[e] + (BIAS ? bias[at] : 0.0f));
                        }
                        output[(v + 8 * j) * ulong(p.rows) + at] = y;
                    }
                }
            }
        }
    }
}
