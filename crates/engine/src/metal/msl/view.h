// Strided views of inputs, as kernels walk them.
#include "host/Walk.h"
#include "host/ViewStrides.h"

// Offset of the element with innermost index `at.x` and flattened index `at.y` of the other axes.
inline long place(constant Walk& walk, constant ViewStrides& steps, uint2 at) {
    long found = steps.offset + long(at.x) * steps.strides[walk.rank - 1];
    uint rest = at.y;
    for (uint axis = walk.rank - 1; axis-- > 0;) {
        found += long(rest % walk.dims[axis]) * steps.strides[axis];
        rest /= walk.dims[axis];
    }
    return found;
}
