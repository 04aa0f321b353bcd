// Integers in the order of elements: comparing them is what sorting, selecting and finding the greatest come
// down to. A greater one for a greater element, the same for zeros of either sign, the greatest for NaN.

template <typename T> struct Ordered;
template <> struct Ordered<uchar> { typedef uint Key; static uint key(uchar x) { return x; } };
template <> struct Ordered<ushort> { typedef uint Key; static uint key(ushort x) { return x; } };
template <> struct Ordered<uint> { typedef uint Key; static uint key(uint x) { return x; } };
template <> struct Ordered<ulong> { typedef ulong Key; static ulong key(ulong x) { return x; } };
template <> struct Ordered<char> { typedef uint Key; static uint key(char x) { return uint(int(x) + 0x80); } };
template <> struct Ordered<short> { typedef uint Key; static uint key(short x) { return uint(int(x) + 0x8000); } };
template <> struct Ordered<int> { typedef uint Key; static uint key(int x) { return uint(x) ^ 0x80000000u; } };
template <> struct Ordered<long> {
    typedef ulong Key;
    static ulong key(long x) { return ulong(x) ^ 0x8000000000000000ul; }
};
// Floats by their bits: half and bfloat are as many of the upper bits of a float's.
inline uint float_key(uint bits) {
    const uint size = bits & 0x7FFFFFFFu;
    const uint key = size == 0 ? 0x80000000u : bits ^ (uint(int(bits) >> 31) | 0x80000000u);
    return size > 0x7F800000u ? 0xFFFFFFFFu : key;
}
template <> struct Ordered<float> { typedef uint Key; static uint key(float x) { return float_key(as_type<uint>(x)); } };
template <> struct Ordered<half> {
    typedef uint Key;
    static uint key(half x) { return float_key(as_type<uint>(float(x))); }
};
template <> struct Ordered<bfloat> {
    typedef uint Key;
    static uint key(bfloat x) { return float_key(uint(as_type<ushort>(x)) << 16); }
};
typedef typename Ordered<T>::Key Key;

inline Key key_of(T x) {
    return Ordered<T>::key(x);
}

// Whether an element is NaN.
template <typename E> inline bool is_nan(E) { return false; }
template <> inline bool is_nan<float>(float x) { return isnan(x); }
template <> inline bool is_nan<half>(half x) { return isnan(x); }
template <> inline bool is_nan<bfloat>(bfloat x) { return isnan(float(x)); }
