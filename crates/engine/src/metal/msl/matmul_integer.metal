#include "types.h"
#include "product.h"

// Matmul of integers, which wraps. Signs do not matter: T is unsigned, and sums have at least 32 bits, so that no
// product is promoted to a signed type whose overflow is undefined.

template <typename V> struct wide { typedef uint type; };
template <> struct wide<ulong> { typedef ulong type; };
typedef wide<T>::type W;

#define SIDE 16

// A threadgroup has 16 × 16 elements of the result, a thread one. Grid: columns, rows, batches, in tiles.
kernel void ENTRY(matmul_integer)(device const T* left, device const T* right, device const T* addend,
                                device T* output, constant MatmulArgs& p, BAND_ARGUMENT,
                                uint3 group [[threadgroup_position_in_grid]],
                                uint3 at [[thread_position_in_threadgroup]]) {
    if (BANDED) {
        group += band.origin;
    }
    threadgroup W lefts[SIDE][SIDE + 1];
    threadgroup W rights[SIDE][SIDE + 1];
    const uint row = group.y * SIDE + at.y;
    const uint col = group.x * SIDE + at.x;
    // The column of the right factor that this thread loads.
    const uint line = group.x * SIDE + at.y;
    device const T* from_left = left + start(p, p.left_steps, group.z) + row * p.left.line;
    device const T* from_right = right + start(p, p.right_steps, group.z);
    W sum = 0;
    for (uint k = 0; k < p.depth; k += SIDE) {
        lefts[at.y][at.x] = row < p.rows && k + at.x < p.depth ? W(from_left[(k + at.x) * p.left.step]) : W(0);
        if (RIGHT_DEEP) {
            rights[at.x][at.y] = line < p.cols && k + at.x < p.depth
                ? W(from_right[line * p.right.line + (k + at.x) * p.right.step]) : W(0);
        } else {
            rights[at.y][at.x] = col < p.cols && k + at.y < p.depth
                ? W(from_right[col * p.right.line + (k + at.y) * p.right.step]) : W(0);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = 0; i < SIDE; i++) {
            sum += lefts[at.y][i] * rights[i][at.x];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (row >= p.rows || col >= p.cols) {
        return;
    }
    sum *= W(p.integer_alpha);
    if (ADDEND) {
        const long from = start(p, p.addend_steps, group.z);
        sum += W(p.integer_beta) * W(addend[from + row * p.addend.line + col * p.addend.step]);
    }
    output[group.z * ulong(p.rows) * p.cols + ulong(row) * p.cols + col] = T(sum);
}
