#include "types.h"
#include "threadgroup_reduce.h"
#include "host/PrefillNormArgs.h"

// RMS norms of rows, before each of the two blocks of a layer and before the output head. A pending block output is
// first normalised by its post-norm and added, and the row is written back.

FUNCTION_CONSTANT(bool, POST_NORM);
// Whether rows are gathered by index; then nothing is written back.
FUNCTION_CONSTANT(bool, GATHERED);
// Whether rows are updated in place, or only read.
FUNCTION_CONSTANT(bool, IN_PLACE);
FUNCTION_CONSTANT(bool, READ_ONLY);

// Scale of a row's norm, from this thread's part of the sum of squares.
inline float norm_scale(float squares, constant PrefillNormArgs& norm, threadgroup float* shared, uint lane,
                        uint simd_group, uint simd_groups) {
    const float all = group_reduce<Sum<float>>(squares, shared, lane, simd_group, simd_groups);
    return 1.0f / precise::sqrt(all / float(norm.width) + norm.eps);
}

// A threadgroup for each row of the result. A thread has the same elements in every pass.
kernel void ENTRY(prefill_norm)(device const float* input [[buffer(0), function_constant(READ_ONLY)]],
                                device float* residual [[buffer(1), function_constant(IN_PLACE)]],
                                device const float* weight [[buffer(2)]],
                                device const float* block_output [[buffer(3), function_constant(POST_NORM)]],
                                device const float* post_norm [[buffer(4), function_constant(POST_NORM)]],
                                device const uint* indices [[buffer(5), function_constant(GATHERED)]],
                                device float* output [[buffer(6)]], constant PrefillNormArgs& norm [[buffer(7)]],
                                uint group [[threadgroup_position_in_grid]],
                                uint index [[thread_index_in_threadgroup]],
                                uint threads [[threads_per_threadgroup]],
                                uint lane [[thread_index_in_simdgroup]],
                                uint simd_group [[simdgroup_index_in_threadgroup]],
                                uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup float shared[32];
    const ulong row = ulong(GATHERED ? indices[group] : group) * norm.width;
    device const float* x = IN_PLACE ? residual : input;
    device float* to = output + ulong(group) * norm.width;
    float squares = 0;
    if (POST_NORM) {
        for (uint i = index; i < norm.width; i += threads) {
            const float y = block_output[row + i];
            squares = fma(y, y, squares);
        }
        const float scale = norm_scale(squares, norm, shared, lane, simd_group, simd_groups);
        squares = 0;
        for (uint i = index; i < norm.width; i += threads) {
            const float y = x[row + i] + block_output[row + i] * scale * post_norm[i];
            if (IN_PLACE) {
                residual[row + i] = y;
            }
            to[i] = y;
            squares = fma(y, y, squares);
        }
    } else {
        for (uint i = index; i < norm.width; i += threads) {
            const float y = x[row + i];
            squares = fma(y, y, squares);
        }
    }
    const float scale = norm_scale(squares, norm, shared, lane, simd_group, simd_groups);
    for (uint i = index; i < norm.width; i += threads) {
        to[i] = (POST_NORM ? to[i] : x[row + i]) * scale * weight[i];
    }
}
