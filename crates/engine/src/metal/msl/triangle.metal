#include "region.h"

// Which side of the diagonal is kept.
FUNCTION_CONSTANT(bool, UPPER);

// Triangular matrices. The axes of the extent are all those of the result.
kernel void ENTRY(triangle)(device const T* input, device T* output, constant Extent& extent, constant ViewStrides& steps,
                            constant long& diagonal, uint2 at [[thread_position_in_grid]]) {
    const Here here = find(extent, at);
    const long row = at.y % extent.walk.dims[extent.walk.rank - 2];
    T x[EACH];
    const long first = long(here.at.x) - row, last = first + EACH - 1;
    if (UPPER ? last < diagonal : first > diagonal) {
        fill<T>(x, T(0));
    } else {
        fetch<T>(x, input, extent.walk, steps, here, VECTOR_INPUT);
        for (uint k = 0; k < EACH; k++) {
            const bool keep = UPPER ? first + k >= diagonal : first + k <= diagonal;
            x[k] = keep ? x[k] : T(0);
        }
    }
    put<T>(x, output, here, VECTOR_OUTPUT);
}
