#include "view.h"
#include "host/AxisSplit.h"

// An input of any layout, split at one of its axes.

inline long place_of(constant Walk& walk, constant ViewStrides& steps, uint at) {
    const uint inner = walk.dims[walk.rank - 1];
    return place(walk, steps, uint2(at % inner, at / inner));
}

// Offset of element `column` of the first row of a block.
inline long column_of(constant AxisSplit& split, uint block, uint column) {
    return place_of(split.outer, split.outer_steps, block) + place_of(split.inner, split.inner_steps, column);
}
