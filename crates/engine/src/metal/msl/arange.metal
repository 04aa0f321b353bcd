#include "each.h"
#include "cast.metal"
#include "double.h"

// Whether start and step are integers, and whether the last number is given.
constant bool INTEGERS [[function_constant(0)]];
constant bool LAST [[function_constant(1)]];

// As metal/arange.rs has it.
struct Range {
    Double start;
    Double step;
    long first;
    long distance;
    // The bits of the last number.
    ulong last;
};

// start + i step: exactly in integers, otherwise as 64-bit floats compute it, then converted.
kernel void ENTRY(arange)(device T* output, constant Extent& extent, constant Range& range,
                          uint2 at [[thread_position_in_grid]]) {
    const Here here = find(extent, at);
    T x[EACH];
    for (uint k = 0; k < EACH; k++) {
        const ulong i = here.to + k;
        if (INTEGERS) {
            x[k] = cast_to<T>(long(ulong(range.first) + i * ulong(range.distance)));
        } else {
            x[k] = double_to<T>(double_sum(range.start, double_product(double_of(i), range.step)));
        }
        if (LAST && i == extent.count - 1) {
            x[k] = number<T>(range.last);
        }
    }
    put<T>(x, output, here, true);
}
