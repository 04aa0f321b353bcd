#include "region.h"

// Whether the input has elements.
FUNCTION_CONSTANT(bool, READS);

// The input with a border of one scalar.
kernel void ENTRY(pad)(device T* output [[buffer(0)]], constant Extent& extent [[buffer(1)]],
                       constant ViewStrides& steps [[buffer(2)]], constant Region& inside [[buffer(3)]],
                       constant T& value [[buffer(4)]],
                       device const T* input [[buffer(5), function_constant(READS)]],
                       uint2 at [[thread_position_in_grid]]) {
    const Here here = find(extent, at);
    T x[EACH];
    fill<T>(x, value);
    if (READS) {
        fetch_inside<T>(x, input, extent, steps, inside, here);
    }
    put<T>(x, output, here, VECTOR_OUTPUT);
}
