#include "types.h"
#include "quant_tile.h"
#include "activation.h"
#include "erf.h"

// The inside of a feed-forward part: `bend(gate x) * (up x)`, or `bend(up x)` where there is no gate. The formats are
// G_FORMAT and U_FORMAT. The struct is that of decoder/prefill.rs.

// The shape of a tile: quant_tile.h.
constant uint EIGHTS [[function_constant(0)]];
constant uint TEAM [[function_constant(1)]];
constant bool GATED [[function_constant(2)]];
constant bool BIAS [[function_constant(3)]];
// 0: silu; 1: gelu; 2: gelu by tanh.
constant uint BEND [[function_constant(4)]];

struct Feed {
    uint vectors;
    uint cols;
    uint rows;
};

inline float bend(float x) {
    switch (BEND) {
    case 0: return unary_silu(x);
    case 1: return unary_gelu(x);
    default: return unary_gelu_tanh(x);
    }
}

// Grid: tiles of vectors, and of rows. Biases are those of the gate, then of the other.
kernel void ENTRY(prefill_feed)(device const uchar* gate [[buffer(0), function_constant(GATED)]],
                                device const uchar* up [[buffer(1)]], device const float* x [[buffer(2)]],
                                device const float* bias [[buffer(3), function_constant(BIAS)]],
                                device float* output [[buffer(4)]], constant Feed& p [[buffer(5)]],
                                threadgroup float* shared [[threadgroup(0)]],
                                uint2 group [[threadgroup_position_in_grid]],
                                uint index [[thread_index_in_threadgroup]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint simd_group [[simdgroup_index_in_threadgroup]]) {
    const uint vector = group.x * EIGHTS * 8, row = group.y * TEAM * 16, own = row + simd_group * 16;
    QuantVectors vectors;
    vectors.from = x + vector * ulong(p.cols);
    vectors.stride = p.cols;
    vectors.count = p.vectors - vector;
    QuantSums gates, sums;
    if (GATED) {
        gates.clear();
        quant_multiply<G_FORMAT>(gates, gate + row * Weights<G_FORMAT>::row_bytes(p.cols), p.rows - row, vectors,
                                 p.cols, shared, EIGHTS, TEAM, index);
    }
    sums.clear();
    quant_multiply<U_FORMAT>(sums, up + row * Weights<U_FORMAT>::row_bytes(p.cols), p.rows - row, vectors, p.cols,
                             shared, EIGHTS, TEAM, index);
    // This lane has two neighbours of a line of each matrix.
    const uint v = vector + lane / 16 * 4 + lane / 2 % 4, r = own + lane / 8 % 2 * 4 + lane % 2 * 2;
    UNROLL for (uint j = 0; j < 8; j++) {
        if (j < EIGHTS) {
            UNROLL for (uint i = 0; i < 2; i++) {
                const float2 two = sums.of[j][i].thread_elements();
                UNROLL for (uint e = 0; e < 2; e++) {
                    const uint at = r + 8 * i + e;
                    if (v + 8 * j < p.vectors && at < p.rows) {
                        float y = two[e];
                        if (BIAS) {
                            y += bias[(GATED ? p.rows : 0) + at];
                        }
                        if (GATED) {
                            const float2 both = gates.of[j][i].thread_elements();
                            y *= bend(both[e] + (BIAS ? bias[at] : 0.0f));
                        } else {
                            y = bend(y);
                        }
                        output[(v + 8 * j) * ulong(p.rows) + at] = y;
                    }
                }
            }
        }
    }
}
