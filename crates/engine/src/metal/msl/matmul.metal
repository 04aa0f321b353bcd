#include "types.h"
#include "tile.h"

// Any size: a threadgroup computes one tile of the result. Grid: tiles, splits, batches.
kernel void ENTRY(matmul_tile)(device const T* left, device const T* right, device const T* addend,
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
    threadgroup vec<T, 4> shared[HALF];
    const uint2 tile = tile_of(p, group.x) * TILE;
    const uint begin = group.y * p.share;
    const uint depth = min(p.share, p.depth - begin);
    const uint row = simd_group / 2 * (TILE / 2);
    const uint col = simd_group % 2 * (TILE / 2);
    Lines lefts(left + start(p, p.left_steps, group.z) + tile.x * p.left.line + begin * p.left.step, p.left,
                LEFT_DEEP, LEFT_FOUR, p.rows - tile.x, depth, index);
    Lines rights(right + start(p, p.right_steps, group.z) + tile.y * p.right.line + begin * p.right.step, p.right,
                 RIGHT_DEEP, RIGHT_FOUR, p.cols - tile.y, depth, index);
    Sums sums;
    sums.clear();
    multiply(sums, lefts, rights, depth, (threadgroup T*)shared, row, col, index);
    const Goal<T> goal(p, output, addend, residual, group.y, group.z, groups.z);
    sums.put(p, goal, tile.x + row, tile.y + col, lane);
}
