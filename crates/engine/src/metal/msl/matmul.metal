#include "types.h"
#include "matmul_tile.h"

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
    threadgroup vec<T, 4> shared[STAGE_LEN];
    const uint2 tile = tile_of(p, group.x) * TILE;
    const uint begin = group.y * p.split_depth;
    const uint depth = min(p.split_depth, p.depth - begin);
    const uint row = simd_group / 2 * (TILE / 2);
    const uint col = simd_group % 2 * (TILE / 2);
    device const T* left_tile =
        left + batch_offset(p, p.left_view, group.z) + tile.x * p.left.outer + begin * p.left.inner;
    device const T* right_tile =
        right + batch_offset(p, p.right_view, group.z) + tile.y * p.right.outer + begin * p.right.inner;
    StridedFactor lefts(left_tile, p.left, LEFT_K_MAJOR, LEFT_VECTOR, p.rows - tile.x, depth, index);
    StridedFactor rights(right_tile, p.right, RIGHT_K_MAJOR, RIGHT_VECTOR, p.cols - tile.y, depth, index);
    TileSums sums;
    sums.clear();
    multiply(sums, lefts, rights, depth, (threadgroup T*)shared, row, col, index);
    const MatmulOutput<T> result(p, output, addend, residual, group.y, group.z, groups.z);
    sums.store(p, result, tile.x + row, tile.y + col, lane);
}
