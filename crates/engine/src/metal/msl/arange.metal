#include "elementwise.h"
#include "cast.metal"
#include "double.h"
#include "host/ArangeArgs.h"

// Whether start and step are integers, and whether the last element is given.
FUNCTION_CONSTANT(bool, INTEGERS);
FUNCTION_CONSTANT(bool, LAST);

// start + i step: exactly in integers, otherwise as 64-bit floats compute it, then converted.
kernel void ENTRY(arange)(device T* output, constant Extent& extent, constant ArangeArgs& range,
                          uint2 at [[thread_position_in_grid]]) {
    const ThreadSpan span = thread_span(extent, at);
    T x[ELEMENTS_PER_THREAD];
    for (uint k = 0; k < ELEMENTS_PER_THREAD; k++) {
        const ulong i = span.to + k;
        if (INTEGERS) {
            x[k] = cast_to<T>(long(ulong(range.first) + i * ulong(range.distance)));
        } else {
            x[k] = double_to<T>(double_sum(range.start, double_product(double_of(i), range.step)));
        }
        if (LAST && i == extent.count - 1) {
            x[k] = scalar<T>(range.last);
        }
    }
    store_elements<T>(x, output, span, true);
}
