#include "types.h"
#include "tile.h"

// Any size: a threadgroup has one tile of the result. Grid: tiles, splits, batches.
kernel void ENTRY(matmul_tile)(device const T* left, device const T* right, device const T* addend,
                               device const T* residual, device void* output, constant Problem& p,
                               uint3 group [[threadgroup_position_in_grid]],
                               uint3 groups [[threadgroups_per_grid]],
                               uint index [[thread_index_in_threadgroup]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simd_group [[simdgroup_index_in_threadgroup]]) {
    threadgroup T lefts[2][HALF];
    threadgroup T rights[2][HALF];
    const uint2 tile = tile_of(p, group.x) * TILE;
    const uint begin = group.y * p.share;
    const uint depth = min(p.share, p.depth - begin);
    device const T* from_left = left + start(p, p.left_steps, group.z) + tile.x * p.left.line + begin * p.left.step;
    device const T* from_right =
        right + start(p, p.right_steps, group.z) + tile.y * p.right.line + begin * p.right.step;
    const uint rows = p.rows - tile.x;
    const uint cols = p.cols - tile.y;
    const uint row = simd_group / 2 * (TILE / 2);
    const uint col = simd_group % 2 * (TILE / 2);

    Part a, b;
    Sums sums;
    sums.clear();
    a.read(from_left, p.left, LEFT_DEEP, LEFT_FOUR, rows, depth, index);
    b.read(from_right, p.right, RIGHT_DEEP, RIGHT_FOUR, cols, depth, index);
    a.write(lefts[0], LEFT_DEEP, index);
    b.write(rights[0], RIGHT_DEEP, index);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint half_in_use = 0;
    for (uint k = 0; k < depth; k += DEEP) {
        const uint next = k + DEEP;
        if (next < depth) {
            a.read(from_left + next * p.left.step, p.left, LEFT_DEEP, LEFT_FOUR, rows, depth - next, index);
            b.read(from_right + next * p.right.step, p.right, RIGHT_DEEP, RIGHT_FOUR, cols, depth - next, index);
        }
        sums.add(lefts[half_in_use], LEFT_DEEP, rights[half_in_use], RIGHT_DEEP, row, col);
        half_in_use = 1 - half_in_use;
        if (next < depth) {
            a.write(lefts[half_in_use], LEFT_DEEP, index);
            b.write(rights[half_in_use], RIGHT_DEEP, index);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    sums.put(p, tile.x + row, tile.y + col, group.z, group.y, groups.z, output, addend, residual, lane);
}
