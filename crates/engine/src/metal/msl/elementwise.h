#include "element.h"
#include "view.h"
#include "host/Extent.h"

// Elementwise kernels: a thread computes up to four neighbours along the innermost axis of a result, with one load and
// one store if they are aligned.
#define EACH 4

// The elements of a thread.
struct Here {
    // Innermost index of the first one, and the flattened index of the other axes.
    uint2 at;
    // Index of the first one in the result.
    ulong to;
    uint count;
};

inline Here find(constant Extent& extent, uint2 at) {
    const uint inner = extent.walk.dims[extent.walk.rank - 1];
    Here here;
    here.at = uint2(at.x * EACH, at.y);
    here.to = ulong(at.y) * inner + here.at.x;
    const ulong left = here.to < extent.count ? extent.count - here.to : 0;
    here.count = min(min(inner - here.at.x, uint(EACH)), uint(min(left, ulong(EACH))));
    return here;
}

// Loads the elements of an input; `vector` says that four neighbours are one aligned load.
template <typename T>
inline void fetch(thread T* x, device const stored_t<T>* from, constant Walk& walk, constant ViewStrides& steps, Here here,
                  bool vector) {
    device const stored_t<T>* first = from + place(walk, steps, here.at);
    if (vector && here.count == EACH) {
        const vec<stored_t<T>, EACH> all = *(device const vec<stored_t<T>, EACH>*)first;
        for (uint k = 0; k < EACH; k++) {
            x[k] = T(all[k]);
        }
        return;
    }
    const long stride = steps.strides[walk.rank - 1];
    for (uint k = 0; k < EACH; k++) {
        x[k] = k < here.count ? T(first[long(k) * stride]) : T(0);
    }
}

// Sets all elements to a scalar.
template <typename T> inline void fill(thread T* x, T value) {
    for (uint k = 0; k < EACH; k++) {
        x[k] = value;
    }
}

// Stores the elements of the result.
template <typename T> inline void put(thread const T* x, device stored_t<T>* to, Here here, bool vector) {
    device stored_t<T>* first = to + here.to;
    if (vector && here.count == EACH) {
        vec<stored_t<T>, EACH> all;
        for (uint k = 0; k < EACH; k++) {
            all[k] = stored_t<T>(x[k]);
        }
        *(device vec<stored_t<T>, EACH>*)first = all;
        return;
    }
    for (uint k = 0; k < EACH && k < here.count; k++) {
        first[k] = stored_t<T>(x[k]);
    }
}
