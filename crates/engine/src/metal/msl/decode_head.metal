#include "decode_gemv.h"

// Norm and logits. The position of the sequence advances here, as nothing later in the token reads it.

FUNCTION_CONSTANT(bool, CAP);

kernel void ENTRY(decode_head)(device const float* x [[buffer(0)]],
                               device const float* block_output [[buffer(1), function_constant(POST_NORM)]],
                               device const float* post_norm [[buffer(2), function_constant(POST_NORM)]],
                               device float* next [[buffer(3), function_constant(POST_NORM)]],
                               device const float* norm [[buffer(4)]], device const uchar* matrix [[buffer(5)]],
                               device float* logits [[buffer(6)]], device DecodeState* state [[buffer(7)]],
                               constant GemvArgs& args [[buffer(8)]],
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
    device float* next_residual = logits;
    if (POST_NORM) {
        block = block_output;
        post_weight = post_norm;
        next_residual = next;
    }
    const float2 scales = norm_scales(x, block, post_weight, next_residual, args.cols, args.eps, shared,
                                      thread_position);
    const NormedVector vector{x, block, post_weight, norm, scales.x};
    if (group == 0 && index == 0) {
        state->position += 1;
    }
    const LaneGroup lanes = lane_group(group, simd_group, simd_groups, lane);
    const ulong stride = Weights<H_FORMAT>::row_bytes(args.cols);
    for (uint pass = 0; pass < args.repeats; pass++) {
        const uint first = (lanes.index + pass * lane_groups(groups, simd_groups)) * ROWS;
        device const uchar* rows[ROWS];
        for (uint r = 0; r < ROWS; r++) {
            // Rows past the end repeat the last one.
            rows[r] = matrix + min(first + r, args.rows - 1) * stride;
        }
        float sums[ROWS];
        row_products<H_FORMAT, ROWS>(rows, vector, args.cols, lanes.lane, sums);
        for (uint r = 0; r < ROWS; r++) {
            const float sum = lane_group_sum(sums[r]) * scales.y;
            if (lanes.lane == 0 && first + r < args.rows) {
                logits[first + r] = CAP ? args.cap * precise::tanh(sum / args.cap) : sum;
            }
        }
    }
}
