#include "types.h"
#include "axis_split.h"
#include "index.h"

// Whether four elements of a row are one aligned load and store.
FUNCTION_CONSTANT(bool, FOUR);

// Rows by index: y[a, i, b] = x[a, indices[i], b]. T is as large as the elements. Grid: elements of a row (or vectors
// of four), indices, blocks.
kernel void ENTRY(take)(device const T* input, device const void* indices, device T* output, device FaultRecord* fault,
                        constant AxisSplit& x, constant Walk& walk, constant ViewStrides& steps,
                        uint3 at [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {
    const long index = index_at(indices, place_of(walk, steps, at.y));
    const long row = resolve(index, x.len, fault, at.x == 0 && at.z == 0);
    const ulong line = (ulong(at.z) * grid.y + at.y) * x.width;
    if (FOUR) {
        const long from = column_of(x, at.z, 0) + row * x.stride + at.x * 4;
        *(device vec<T, 4>*)(output + line + at.x * 4) =
            row < 0 ? vec<T, 4>(0) : *(device const vec<T, 4>*)(input + from);
        return;
    }
    output[line + at.x] = row < 0 ? T(0) : input[column_of(x, at.z, at.x) + row * x.stride];
}
