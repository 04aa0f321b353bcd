#include "element.h"
#include "view.h"
#include "host/Extent.h"

// Elementwise kernels: a thread computes up to four neighbours along the innermost axis of a result, with one load and
// one store if they are aligned.
#define ELEMENTS_PER_THREAD 4

// The elements of a thread.
struct ThreadSpan {
    // Innermost index of the first one, and the flattened index of the other axes.
    uint2 at;
    // Index of the first one in the result.
    ulong to;
    uint count;
};

inline ThreadSpan thread_span(constant Extent& extent, uint2 at) {
    const uint inner = extent.walk.dims[extent.walk.rank - 1];
    ThreadSpan span;
    span.at = uint2(at.x * ELEMENTS_PER_THREAD, at.y);
    span.to = ulong(at.y) * inner + span.at.x;
    const ulong left = span.to < extent.count ? extent.count - span.to : 0;
    span.count = min(min(inner - span.at.x, uint(ELEMENTS_PER_THREAD)), uint(min(left, ulong(ELEMENTS_PER_THREAD))));
    return span;
}

// Loads the elements of an input; `vector` says that four neighbours are one aligned load.
template <typename T>
inline void load_elements(thread T* x, device const stored_t<T>* from, constant Walk& walk, constant ViewStrides& view,
                          ThreadSpan span, bool vector) {
    device const stored_t<T>* first = from + view_offset(walk, view, span.at);
    if (vector && span.count == ELEMENTS_PER_THREAD) {
        const vec<stored_t<T>, ELEMENTS_PER_THREAD> all = *(device const vec<stored_t<T>, ELEMENTS_PER_THREAD>*)first;
        for (uint k = 0; k < ELEMENTS_PER_THREAD; k++) {
            x[k] = T(all[k]);
        }
        return;
    }
    const long stride = view.strides[walk.rank - 1];
    for (uint k = 0; k < ELEMENTS_PER_THREAD; k++) {
        x[k] = k < span.count ? T(first[long(k) * stride]) : T(0);
    }
}

// Sets all elements to a scalar.
template <typename T> inline void splat(thread T* x, T value) {
    for (uint k = 0; k < ELEMENTS_PER_THREAD; k++) {
        x[k] = value;
    }
}

// Stores the elements of the result.
template <typename T> inline void store_elements(thread const T* x, device stored_t<T>* to, ThreadSpan span,
                                                 bool vector) {
    device stored_t<T>* first = to + span.to;
    if (vector && span.count == ELEMENTS_PER_THREAD) {
        vec<stored_t<T>, ELEMENTS_PER_THREAD> all;
        for (uint k = 0; k < ELEMENTS_PER_THREAD; k++) {
            all[k] = stored_t<T>(x[k]);
        }
        *(device vec<stored_t<T>, ELEMENTS_PER_THREAD>*)first = all;
        return;
    }
    for (uint k = 0; k < ELEMENTS_PER_THREAD && k < span.count; k++) {
        first[k] = stored_t<T>(x[k]);
    }
}
