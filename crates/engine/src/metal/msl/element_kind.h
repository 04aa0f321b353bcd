// Elements whose type is not a kernel's: if all that differs is how an element is read, one kernel is compiled for all
// types, and a function constant selects the type.

// Binary logarithm of the size; 4 more for signed integers; 8, 9 and 10 for half, bfloat and float.
FUNCTION_CONSTANT(uint, KIND);

// An integer in 64 bits; what is above 2^63 wraps.
inline long integer_at(device const uchar* bytes, long at) {
    switch (KIND) {
    case 0: return long(bytes[at]);
    case 1: return long(((device const ushort*)bytes)[at]);
    case 2: return long(((device const uint*)bytes)[at]);
    case 4: return long(((device const char*)bytes)[at]);
    case 5: return long(((device const short*)bytes)[at]);
    case 6: return long(((device const int*)bytes)[at]);
    default: return ((device const long*)bytes)[at];
    }
}

// Stores the low bits of an integer, as many as an element has.
inline void put_integer(device uchar* bytes, ulong at, long x) {
    switch (KIND % 4) {
    case 0: bytes[at] = uchar(x); break;
    case 1: ((device ushort*)bytes)[at] = ushort(x); break;
    case 2: ((device uint*)bytes)[at] = uint(x); break;
    default: ((device long*)bytes)[at] = x; break;
    }
}
