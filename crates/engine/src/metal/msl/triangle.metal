#include "region.h"

// Which side of the diagonal is kept.
FUNCTION_CONSTANT(bool, UPPER);

// Triangular matrices. The axes of the extent are all those of the result.
kernel void ENTRY(triangle)(device const T* input, device T* output, constant Extent& extent,
                            constant ViewStrides& view, constant long& diagonal, uint2 at [[thread_position_in_grid]]) {
    const ThreadSpan span = thread_span(extent, at);
    const long row = at.y % extent.walk.dims[extent.walk.rank - 2];
    T x[ELEMENTS_PER_THREAD];
    const long first = long(span.at.x) - row, last = first + ELEMENTS_PER_THREAD - 1;
    if (UPPER ? last < diagonal : first > diagonal) {
        splat<T>(x, T(0));
    } else {
        load_elements<T>(x, input, extent.walk, view, span, VECTOR_INPUT);
        for (uint k = 0; k < ELEMENTS_PER_THREAD; k++) {
            const bool keep = UPPER ? first + k >= diagonal : first + k <= diagonal;
            x[k] = keep ? x[k] : T(0);
        }
    }
    store_elements<T>(x, output, span, VECTOR_OUTPUT);
}
