#include "region.h"

// Copies an input to its region.
kernel void ENTRY(concat)(device const T* input, device T* output, constant Extent& extent, constant ViewStrides* views,
                          uint2 at [[thread_position_in_grid]]) {
    copy_region(input, output, extent, views, at);
}

// Whether there are a third and a fourth input.
FUNCTION_CONSTANT(bool, THIRD);
FUNCTION_CONSTANT(bool, FOURTH);

// Takes each element from the input that it belongs to: one launch for inputs whose regions interleave, which would
// otherwise be written one after the other.
kernel void ENTRY(concat_interleaved)(device T* output [[buffer(0)]], constant Extent& extent [[buffer(1)]],
                                      constant ViewStrides* views [[buffer(2)]], constant Region* regions [[buffer(3)]],
                                      device const T* first [[buffer(4)]], device const T* second [[buffer(5)]],
                                      device const T* third [[buffer(6), function_constant(THIRD)]],
                                      device const T* fourth [[buffer(7), function_constant(FOURTH)]],
                                      uint2 at [[thread_position_in_grid]]) {
    const ThreadSpan span = thread_span(extent, at);
    T x[ELEMENTS_PER_THREAD];
    splat<T>(x, T(0));
    load_inside<T>(x, first, extent, views[0], regions[0], span);
    load_inside<T>(x, second, extent, views[1], regions[1], span);
    if (THIRD) {
        load_inside<T>(x, third, extent, views[2], regions[2], span);
    }
    if (FOURTH) {
        load_inside<T>(x, fourth, extent, views[3], regions[3], span);
    }
    store_elements<T>(x, output, span, VECTOR_OUTPUT);
}
