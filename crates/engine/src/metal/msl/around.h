#include "view.h"

// An input of any layout seen from one of its axes. The struct is that of metal/around.rs.
struct Around {
    Walk outer;
    Steps outer_steps;
    Walk inner;
    Steps inner_steps;
    // From row to row.
    long stride;
    // Rows of a block, elements of a row.
    uint len;
    uint width;
};

inline long place_of(constant Walk& walk, constant Steps& steps, uint at) {
    const uint inner = walk.dims[walk.rank - 1];
    return place(walk, steps, uint2(at % inner, at / inner));
}

// Where element `column` of the first row of a block lies.
inline long column_of(constant Around& around, uint block, uint column) {
    return place_of(around.outer, around.outer_steps, block) + place_of(around.inner, around.inner_steps, column);
}
