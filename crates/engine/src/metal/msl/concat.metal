#include "region.h"

// Copies an input to its region.
kernel void ENTRY(concat)(device const T* input, device T* output, constant Extent& extent, constant ViewStrides* steps,
                          uint2 at [[thread_position_in_grid]]) {
    move(input, output, extent, steps, at);
}

// Whether there are a third and a fourth input.
FUNCTION_CONSTANT(bool, THIRD);
FUNCTION_CONSTANT(bool, FOURTH);

// Takes each element from the input that it belongs to: one launch for inputs whose regions interleave, which would
// otherwise be written one after the other.
kernel void ENTRY(concat_woven)(device T* output [[buffer(0)]], constant Extent& extent [[buffer(1)]],
                                constant ViewStrides* steps [[buffer(2)]], constant Region* inside [[buffer(3)]],
                                device const T* first [[buffer(4)]], device const T* second [[buffer(5)]],
                                device const T* third [[buffer(6), function_constant(THIRD)]],
                                device const T* fourth [[buffer(7), function_constant(FOURTH)]],
                                uint2 at [[thread_position_in_grid]]) {
    const Here here = find(extent, at);
    T x[EACH];
    fill<T>(x, T(0));
    fetch_inside<T>(x, first, extent, steps[0], inside[0], here);
    fetch_inside<T>(x, second, extent, steps[1], inside[1], here);
    if (THIRD) {
        fetch_inside<T>(x, third, extent, steps[2], inside[2], here);
    }
    if (FOURTH) {
        fetch_inside<T>(x, fourth, extent, steps[3], inside[3], here);
    }
    put<T>(x, output, here, VECTOR_OUTPUT);
}
