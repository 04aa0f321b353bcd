#include "decode_gemv.h"

// The product of a matrix with a vector, plus a bias and the residual.

FUNCTION_CONSTANT(bool, RESIDUAL);

kernel void ENTRY(decode_project)(device const float* from [[buffer(0)]], device const uchar* matrix [[buffer(1)]],
                                  device const float* bias [[buffer(2), function_constant(BIAS)]],
                                  device float* to [[buffer(3)]], constant GemvArgs& args [[buffer(4)]],
                                  uint group [[threadgroup_position_in_grid]],
                                  uint lane [[thread_index_in_simdgroup]],
                                  uint simd_group [[simdgroup_index_in_threadgroup]],
                                  uint simd_groups [[simdgroups_per_threadgroup]]) {
    const LaneGroup lanes = lane_group(group, simd_group, simd_groups, lane);
    const ulong stride = Weights<P_FORMAT>::row_bytes(args.cols);
    device const uchar* rows[ROWS];
    for (uint r = 0; r < ROWS; r++) {
        // Rows past the end repeat the last one.
        rows[r] = matrix + min(lanes.index * ROWS + r, args.rows - 1) * stride;
    }
    float sums[ROWS];
    row_products<P_FORMAT, ROWS>(rows, RawVector{from}, args.cols, lanes.lane, sums);
    for (uint r = 0; r < ROWS; r++) {
        const uint row = lanes.index * ROWS + r;
        float sum = lane_group_sum(sums[r]);
        if (lanes.lane == 0 && row < args.rows) {
            if (BIAS) {
                sum += bias[row];
            }
            to[row] = RESIDUAL ? to[row] + sum : sum;
        }
    }
}
