#include "element.h"

// Conversions as Rust's `as` does them: cast_to<T>(x), from any type to any type.
// metal/fused.rs generates the kernels that call them.

// An integer rounded to odd in 24 bits: one that is no float becomes that of its two neighbours whose last bit is 1, so
// that rounding again to a narrower float gives what rounding once does.
inline float rounded_to_odd(ulong x) {
    const uint used = 64 - uint(clz(x));
    const uint shift = used > 24 ? used - 24 : 0;
    ulong top = x >> shift;
    top |= ulong((top << shift) != x);
    return float(uint(top)) * as_type<float>((127 + shift) << 23);
}
inline float narrowing(ulong x) { return rounded_to_odd(x); }
inline float narrowing(long x) { return x < 0 ? -rounded_to_odd(0 - ulong(x)) : rounded_to_odd(ulong(x)); }
inline float narrowing(uint x) { return rounded_to_odd(x); }
inline float narrowing(int x) { return narrowing(long(x)); }
template <typename T> inline float narrowing(T x) { return float(x); }

// Saturating, NaN to 0. `low` and `high` are the least number and one past the greatest.
template <typename T> inline T saturated(float x, float low, float high, T lowest_value, T highest_value) {
    if (!(x > low)) {
        return x <= low ? lowest_value : T(0);
    }
    return x >= high ? highest_value : T(x);
}

template <typename T> struct To {
    template <typename F> static T of(F x) { return T(x); }
};
template <> struct To<bool> {
    template <typename F> static bool of(F x) { return x != F(0); }
};
template <> struct To<half> {
    template <typename F> static half of(F x) { return half(narrowing(x)); }
};
template <> struct To<bfloat> {
    template <typename F> static bfloat of(F x) { return bfloat(narrowing(x)); }
};
template <> struct To<uchar> {
    template <typename F> static uchar of(F x) { return uchar(x); }
    static uchar of(float x) { return saturated<uchar>(x, 0.0f, 256.0f, 0, 255); }
};
template <> struct To<ushort> {
    template <typename F> static ushort of(F x) { return ushort(x); }
    static ushort of(float x) { return saturated<ushort>(x, 0.0f, 65536.0f, 0, 65535); }
};
template <> struct To<uint> {
    template <typename F> static uint of(F x) { return uint(x); }
    static uint of(float x) { return saturated<uint>(x, 0.0f, 0x1p32f, 0, 0xffffffff); }
};
template <> struct To<ulong> {
    template <typename F> static ulong of(F x) { return ulong(x); }
    static ulong of(float x) { return saturated<ulong>(x, 0.0f, 0x1p64f, 0, 0xffffffffffffffff); }
};
template <> struct To<char> {
    template <typename F> static char of(F x) { return char(x); }
    static char of(float x) { return saturated<char>(x, -128.0f, 128.0f, -128, 127); }
};
template <> struct To<short> {
    template <typename F> static short of(F x) { return short(x); }
    static short of(float x) { return saturated<short>(x, -32768.0f, 32768.0f, -32768, 32767); }
};
template <> struct To<int> {
    template <typename F> static int of(F x) { return int(x); }
    static int of(float x) { return saturated<int>(x, -0x1p31f, 0x1p31f, 0x80000000, 0x7fffffff); }
};
template <> struct To<long> {
    template <typename F> static long of(F x) { return long(x); }
    static long of(float x) {
        return saturated<long>(x, -0x1p63f, 0x1p63f, 0x8000000000000000, 0x7fffffffffffffff);
    }
};

template <typename T, typename F> inline T cast_to(F x) { return To<T>::of(x); }
