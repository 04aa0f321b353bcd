#include "elementwise.h"
#include "host/Region.h"

// Regions of a tensor, copied as they are.

// Whether four neighbours are one aligned load, or one aligned store.
FUNCTION_CONSTANT(bool, VECTOR_INPUT);
FUNCTION_CONSTANT(bool, VECTOR_OUTPUT);

// Copies elements from any layout to any layout.
template <typename T>
inline void copy_region(device const T* input, device T* output, constant Extent& extent, constant ViewStrides* views,
                        uint2 at) {
    const ThreadSpan span = thread_span(extent, at);
    T x[ELEMENTS_PER_THREAD];
    load_elements<T>(x, input, extent.walk, views[0], span, VECTOR_INPUT);
    const uint inner = extent.walk.rank - 1;
    device T* to = output + view_offset(extent.walk, views[1], span.at);
    if (VECTOR_OUTPUT && span.count == ELEMENTS_PER_THREAD) {
        vec<T, ELEMENTS_PER_THREAD> all;
        for (uint k = 0; k < ELEMENTS_PER_THREAD; k++) {
            all[k] = x[k];
        }
        *(device vec<T, ELEMENTS_PER_THREAD>*)to = all;
        return;
    }
    for (uint k = 0; k < ELEMENTS_PER_THREAD && k < span.count; k++) {
        to[long(k) * views[1].strides[inner]] = x[k];
    }
}

// Loads the elements of a thread that lie inside the region, and leaves the others as they are. The axes of the extent
// are all those of the result.
template <typename T>
inline void load_inside(thread T* x, device const T* input, constant Extent& extent, constant ViewStrides& view,
                        constant Region& region, ThreadSpan span) {
    const uint inner = extent.walk.rank - 1;
    long from = view.offset;
    uint rest = span.at.y;
    for (uint axis = inner; axis-- > 0;) {
        // Indices before the region wrap to large numbers.
        const uint i = rest % extent.walk.dims[axis] - region.start[axis];
        rest /= extent.walk.dims[axis];
        if (i >= region.len[axis]) {
            return;
        }
        from += long(i) * view.strides[axis];
    }
    for (uint k = 0; k < ELEMENTS_PER_THREAD && k < span.count; k++) {
        const uint i = span.at.x + k - region.start[inner];
        if (i < region.len[inner]) {
            x[k] = input[from + long(i) * view.strides[inner]];
        }
    }
}
