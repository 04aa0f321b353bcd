#include "types.h"
#include "matmul.h"

// Matmul of integers, which wraps. Signs do not matter: T is unsigned, and sums have at least 32 bits, so that no
// product is promoted to a signed type whose overflow is undefined.

template <typename V> struct wide { typedef uint type; };
template <> struct wide<ulong> { typedef ulong type; };
typedef wide<T>::type W;

#define TILE_SIDE 16

// A threadgroup has 16 × 16 elements of the result, a thread one. Grid: columns, rows, batches, in tiles.
kernel void ENTRY(matmul_integer)(device const T* left, device const T* right, device const T* addend,
                                  device T* output, constant MatmulArgs& p, BAND_ARGUMENT,
                                  uint3 group [[threadgroup_position_in_grid]],
                                  uint3 at [[thread_position_in_threadgroup]]) {
    if (BANDED) {
        group += band.origin;
    }
    threadgroup W lefts[TILE_SIDE][TILE_SIDE + 1];
    threadgroup W rights[TILE_SIDE][TILE_SIDE + 1];
    const uint row = group.y * TILE_SIDE + at.y;
    const uint col = group.x * TILE_SIDE + at.x;
    // The column of the right factor that this thread loads.
    const uint line = group.x * TILE_SIDE + at.y;
    device const T* from_left = left + batch_offset(p, p.left_view, group.z) + row * p.left.outer;
    device const T* from_right = right + batch_offset(p, p.right_view, group.z);
    W sum = 0;
    for (uint k = 0; k < p.depth; k += TILE_SIDE) {
        lefts[at.y][at.x] = row < p.rows && k + at.x < p.depth ? W(from_left[(k + at.x) * p.left.inner]) : W(0);
        if (RIGHT_K_MAJOR) {
            rights[at.x][at.y] = line < p.cols && k + at.x < p.depth
                ? W(from_right[line * p.right.outer + (k + at.x) * p.right.inner]) : W(0);
        } else {
            rights[at.y][at.x] = col < p.cols && k + at.y < p.depth
                ? W(from_right[col * p.right.outer + (k + at.y) * p.right.inner]) : W(0);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = 0; i < TILE_SIDE; i++) {
            sum += lefts[at.y][i] * rights[i][at.x];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (row >= p.rows || col >= p.cols) {
        return;
    }
    sum *= W(p.integer_alpha);
    if (ADDEND) {
        const long from = batch_offset(p, p.addend_view, group.z);
        sum += W(p.integer_beta) * W(addend[from + row * p.addend.outer + col * p.addend.inner]);
    }
    output[group.z * ulong(p.rows) * p.cols + ulong(row) * p.cols + col] = T(sum);
}
