#include "types.h"
#include "arithmetic.h"

// Properties of element types: how they are stored, and arithmetic that wraps.

// Storage type of an element: booleans are bytes.
template <typename T> struct stored { typedef T type; };
template <> struct stored<bool> { typedef uchar type; };
template <typename T> using stored_t = typename stored<T>::type;

// The unsigned type in which integers wrap: C++ would compute narrow ones in int, where overflow is undefined.
template <typename T> struct wrapping { typedef uint type; };
template <> struct wrapping<long> { typedef ulong type; };
template <> struct wrapping<ulong> { typedef ulong type; };
template <typename T> using wrapping_t = typename wrapping<T>::type;

template <typename T> inline bool is_signed_type() { return T(-1) < T(0); }

// Width of an integer type in bits.
template <typename T> inline uint width() { return sizeof(T) * 8; }

// A scalar of the program, from the low bits of a word.
template <typename T> inline T scalar(ulong bits) { return T(bits); }
template <> inline bool scalar<bool>(ulong bits) { return bits != 0; }
template <> inline half scalar<half>(ulong bits) { return as_type<half>(ushort(bits)); }
template <> inline bfloat scalar<bfloat>(ulong bits) { return as_type<bfloat>(ushort(bits)); }
template <> inline float scalar<float>(ulong bits) { return as_type<float>(uint(bits)); }
