#include "elementwise.h"
#include "host/Region.h"

// Regions of a tensor, copied as they are.

// Whether four neighbours are one aligned load, or one aligned store.
FUNCTION_CONSTANT(bool, VECTOR_INPUT);
FUNCTION_CONSTANT(bool, VECTOR_OUTPUT);

// Copies elements from any layout to any layout.
template <typename T>
inline void move(device const T* input, device T* output, constant Extent& extent, constant ViewStrides* steps, uint2 at) {
    const Here here = find(extent, at);
    T x[EACH];
    fetch<T>(x, input, extent.walk, steps[0], here, VECTOR_INPUT);
    const uint inner = extent.walk.rank - 1;
    device T* to = output + place(extent.walk, steps[1], here.at);
    if (VECTOR_OUTPUT && here.count == EACH) {
        vec<T, EACH> all;
        for (uint k = 0; k < EACH; k++) {
            all[k] = x[k];
        }
        *(device vec<T, EACH>*)to = all;
        return;
    }
    for (uint k = 0; k < EACH && k < here.count; k++) {
        to[long(k) * steps[1].strides[inner]] = x[k];
    }
}

// Loads the elements of a thread that lie inside the region, and leaves the others as they are. The axes of the extent
// are all those of the result.
template <typename T>
inline void fetch_inside(thread T* x, device const T* input, constant Extent& extent, constant ViewStrides& steps,
                         constant Region& inside, Here here) {
    const uint inner = extent.walk.rank - 1;
    long from = steps.offset;
    uint rest = here.at.y;
    for (uint axis = inner; axis-- > 0;) {
        // Indices before the region wrap to large numbers.
        const uint i = rest % extent.walk.dims[axis] - inside.start[axis];
        rest /= extent.walk.dims[axis];
        if (i >= inside.len[axis]) {
            return;
        }
        from += long(i) * steps.strides[axis];
    }
    for (uint k = 0; k < EACH && k < here.count; k++) {
        const uint i = here.at.x + k - inside.start[inner];
        if (i < inside.len[inner]) {
            x[k] = input[from + long(i) * steps.strides[inner]];
        }
    }
}
