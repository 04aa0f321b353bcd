#include "types.h"
#include "view.h"
#include "host/CopyArgs.h"

// Whether the first element of the input is aligned for vector loads.
FUNCTION_CONSTANT(bool, ALIGNED);

// Contiguous elements: four a thread.
kernel void ENTRY(copy_dense)(device const T* input, device T* output, constant CopyArgs& range,
                              uint at [[thread_position_in_grid]]) {
    const ulong first = ulong(at) * 4;
    device const T* from = input + range.offset + first;
    if (ALIGNED && first + 4 <= range.count) {
        *(device vec<T, 4>*)(output + first) = *(device const vec<T, 4>*)from;
        return;
    }
    for (uint k = 0; k < 4 && first + k < range.count; k++) {
        output[first + k] = from[k];
    }
}

// Elements of any layout: one a thread.
kernel void ENTRY(copy_strided)(device const T* input, device T* output, constant Walk& walk,
                                constant ViewStrides& view, uint2 at [[thread_position_in_grid]]) {
    const ulong to = ulong(at.y) * walk.dims[walk.rank - 1] + at.x;
    output[to] = input[view_offset(walk, view, at)];
}
