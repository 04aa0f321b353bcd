#include "types.h"
#include "matmul.h"

// Skinny matmul, with 16 columns at most: the left factor, which is by far the larger, is read once. One column is
// GEMV.

// SIMD-groups of a threadgroup.
#define SIMD_GROUPS 8
// Maximum sums of a SIMD-group: ROWS * COLS of them.
#define MAX_SUMS 32

// K-major left factor: a SIMD-group spans the depth of ROWS rows at a time, and SIMD_SPLITS of them share it. Grid:
// rows, splits, batches.
kernel void ENTRY(matmul_skinny_k_major)(device const T* left, device const T* right, device const T* addend,
                                         device const T* residual, device void* output, constant MatmulArgs& p,
                                         BAND_ARGUMENT, uint3 group [[threadgroup_position_in_grid]],
                                         uint3 groups [[threadgroups_per_grid]],
                                         uint index [[thread_index_in_threadgroup]],
                                         uint lane [[thread_index_in_simdgroup]],
                                         uint simd_group [[simdgroup_index_in_threadgroup]]) {
    if (BANDED) {
        group += band.origin;
        groups = band.grid;
    }
    threadgroup float partials[SIMD_GROUPS][MAX_SUMS];
    const uint row_groups = SIMD_GROUPS / SIMD_SPLITS;
    const uint begin = group.y * p.split_depth;
    const uint depth = min(p.split_depth, p.depth - begin);
    const uint first = (group.x * row_groups + simd_group / SIMD_SPLITS) * ROWS;
    device const T* lines[4];
    for (uint r = 0; r < ROWS; r++) {
        // Rows past the end repeat the last one.
        const uint row = min(first + r, p.rows - 1);
        lines[r] = left + batch_offset(p, p.left_view, group.z) + row * p.left.outer + begin * p.left.inner;
    }
    device const T* vectors = right + batch_offset(p, p.right_view, group.z) + begin * p.right.inner;
    float sums[MAX_SUMS];
    for (uint i = 0; i < MAX_SUMS; i++) {
        sums[i] = 0;
    }
    for (uint k = (simd_group % SIMD_SPLITS * 32 + lane) * 4; k < depth; k += SIMD_SPLITS * 128) {
        float4 w[4];
        for (uint r = 0; r < ROWS; r++) {
            w[r] = float4(load_four(lines[r] + k * p.left.inner, p.left.inner, depth - k, LEFT_VECTOR));
        }
        for (uint c = 0; c < COLS; c++) {
            device const T* from = vectors + c * p.right.outer + k * p.right.inner;
            const float4 x = float4(load_four(from, p.right.inner, depth - k, RIGHT_K_MAJOR && RIGHT_VECTOR));
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
    if (SIMD_SPLITS > 1) {
        partials[simd_group][lane] = sum;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (simd_group % SIMD_SPLITS != 0) {
            return;
        }
        for (uint i = 1; i < SIMD_SPLITS; i++) {
            sum += partials[simd_group + i][lane];
        }
    }
    const uint2 at = uint2(first + lane / COLS, lane % COLS);
    if (lane < ROWS * COLS && at.x < p.rows) {
        const MatmulOutput<T> result(p, output, addend, residual, group.y, group.z, groups.z);
        result.store(p, sum, at);
    }
}

// Left factor contiguous along its rows: a SIMD-group has 128 of them, four a lane, and the SIMD-groups split the
// depth. Grid: rows, splits, batches.
kernel void ENTRY(matmul_skinny_m_major)(device const T* left, device const T* right, device const T* addend,
                                         device const T* residual, device void* output, constant MatmulArgs& p,
                                         BAND_ARGUMENT, uint3 group [[threadgroup_position_in_grid]],
                                         uint3 groups [[threadgroups_per_grid]],
                                         uint lane [[thread_index_in_simdgroup]],
                                         uint simd_group [[simdgroup_index_in_threadgroup]]) {
    if (BANDED) {
        group += band.origin;
        groups = band.grid;
    }
    threadgroup float4 partials[SIMD_GROUPS][32];
    const uint begin = group.y * p.split_depth;
    const uint depth = min(p.split_depth, p.depth - begin);
    const uint first = (group.x * 32 + lane) * 4;
    const uint rows = first < p.rows ? p.rows - first : 0;
    device const T* lines = left + batch_offset(p, p.left_view, group.z) + first * p.left.outer + begin * p.left.inner;
    device const T* vectors = right + batch_offset(p, p.right_view, group.z) + begin * p.right.inner;
    float4 sums[16];
    for (uint c = 0; c < 16; c++) {
        sums[c] = 0;
    }
    for (uint k = simd_group * 4; k < depth; k += SIMD_GROUPS * 4) {
        float4 w[4];
        for (uint e = 0; e < 4; e++) {
            const uint left_rows = k + e < depth ? rows : 0;
            w[e] = float4(load_four(lines + (k + e) * p.left.inner, p.left.outer, left_rows, LEFT_VECTOR));
        }
        for (uint c = 0; c < COLS; c++) {
            device const T* from = vectors + c * p.right.outer + k * p.right.inner;
            const float4 x = float4(load_four(from, p.right.inner, depth - k, RIGHT_K_MAJOR && RIGHT_VECTOR));
            for (uint e = 0; e < 4; e++) {
                sums[c] = fma(w[e], float4(x[e]), sums[c]);
            }
        }
    }
    const MatmulOutput<T> result(p, output, addend, residual, group.y, group.z, groups.z);
    for (uint c = 0; c < COLS; c++) {
        partials[simd_group][lane] = sums[c];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        // One SIMD-group per column adds up, in order.
        if (simd_group == c % SIMD_GROUPS) {
            float4 sum = partials[0][lane];
            for (uint i = 1; i < SIMD_GROUPS; i++) {
                sum += partials[i][lane];
            }
            for (uint e = 0; e < 4; e++) {
                if (e < rows) {
                    result.store(p, sum[e], uint2(first + e, c));
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

// Adds up the partial sums of a split-K matmul, in order. Grid: elements of the result.
kernel void ENTRY(matmul_split_k_reduce)(device const float* partials, device const T* addend, device const T* residual,
                                         device T* output, constant MatmulArgs& p, uint at [[thread_position_in_grid]],
                                         uint count [[threads_per_grid]]) {
    float sum = 0;
    for (uint split = 0; split * ulong(p.split_depth) < p.depth; split++) {
        sum += partials[ulong(split) * count + at];
    }
    const uint size = p.rows * p.cols;
    const uint batch = at / size;
    const uint rest = at % size;
    // The rows of the result are either the rows or the columns of the problem.
    const uint2 element = p.out.inner == 1 ? uint2(rest / p.cols, rest % p.cols) : uint2(rest % p.rows, rest / p.rows);
    output[at] = T(apply_epilogue(p, sum, element, batch_of(p, p.addend_view, batch, addend, ADDEND),
                          batch_of(p, p.residual_view, batch, residual, RESIDUAL)));
}
