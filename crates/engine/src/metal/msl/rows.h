#include "view.h"
#include "host/Rows.h"

// Rows along one axis of an input of any layout, and where they go in a row-major result.

// Where a row begins in the input.
inline long row_start(constant Rows& rows, uint row) {
    const uint inner = rows.walk.dims[rows.walk.rank - 1];
    return place(rows.walk, rows.steps, uint2(row % inner, row / inner));
}

// Where a row begins in the result.
inline ulong row_target(constant Rows& rows, uint row) {
    return ulong(row / rows.inner) * rows.len * rows.inner + row % rows.inner;
}
