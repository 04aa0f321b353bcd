#include "view.h"
#include "host/AxisRows.h"

// Rows along one axis of an input of any layout, and their offsets in a row-major result.

// Offset of a row in the input.
inline long row_offset(constant AxisRows& rows, uint row) {
    const uint inner = rows.walk.dims[rows.walk.rank - 1];
    return view_offset(rows.walk, rows.view, uint2(row % inner, row / inner));
}

// Offset of a row in the result.
inline ulong result_row_offset(constant AxisRows& rows, uint row) {
    return ulong(row / rows.inner) * rows.len * rows.inner + row % rows.inner;
}
