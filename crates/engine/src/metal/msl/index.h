#include "fault.h"

// Indices of any integer type; the numbers are those of metal/axis_split.rs.
FUNCTION_CONSTANT(uint, INDEX);

// Index number `at`; unsigned values beyond the range of long are out of any range.
inline long index_at(device const void* indices, long at) {
    switch (INDEX) {
    case 0: return ((device const uchar*)indices)[at];
    case 1: return ((device const ushort*)indices)[at];
    case 2: return ((device const uint*)indices)[at];
    case 3: return long(min(((device const ulong*)indices)[at], ulong(0x7fffffffffffffff)));
    case 4: return ((device const char*)indices)[at];
    case 5: return ((device const short*)indices)[at];
    case 6: return ((device const int*)indices)[at];
    default: return ((device const long*)indices)[at];
    }
}

// The position along an axis of `len` that an index names, from either end; -1 and a report if it is out of range.
inline long resolve(long index, uint len, device FaultRecord* fault, bool reports) {
    const long position = index < 0 ? index + long(len) : index;
    if (position >= 0 && position < long(len)) {
        return position;
    }
    if (reports) {
        report(fault, index);
    }
    return -1;
}
