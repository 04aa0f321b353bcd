#include "types.h"
#include "tile.h"
#include "windows.h"

// The windows of an image as the factor of a matmul, never written out (implicit GEMM): a line for each window
// position, the depth being channels and taps.
struct Seen {
    device const T* from;
    constant ConvWindows* windows;
    // Origins of the four windows of this thread, and how many of them exist.
    int2 begins[4];
    uint left;
    uint depth;
    // Its line in each slice.
    uint own;
    // Always false: neighbours are window positions side by side.
    bool deep;

    // `col` is the first window position of the tile, of `places` in all.
    Seen(device const T* image, constant ConvWindows& w, uint all, uint col, uint places, uint index) {
        from = image;
        windows = &w;
        depth = all;
        deep = false;
        own = index / Part::width(false);
        const uint first = col + index % Part::width(false) * 4;
        left = places > first ? min(places - first, 4u) : 0;
        for (uint e = 0; e < 4; e++) {
            const uint at = first + e;
            begins[e] = int2(int(at / w.places * w.stride_height) - int(w.padding_height),
                             int(at % w.places * w.stride_width) - int(w.padding_width));
        }
    }

    void read(thread Part& part, uint k) {
        constant ConvWindows& w = *windows;
        const uint taps = w.taps_height * w.taps_width;
        for (uint v = 0; v < EACH; v++) {
            const uint at = k + own + v * Part::lines(false);
            const uint tap = at % taps;
            const int2 reach = int2(tap / w.taps_width * w.dilation_height, tap % w.taps_width * w.dilation_width);
            device const T* plane = from + at / taps * w.channel;
            for (uint e = 0; e < 4; e++) {
                const int2 to = begins[e] + reach;
                const bool inside = at < depth && e < left && to.x >= 0 && to.y >= 0 && uint(to.x) < w.height &&
                                    uint(to.y) < w.width;
                part.held[v][e] = inside ? plane[to.x * w.row + to.y * w.column] : T(0);
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
    threadgroup vec<T, 4> shared[HALF];
    const uint2 tile = tile_of(p, group.x) * TILE;
    const uint row = simd_group / 2 * (TILE / 2);
    const uint col = simd_group % 2 * (TILE / 2);
    Lines lefts(weights + start(p, p.left_steps, group.z) + tile.x * p.left.line, p.left, LEFT_DEEP, LEFT_FOUR,
                p.rows - tile.x, p.depth, index);
    Seen seen(images + start(p, p.right_steps, group.z), w, p.depth, tile.y, p.cols, index);
    Sums sums;
    sums.clear();
    multiply(sums, lefts, seen, p.depth, (threadgroup T*)shared, row, col, index);
    const Goal<T> goal(p, output, bias, bias, 0, group.z, groups.z);
    sums.put(p, goal, tile.x + row, tile.y + col, lane);
}
