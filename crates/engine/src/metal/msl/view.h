// How kernels walk through inputs of any layout.
#include "host/Walk.h"
#include "host/ViewStrides.h"

// Where the element of an input lies whose innermost index is `at.x`, and whose others together are `at.y`.
inline long place(constant Walk& walk, constant ViewStrides& steps, uint2 at) {
    long found = steps.offset + long(at.x) * steps.strides[walk.rank - 1];
    uint rest = at.y;
    for (uint axis = walk.rank - 1; axis-- > 0;) {
        found += long(rest % walk.dims[axis]) * steps.strides[axis];
        rest /= walk.dims[axis];
    }
    return found;
}
