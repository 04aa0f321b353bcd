#include "types.h"
#include "product.h"

// Skinny matmul, with 16 columns at most: the left factor, which is by far the larger, is read once. One column is
// GEMV.

// SIMD-groups of a threadgroup.
#define TEAM 8
// Maximum sums of a SIMD-group: ROWS * COLS of them.
#define MOST 32

// K-major left factor: a SIMD-group spans the depth of ROWS rows at a time, and SIMD_SPLITS of them share it. Grid:
// rows, splits, batches.
kernel void ENTRY(matmul_deep)(device const T* left, device const T* right, device const T* addend,
                               device const T* residual, device void* output, constant MatmulArgs& p, BAND_ARGUMENT,
                               uint3 group [[threadgroup_position_in_grid]],
                               uint3 groups [[threadgroups_per_grid]],
                               uint index [[thread_index_in_threadgroup]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simd_group [[simdgroup_index_in_threadgroup]]) {
    if (BANDED) {
        group += band.origin;
        groups = band.grid;
    }
    threadgroup float parts[TEAM][MOST];
    const uint teams = TEAM / ACROSS;
    const uint begin = group.y * p.share;
    const uint depth = min(p.share, p.depth - begin);
    const uint first = (group.x * teams + simd_group / ACROSS) * ROWS;
    device const T* lines[4];
    for (uint r = 0; r < ROWS; r++) {
        // Rows past the end repeat the last one.
        const uint row = min(first + r, p.rows - 1);
        lines[r] = left + start(p, p.left_steps, group.z) + row * p.left.line + begin * p.left.step;
    }
    device const T* vectors = right + start(p, p.right_steps, group.z) + begin * p.right.step;
    float sums[MOST];
    for (uint i = 0; i < MOST; i++) {
        sums[i] = 0;
    }
    for (uint k = (simd_group % ACROSS * 32 + lane) * 4; k < depth; k += ACROSS * 128) {
        float4 w[4];
        for (uint r = 0; r < ROWS; r++) {
            w[r] = float4(fetch(lines[r] + k * p.left.step, p.left.step, depth - k, LEFT_FOUR));
        }
        for (uint c = 0; c < COLS; c++) {
            device const T* from = vectors + c * p.right.line + k * p.right.step;
            const float4 x = float4(fetch(from, p.right.step, depth - k, RIGHT_DEEP && RIGHT_FOUR));
            for (uint r = 0; r < ROWS; r++) {
                sums[r * COLS + c] += dot(w[r], x);
            }
        }
    }
    // Lane i gets sum i.
    float sum = 0;
    for (uint i = 0; i < ROWS * COLS; i++) {
        const float all = simd_sum(sums[i]);
        sum = lane == i ? all : sum;
    }
    if (ACROSS > 1) {
        parts[simd_group][lane] = sum;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (simd_group % ACROSS != 0) {
            return;
        }
        for (uint i = 1; i < ACROSS; i++) {
            sum += parts[simd_group + i][lane];
        }
    }
    const uint2 at = uint2(first + lane / COLS, lane % COLS);
    if (lane < ROWS * COLS && at.x < p.rows) {
        const Goal<T> goal(p, output, addend, residual, group.y, group.z, groups.z);
        goal.store(p, sum, at);
    }
}

// Left factor contiguous along its rows: a SIMD-group has 128 of them, four a lane, and the SIMD-groups split the
// depth. Grid: rows, splits, batches.
kernel void ENTRY(matmul_wide)(device const T* left, device const T* right, device const T* addend,
                               device const T* residual, device void* output, constant MatmulArgs& p, BAND_ARGUMENT,
                               uint3 group [[threadgroup_position_in_grid]],
                               uint3 groups [[threadgroups_per_grid]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simd_group [[simdgroup_index_in_threadgroup]]) {
    if (BANDED) {
        group += band.origin;
        groups = band.grid;
    }
    threadgroup float4 parts[TEAM][32];
    const uint begin = group.y * p.share;
    const uint depth = min(p.share, p.depth - begin);
    const uint first = (group.x * 32 + lane) * 4;
    const uint rows = first < p.rows ? p.rows - first : 0;
    device const T* lines = left + start(p, p.left_steps, group.z) + first * p.left.line + begin * p.left.step;
    device const T* vectors = right + start(p, p.right_steps, group.z) + begin * p.right.step;
    float4 sums[16];
    for (uint c = 0; c < 16; c++) {
        sums[c] = 0;
    }
    for (uint k = simd_group * 4; k < depth; k += TEAM * 4) {
        float4 w[4];
        for (uint e = 0; e < 4; e++) {
            const uint some = k + e < depth ? rows : 0;
            w[e] = float4(fetch(lines + (k + e) * p.left.step, p.left.line, some, LEFT_FOUR));
        }
        for (uint c = 0; c < COLS; c++) {
            device const T* from = vectors + c * p.right.line + k * p.right.step;
            const float4 x = float4(fetch(from, p.right.step, depth - k, RIGHT_DEEP && RIGHT_FOUR));
            for (uint e = 0; e < 4; e++) {
                sums[c] = fma(w[e], float4(x[e]), sums[c]);
            }
        }
    }
    const Goal<T> goal(p, output, addend, residual, group.y, group.z, groups.z);
    for (uint c = 0; c < COLS; c++) {
        parts[simd_group][lane] = sums[c];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        // One SIMD-group per column adds up, in order.
        if (simd_group == c % TEAM) {
            float4 sum = parts[0][lane];
            for (uint i = 1; i < TEAM; i++) {
                sum += parts[i][lane];
            }
            for (uint e = 0; e < 4; e++) {
                if (e < rows) {
                    goal.store(p, sum[e], uint2(first + e, c));
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

// Adds up the partial sums of a split-K matmul, in order. Grid: elements of the result.
kernel void ENTRY(matmul_join)(device const float* parts, device const T* addend, device const T* residual,
                               device T* output, constant MatmulArgs& p, uint at [[thread_position_in_grid]],
                               uint count [[threads_per_grid]]) {
    float sum = 0;
    for (uint split = 0; split * ulong(p.share) < p.depth; split++) {
        sum += parts[ulong(split) * count + at];
    }
    const uint size = p.rows * p.cols;
    const uint batch = at / size;
    const uint rest = at % size;
    // The rows of the result are either the rows or the columns of the problem.
    const uint2 place = p.out.step == 1 ? uint2(rest / p.cols, rest % p.cols) : uint2(rest % p.rows, rest / p.rows);
    output[at] = T(finish(p, sum, place, of_batch(p, p.addend_steps, batch, addend, ADDEND),
                          of_batch(p, p.residual_steps, batch, residual, RESIDUAL)));
}
