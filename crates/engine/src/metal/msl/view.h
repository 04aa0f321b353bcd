// How kernels walk through inputs of any layout. The structs are those of metal/view.rs.

#define MAX_RANK 8

// The axes of a result, outermost first.
struct Walk {
    uint dims[MAX_RANK];
    uint rank;
    uint padding;
};

// How far one input goes for each axis, and where it begins; in elements.
struct Steps {
    long strides[MAX_RANK];
    long offset;
};

// Where the element of an input lies whose innermost index is `at.x`, and whose others together are `at.y`.
inline long place(constant Walk& walk, constant Steps& steps, uint2 at) {
    long found = steps.offset + long(at.x) * steps.strides[walk.rank - 1];
    uint rest = at.y;
    for (uint axis = walk.rank - 1; axis-- > 0;) {
        found += long(rest % walk.dims[axis]) * steps.strides[axis];
        rest /= walk.dims[axis];
    }
    return found;
}
