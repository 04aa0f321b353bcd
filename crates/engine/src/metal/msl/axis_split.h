#include "view.h"
#include "host/AxisSplit.h"

// An input of any layout, split at one of its axes.

inline long view_offset_at(constant Walk& walk, constant ViewStrides& view, uint at) {
    const uint inner = walk.dims[walk.rank - 1];
    return view_offset(walk, view, uint2(at % inner, at / inner));
}

// Offset of element `column` of the first row of a block.
inline long column_offset(constant AxisSplit& split, uint block, uint column) {
    return view_offset_at(split.outer, split.outer_view, block) + view_offset_at(split.inner, split.inner_view, column);
}
