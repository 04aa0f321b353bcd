#include "types.h"
#include "axis_split.h"
#include "host/PoolArgs.h"

typedef computed_t<T> C;

// 0: the maximum; 1: the mean with the padding; 2: the mean without.
FUNCTION_CONSTANT(uint, POOL);

// One thread per window. Grid: columns, rows, planes of the result.
kernel void ENTRY(pool)(device const T* input, device T* output, constant PoolArgs& w,
                        uint3 at [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {
    device const T* plane = input + view_offset_at(w.planes, w.view, at.z);
    // The part of the window inside the image, counted from the beginning of the padding.
    const ulong top = ulong(at.y) * w.stride_height;
    const ulong side = ulong(at.x) * w.stride_width;
    const ulong first_row = max(top, ulong(w.padding_height));
    const ulong end_row = min(top + w.kernel_height, ulong(w.height) + w.padding_height);
    const ulong first_column = max(side, ulong(w.padding_width));
    const ulong end_column = min(side + w.kernel_width, ulong(w.width) + w.padding_width);
    C found = POOL == 0 ? C(-INFINITY) : C(0);
    for (ulong y = first_row; y < end_row; y++) {
        for (ulong x = first_column; x < end_column; x++) {
            const C value = C(plane[long(y - w.padding_height) * w.row + long(x - w.padding_width) * w.column]);
            if (POOL != 0) {
                found += value;
            } else if (value > found || isnan(value)) {
                found = value;
            }
        }
    }
    if (POOL != 0) {
        const ulong whole = ulong(w.kernel_height) * w.kernel_width;
        const ulong inside = (end_row - first_row) * (end_column - first_column);
        found /= C(POOL == 1 ? whole : inside);
    }
    output[(ulong(at.z) * grid.y + at.y) * grid.x + at.x] = T(found);
}
