#include "decode_gemv.h"
#include "activation.h"
#include "erf.h"

// Norm, gate and up projections, biases, and the activation.

FUNCTION_CONSTANT(bool, GATED);
FUNCTION_CONSTANT(uint, ACTIVATION);

inline float activate(float x) {
    return ACTIVATION == 0 ? unary_silu(x) : ACTIVATION == 1 ? unary_gelu(x) : unary_gelu_tanh(x);
}

kernel void ENTRY(decode_ffn_gate_up)(device const float* x [[buffer(0)]],
                                      device const float* block_output [[buffer(1), function_constant(POST_NORM)]],
                                      device const float* post_norm [[buffer(2), function_constant(POST_NORM)]],
                                      device float* next [[buffer(3), function_constant(POST_NORM)]],
                                      device const float* norm [[buffer(4)]],
                                      device const uchar* gate [[buffer(5), function_constant(GATED)]],
                                      device const uchar* up [[buffer(6)]],
                                      device const float* bias [[buffer(7), function_constant(BIAS)]],
                                      device float* hidden [[buffer(8)]], constant GemvArgs& args [[buffer(9)]],
                                      uint group [[threadgroup_position_in_grid]],
                                      uint groups [[threadgroups_per_grid]],
                                      uint index [[thread_index_in_threadgroup]],
                                      uint threads [[threads_per_threadgroup]],
                                      uint lane [[thread_index_in_simdgroup]],
                                      uint simd_group [[simdgroup_index_in_threadgroup]],
                                      uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup float shared[32];
    const ThreadPosition thread_position{group, index, threads, lane, simd_group, simd_groups};
    device const float* block = x;
    device const float* post_weight = x;
    device float* next_residual = hidden;
    if (POST_NORM) {
        block = block_output;
        post_weight = post_norm;
        next_residual = next;
    }
    const uint cols = args.cols;
    const float2 scales = norm_scales(x, block, post_weight, next_residual, cols, args.eps, shared, thread_position);
    const NormedVector vector{x, block, post_weight, norm, scales.x};

    // Results that a lane group computes together: half of its rows are the gate's, if there is one.
    const uint count = GATED ? ROWS / 2 : ROWS;
    const LaneGroup lanes = lane_group(group, simd_group, simd_groups, lane);
    const ulong stride = Weights<U_FORMAT>::row_bytes(cols);
    const ulong gate_stride = Weights<G_FORMAT>::row_bytes(cols);
    for (uint pass = 0; pass < args.repeats; pass++) {
        const uint first = (lanes.index + pass * lane_groups(groups, simd_groups)) * count;
        device const uchar* rows[ROWS];
        float sums[ROWS];
        for (uint r = 0; r < ROWS; r++) {
            // Rows past the end repeat the last one.
            rows[r] = up + min(first + r % count, args.rows - 1) * stride;
        }
#if G_FORMAT == U_FORMAT
        if (GATED) {
            for (uint r = 0; r < count; r++) {
                rows[r] = gate + min(first + r, args.rows - 1) * gate_stride;
            }
        }
        row_products<U_FORMAT, ROWS>(rows, vector, cols, lanes.lane, sums);
#else
        for (uint r = 0; r < count; r++) {
            rows[r] = gate + min(first + r, args.rows - 1) * gate_stride;
        }
        row_products<G_FORMAT, ROWS / 2>(rows, vector, cols, lanes.lane, sums);
        row_products<U_FORMAT, ROWS / 2>(rows + ROWS / 2, vector, cols, lanes.lane, sums + ROWS / 2);
#endif
        for (uint r = 0; r < ROWS; r++) {
            sums[r] = lane_group_sum(sums[r]) * scales.y;
        }
        for (uint r = 0; r < count; r++) {
            const uint row = first + r;
            if (lanes.lane != 0 || row >= args.rows) {
                break;
            }
            float result = sums[r];
            if (BIAS) {
                result += bias[row];
            }
            result = activate(result);
            if (GATED) {
                float factor = sums[r + ROWS / 2];
                if (BIAS) {
                    factor += bias[args.rows + row];
                }
                result *= factor;
            }
            hidden[row] = result;
        }
    }
}
