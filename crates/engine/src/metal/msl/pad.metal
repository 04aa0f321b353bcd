#include "region.h"

// Whether the input has elements.
FUNCTION_CONSTANT(bool, READS);

// The input with a border of one scalar.
kernel void ENTRY(pad)(device T* output [[buffer(0)]], constant Extent& extent [[buffer(1)]],
                       constant ViewStrides& view [[buffer(2)]], constant Region& region [[buffer(3)]],
                       constant T& value [[buffer(4)]],
                       device const T* input [[buffer(5), function_constant(READS)]],
                       uint2 at [[thread_position_in_grid]]) {
    const ThreadSpan span = thread_span(extent, at);
    T x[ELEMENTS_PER_THREAD];
    splat<T>(x, value);
    if (READS) {
        load_inside<T>(x, input, extent, view, region, span);
    }
    store_elements<T>(x, output, span, VECTOR_OUTPUT);
}
