#include "view.h"
#include "host/Rows.h"

// Rows along one axis of an input of any layout, and their offsets in a row-major result.

// Offset of a row in the input.
inline long row_start(constant Rows& rows, uint row) {
    const uint inner = rows.walk.dims[rows.walk.rank - 1];
    return place(rows.walk, rows.steps, uint2(row % inner, row / inner));
}

// Offset of a row in the result.
inline ulong row_target(constant Rows& rows, uint row) {
    return ulong(row / rows.inner) * rows.len * rows.inner + row % rows.inner;
}
