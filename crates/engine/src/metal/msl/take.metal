#include "types.h"
#include "axis_split.h"
#include "index.h"

// Whether four elements of a row are one aligned load and store.
FUNCTION_CONSTANT(bool, VECTOR);

// Rows by index: y[a, i, b] = x[a, indices[i], b]. T is as large as the elements. Grid: elements of a row (or vectors
// of four), indices, blocks.
kernel void ENTRY(take)(device const T* input, device const void* indices, device T* output, device FaultRecord* fault,
                        constant AxisSplit& x, constant Walk& walk, constant ViewStrides& view,
                        uint3 at [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {
    const long index = index_at(indices, view_offset_at(walk, view, at.y));
    const long row = resolve(index, x.len, fault, at.x == 0 && at.z == 0);
    const ulong result = (ulong(at.z) * grid.y + at.y) * x.width;
    if (VECTOR) {
        const long from = column_offset(x, at.z, 0) + row * x.stride + at.x * 4;
        *(device vec<T, 4>*)(output + result + at.x * 4) =
            row < 0 ? vec<T, 4>(0) : *(device const vec<T, 4>*)(input + from);
        return;
    }
    output[result + at.x] = row < 0 ? T(0) : input[column_offset(x, at.z, at.x) + row * x.stride];
}
