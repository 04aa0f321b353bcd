#include "cast.metal"
#include "host/ProgramFault.h"

// What kernels of programs (metal/program.rs) need besides the functions of elements: guarded memory, integer division,
// shifts, and the classes of the atlas. The meaning of every function is that of program/value.rs.

// Codes of faults; the numbers are those of metal/program/fault.rs.
#define FAULT_MISALIGNED 1
#define FAULT_OUT_OF_BOUNDS 2
#define FAULT_DIVISION_BY_ZERO 3
#define FAULT_STEP_LIMIT 4
#define FAULT_CLASS 5
#define FAULT_BOUNDARY 6
#define FAULT_UNDERFLOW 7

// Records a fault, unless there is one already.
inline void report_fault(device ProgramFault* fault, uint code, uint instruction, uint binding, ulong lane, ulong value) {
    uint none = 0;
    while (none == 0) {
        if (atomic_compare_exchange_weak_explicit(&fault->found, &none, 1u, memory_order_relaxed,
                                                  memory_order_relaxed)) {
            fault->code = code;
            fault->instruction = instruction;
            fault->binding = binding;
            fault->lane = lane;
            fault->value = value;
            return;
        }
    }
}

// The fault of an access to `size` bytes at an offset in memory of `length` bytes; 0 if there is none.
inline uint access_fault(ulong at, ulong size, ulong length) {
    if ((at & (size - 1)) != 0) {
        return FAULT_MISALIGNED;
    }
    return at > length || length - at < size ? FAULT_OUT_OF_BOUNDS : 0;
}

// Unsigned integers with the size of an element: memory is accessed as those, so that bits stay what they are.
template <ulong size> struct bits_of { typedef uchar type; };
template <> struct bits_of<2> { typedef ushort type; };
template <> struct bits_of<4> { typedef uint type; };
template <> struct bits_of<8> { typedef ulong type; };
template <typename T> using bits_t = typename bits_of<sizeof(T)>::type;

template <typename T> inline T load(device const uchar* memory, ulong at) {
    return as_type<T>(*(device const bits_t<T>*)(memory + at));
}
template <typename T> inline void store(device uchar* memory, ulong at, T value) {
    *(device bits_t<T>*)(memory + at) = as_type<bits_t<T>>(value);
}
template <typename T> inline T load(threadgroup const uchar* memory, ulong at) {
    return as_type<T>(*(threadgroup const bits_t<T>*)(memory + at));
}
template <typename T> inline void store(threadgroup uchar* memory, ulong at, T value) {
    *(threadgroup bits_t<T>*)(memory + at) = as_type<bits_t<T>>(value);
}

// The quotient rounded towards 0; the least number by -1 wraps. `b` is not 0.
template <typename T> inline T truncated_div(T a, T b) {
    return is_signed_type<T>() && b == T(-1) ? T(wrapping_t<T>(0) - wrapping_t<T>(a)) : T(a / b);
}

// A NaN is ignored.
template <typename T> inline T least(T a, T b) { return b < a ? b : a; }
template <typename T> inline T greatest(T a, T b) { return a < b ? b : a; }
inline float least(float a, float b) { return b < a || isnan(a) ? b : a; }
inline float greatest(float a, float b) { return a < b || isnan(a) ? b : a; }

// Amounts are modulo the width.
template <typename T> inline T shifted_left(T x, uint amount) {
    return T(wrapping_t<T>(x) << (amount % width<T>()));
}
template <typename T> inline T shifted_right(T x, uint amount) { return T(x >> (amount % width<T>())); }

// A conversion as Rust's `as`. Integers become half precision by way of float.
template <typename T> struct Converted {
    template <typename F> static T of(F x) { return cast_to<T>(x); }
};
template <> struct Converted<half> {
    template <typename F> static half of(F x) { return half(float(x)); }
};
template <> struct Converted<bfloat> {
    template <typename F> static bfloat of(F x) { return bfloat(float(x)); }
};
template <typename T, typename F> inline T converted(F x) { return Converted<T>::of(x); }

// Classes are 3 q + r, with r below 3.
inline uchar class_mirror(uchar value) { return uchar(3 * ((value / 3) ^ 1) + value % 3); }
inline uint class_degree(uchar value) { return value % 3 == 1 ? 6 : 5; }
inline uchar class_neighbour(uchar value, uint index) {
    const uint q = value / 3, r = value % 3;
    if (index < 4) {
        return uchar(3 * (q ^ (16u >> index)) + r);
    }
    if (r == 1) {
        return uchar(index == 4 ? 3 * q + 2 : index == 5 ? 3 * q : 0);
    }
    return uchar(index == 4 ? 3 * q + 1 : 0);
}
