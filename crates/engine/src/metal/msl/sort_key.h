#include "element_kind.h"

// Sort keys: unsigned integers in the order of the elements, which sorting, selection and arg-reductions compare. Zeros
// of either sign have the same key, NaN has the greatest. The kernel's type is that of the key: 32 bits, or 64 for
// elements of as many.
typedef T Key;

// The order of floats by their bits.
inline uint float_key(uint bits) {
    const uint size = bits & 0x7FFFFFFFu;
    const uint key = size == 0 ? 0x80000000u : bits ^ (uint(int(bits) >> 31) | 0x80000000u);
    return size > 0x7F800000u ? 0xFFFFFFFFu : key;
}

// The key of an element.
inline Key key_at(device const uchar* bytes, long at) {
    switch (KIND) {
    case 4: return Key(integer_at(bytes, at) + 0x80);
    case 5: return Key(integer_at(bytes, at) + 0x8000);
    case 6: return Key(integer_at(bytes, at) + 0x80000000l);
    case 7: return Key(ulong(integer_at(bytes, at)) ^ 0x8000000000000000ul);
    // Every half is a normal float; bfloat is the upper half of one.
    case 8: return Key(float_key(as_type<uint>(float(((device const half*)bytes)[at]))));
    case 9: return Key(float_key(uint(((device const ushort*)bytes)[at]) << 16));
    case 10: return Key(float_key(((device const uint*)bytes)[at]));
    default: return Key(integer_at(bytes, at));
    }
}

// Whether a key is that of NaN.
inline bool is_nan_key(Key key) {
    return KIND >= 8 && key == Key(0xFFFFFFFFu);
}
