#include "types.h"
#include "matmul_tile.h"
#include "conv_windows.h"

// The windows of an image as the factor of a matmul, never written out (implicit GEMM): a line for each window
// position, the depth being channels and taps.
struct ConvWindowFactor {
    device const T* from;
    constant ConvWindows* windows;
    // Origins of the four windows of this thread, and how many of them exist.
    int2 origins[4];
    uint left;
    uint depth;
    // Its line in each slice.
    uint line;
    // Always false: neighbours are window positions side by side.
    bool k_major;

    // `col` is the first window position of the tile, of `positions` in all.
    ConvWindowFactor(device const T* image, constant ConvWindows& w, uint all, uint col, uint positions, uint index) {
        from = image;
        windows = &w;
        depth = all;
        k_major = false;
        line = index / TileSlice::width(false);
        const uint first = col + index % TileSlice::width(false) * 4;
        left = positions > first ? min(positions - first, 4u) : 0;
        for (uint e = 0; e < 4; e++) {
            const uint at = first + e;
            origins[e] = int2(int(at / w.output_width * w.stride_height) - int(w.padding_height),
                             int(at % w.output_width * w.stride_width) - int(w.padding_width));
        }
    }

    void load(thread TileSlice& slice, uint k) {
        constant ConvWindows& w = *windows;
        const uint taps = w.taps_height * w.taps_width;
        for (uint v = 0; v < VECTORS_PER_THREAD; v++) {
            const uint at = k + line + v * TileSlice::lines(false);
            const uint tap = at % taps;
            const int2 reach = int2(tap / w.taps_width * w.dilation_height, tap % w.taps_width * w.dilation_width);
            device const T* plane = from + at / taps * w.channel;
            for (uint e = 0; e < 4; e++) {
                const int2 to = origins[e] + reach;
                const bool inside = at < depth && e < left && to.x >= 0 && to.y >= 0 && uint(to.x) < w.height &&
                                    uint(to.y) < w.width;
                slice.values[v][e] = inside ? plane[to.x * w.row + to.y * w.column] : T(0);
            }
        }
    }
};

// A matmul of weights and windows, in tiles: rows are outputs of a group, columns window positions. Grid: tiles, 1,
// groups of images.
kernel void ENTRY(conv_tile)(device const T* weights, device const T* images, device const T* bias,
                             device T* output, constant MatmulArgs& p, constant ConvWindows& w, BAND_ARGUMENT,
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
    const uint row = simd_group / 2 * (TILE / 2);
    const uint col = simd_group % 2 * (TILE / 2);
    StridedFactor lefts(weights + batch_offset(p, p.left_view, group.z) + tile.x * p.left.outer, p.left, LEFT_K_MAJOR,
                        LEFT_VECTOR, p.rows - tile.x, p.depth, index);
    ConvWindowFactor windows_factor(images + batch_offset(p, p.right_view, group.z), w, p.depth, tile.y, p.cols, index);
    TileSums sums;
    sums.clear();
    multiply(sums, lefts, windows_factor, p.depth, (threadgroup T*)shared, row, col, index);
    const MatmulOutput<T> result(p, output, bias, bias, 0, group.z, groups.z);
    sums.store(p, result, tile.x + row, tile.y + col, lane);
}
