#include "region.h"

// Copies the source over a region of the output, in place.
kernel void ENTRY(slice_write)(device const T* source, device T* output, constant Extent& extent, constant ViewStrides* steps,
                               uint2 at [[thread_position_in_grid]]) {
    move(source, output, extent, steps, at);
}

// Takes each element from the source inside the region, and from the input elsewhere.
kernel void ENTRY(slice_update)(device const T* input, device const T* source, device T* output,
                                constant Extent& extent, constant ViewStrides* steps, constant Region& inside,
                                uint2 at [[thread_position_in_grid]]) {
    const Here here = find(extent, at);
    T x[EACH];
    fetch<T>(x, input, extent.walk, steps[0], here, VECTOR_INPUT);
    fetch_inside<T>(x, source, extent, steps[1], inside, here);
    put<T>(x, output, here, VECTOR_OUTPUT);
}
