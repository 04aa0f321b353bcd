#include "decode.h"
#include "activation.h"
#include "erf.h"

// Norm, gate and up projections, biases, and the activation.

FUNCTION_CONSTANT(bool, GATED);
FUNCTION_CONSTANT(uint, ACTIVATION);

inline float bend(float x) {
    return ACTIVATION == 0 ? unary_silu(x) : ACTIVATION == 1 ? unary_gelu(x) : unary_gelu_tanh(x);
}

kernel void ENTRY(decode_ffn_gate_up)(device const float* x [[buffer(0)]],
                               device const float* added [[buffer(1), function_constant(POST)]],
                               device const float* post [[buffer(2), function_constant(POST)]],
                               device float* next [[buffer(3), function_constant(POST)]],
                               device const float* norm [[buffer(4)]],
                               device const uchar* gate [[buffer(5), function_constant(GATED)]],
                               device const uchar* up [[buffer(6)]],
                               device const float* bias [[buffer(7), function_constant(BIAS)]],
                               device float* inner [[buffer(8)]], constant GemvArgs& product [[buffer(9)]],
                               uint group [[threadgroup_position_in_grid]],
                               uint groups [[threadgroups_per_grid]],
                               uint index [[thread_index_in_threadgroup]],
                               uint threads [[threads_per_threadgroup]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simd_group [[simdgroup_index_in_threadgroup]],
                               uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup float shared[32];
    const Place place{group, index, threads, lane, simd_group, simd_groups};
    device const float* addend = x;
    device const float* post_weight = x;
    device float* complete = inner;
    if (POST) {
        addend = added;
        post_weight = post;
        complete = next;
    }
    const uint cols = product.cols;
    const float2 scales = norm_scales(x, addend, post_weight, complete, cols, product.eps, shared, place);
    const Normed vector{x, addend, post_weight, norm, scales.x};

    // Results that a lane group computes together: half of its rows are the gate's, if there is one.
    const uint count = GATED ? ROWS / 2 : ROWS;
    const Team own = team(group, simd_group, simd_groups, lane);
    const ulong stride = Weights<U_FORMAT>::row_bytes(cols);
    const ulong gate_stride = Weights<G_FORMAT>::row_bytes(cols);
    for (uint turn = 0; turn < product.repeats; turn++) {
        const uint first = (own.index + turn * teams(groups, simd_groups)) * count;
        device const uchar* rows[ROWS];
        float sums[ROWS];
        for (uint r = 0; r < ROWS; r++) {
            // Rows past the end repeat the last one.
            rows[r] = up + min(first + r % count, product.rows - 1) * stride;
        }
#if G_FORMAT == U_FORMAT
        if (GATED) {
            for (uint r = 0; r < count; r++) {
                rows[r] = gate + min(first + r, product.rows - 1) * gate_stride;
            }
        }
        row_products<U_FORMAT, ROWS>(rows, vector, cols, own.lane, sums);
#else
        for (uint r = 0; r < count; r++) {
            rows[r] = gate + min(first + r, product.rows - 1) * gate_stride;
        }
        row_products<G_FORMAT, ROWS / 2>(rows, vector, cols, own.lane, sums);
        row_products<U_FORMAT, ROWS / 2>(rows + ROWS / 2, vector, cols, own.lane, sums + ROWS / 2);
#endif
        for (uint r = 0; r < ROWS; r++) {
            sums[r] = team_sum(sums[r]) * scales.y;
        }
        for (uint r = 0; r < count; r++) {
            const uint row = first + r;
            if (own.lane != 0 || row >= product.rows) {
                break;
            }
            float result = sums[r];
            if (BIAS) {
                result += bias[row];
            }
            result = bend(result);
            if (GATED) {
                float factor = sums[r + ROWS / 2];
                if (BIAS) {
                    factor += bias[product.rows + row];
                }
                result *= factor;
            }
            inner[row] = result;
        }
    }
}
