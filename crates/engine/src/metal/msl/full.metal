#include "types.h"

// Sets all elements to a scalar.
kernel void ENTRY(full)(device T* output, constant T& value, uint at [[thread_position_in_grid]]) {
    output[at] = value;
}
