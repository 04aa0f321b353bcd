// Strided views of inputs, as kernels walk them.
#include "host/Walk.h"
#include "host/ViewStrides.h"

// Offset of the element with innermost index `at.x` and flattened index `at.y` of the other axes.
inline long view_offset(constant Walk& walk, constant ViewStrides& view, uint2 at) {
    long offset = view.offset + long(at.x) * view.strides[walk.rank - 1];
    uint rest = at.y;
    for (uint axis = walk.rank - 1; axis-- > 0;) {
        offset += long(rest % walk.dims[axis]) * view.strides[axis];
        rest /= walk.dims[axis];
    }
    return offset;
}
