#include "region.h"

// Copies the source over a region of the output, in place.
kernel void ENTRY(slice_write)(device const T* source, device T* output, constant Extent& extent,
                               constant ViewStrides* views, uint2 at [[thread_position_in_grid]]) {
    copy_region(source, output, extent, views, at);
}

// Takes each element from the source inside the region, and from the input elsewhere.
kernel void ENTRY(slice_update)(device const T* input, device const T* source, device T* output,
                                constant Extent& extent, constant ViewStrides* views, constant Region& region,
                                uint2 at [[thread_position_in_grid]]) {
    const ThreadSpan span = thread_span(extent, at);
    T x[ELEMENTS_PER_THREAD];
    load_elements<T>(x, input, extent.walk, views[0], span, VECTOR_INPUT);
    load_inside<T>(x, source, extent, views[1], region, span);
    store_elements<T>(x, output, span, VECTOR_OUTPUT);
}
