#include "decode.h"

// Norm and logits. The position of the sequence advances here, as nothing later in the token reads it.

FUNCTION_CONSTANT(bool, CAP);

kernel void ENTRY(decode_head)(device const float* x [[buffer(0)]],
                               device const float* added [[buffer(1), function_constant(POST)]],
                               device const float* post [[buffer(2), function_constant(POST)]],
                               device float* next [[buffer(3), function_constant(POST)]],
                               device const float* norm [[buffer(4)]], device const uchar* matrix [[buffer(5)]],
                               device float* logits [[buffer(6)]], device DecodeState* state [[buffer(7)]],
                               constant GemvArgs& product [[buffer(8)]],
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
    device float* complete = logits;
    if (POST) {
        addend = added;
        post_weight = post;
        complete = next;
    }
    const float2 scales = norm_scales(x, addend, post_weight, complete, product.cols, product.eps, shared, place);
    const Normed vector{x, addend, post_weight, norm, scales.x};
    if (group == 0 && index == 0) {
        state->position += 1;
    }
    const Team own = team(group, simd_group, simd_groups, lane);
    const ulong stride = Weights<H_FORMAT>::row_bytes(product.cols);
    for (uint turn = 0; turn < product.repeats; turn++) {
        const uint first = (own.index + turn * teams(groups, simd_groups)) * ROWS;
        device const uchar* rows[ROWS];
        for (uint r = 0; r < ROWS; r++) {
            // Rows past the end repeat the last one.
            rows[r] = matrix + min(first + r, product.rows - 1) * stride;
        }
        float sums[ROWS];
        row_products<H_FORMAT, ROWS>(rows, vector, product.cols, own.lane, sums);
        for (uint r = 0; r < ROWS; r++) {
            const float sum = team_sum(sums[r]) * scales.y;
            if (own.lane == 0 && first + r < product.rows) {
                logits[first + r] = CAP ? product.cap * precise::tanh(sum / product.cap) : sum;
            }
        }
    }
}
