#include "types.h"
#include "axis_split.h"
#include "index.h"

// Elements by index: y[a, i, b] = x[a, indices[a, i, b], b]. T is as large as the elements. Grid: elements of a
// row, rows, blocks of the result.
kernel void ENTRY(gather)(device const T* input, device const void* indices, device T* output,
                          device FaultRecord* fault, constant AxisSplit& x, constant AxisSplit& by,
                          uint3 at [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {
    const long index = index_at(indices, column_offset(by, at.z, at.x) + at.y * by.stride);
    const long row = resolve(index, x.len, fault, true);
    output[(ulong(at.z) * grid.y + at.y) * grid.x + at.x] =
        row < 0 ? T(0) : input[column_offset(x, at.z, at.x) + row * x.stride];
}
