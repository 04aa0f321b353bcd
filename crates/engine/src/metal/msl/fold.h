#include "types.h"
#include "threadgroup_reduce.h"
#include "element_kind.h"
#if FOLD == 7
#include "sort_key.h"
#endif

// Reductions of elements of type T to a result of type U; metal/reduce.rs selects one by FOLD. There is no double: sums
// of floats keep the rounding error of each addition in a second float (compensated summation).

#define FOLD_SUM 0
#define FOLD_EXTREME 1
#define FOLD_NONZERO 2
#define FOLD_PROD 3
#define FOLD_MOMENT 4
#define FOLD_EXP 5
#define FOLD_SQUARE 6
#define FOLD_ARG 7

// Which result of a fold is returned: see the `finish` of each.
FUNCTION_CONSTANT(uint, RESULT);
// Whether magnitudes are folded.
FUNCTION_CONSTANT(bool, MAGNITUDE);

// Elements that are folded per step.
#define FOLD_BLOCK_LEN 8

// The sum and its rounding error.
inline float2 two_sum(float a, float b) {
    const float sum = a + b;
    const float part = sum - a;
    return float2(sum, (a - (sum - part)) + (b - part));
}

// The float nearest to a sum and its rounding error; the sum itself if it is not finite or is -0.
inline float rounded_sum(float high, float low) {
    return low != 0 && isfinite(high) && isfinite(low) ? high + low : high;
}

template <typename T> inline T magnitude(T x) { return MAGNITUDE && x < T(0) ? T(-x) : x; }
template <> inline float magnitude<float>(float x) { return MAGNITUDE ? fabs(x) : x; }

// Sums of floats. The identity is -0, which changes no number, not even -0.
struct FloatSum {
    struct State {
        float high;
        float low;
    };
    typedef float C;
    static State identity() { return State{-0.0f, 0.0f}; }
    static State lift(thread const float* x, uint count) {
        State state = identity();
        for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
            if (k < count) {
                const float2 sum = two_sum(state.high, magnitude(x[k]));
                state.high = sum[0];
                state.low += sum[1];
            }
        }
        return state;
    }
    static State combine(State a, State b) {
        const float2 sum = two_sum(a.high, b.high);
        return State{sum[0], (a.low + b.low) + sum[1]};
    }
    static State shuffle_xor(State s, ushort bits) { return State{lane_xor(s.high, bits), lane_xor(s.low, bits)}; }
    static State shuffle_up(State s, ushort by) { return State{lane_up(s.high, by), lane_up(s.low, by)}; }
    // 0: the sum; 1: the mean.
    static float finish(State s, ulong count, float) {
        if (count == 0) {
            return RESULT == 0 ? 0.0f : NAN;
        }
        if (RESULT == 0) {
            return rounded_sum(s.high, s.low);
        }
        const float n = float(count);
        const float mean = rounded_sum(s.high, s.low) / n;
        // The remainder of the quotient.
        const float rest = fma(-mean, n, s.high) + s.low;
        return isfinite(rest) ? mean + rest / n : mean;
    }
};

// Sums of integers.
template <typename U> struct IntSum {
    typedef U State;
    typedef U C;
    static U identity() { return U(0); }
    static U lift(thread const U* x, uint count) {
        U sum = 0;
        for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
            sum += k < count ? x[k] : U(0);
        }
        return sum;
    }
    static U combine(U a, U b) { return a + b; }
    static U shuffle_xor(U s, ushort bits) { return lane_xor(s, bits); }
    static U shuffle_up(U s, ushort by) { return lane_up(s, by); }
    static U finish(U s, ulong, float) { return s; }
};

// The greatest and the least. Results: 0 the greatest, 1 the least; NaN if one is.
template <typename E> inline E lowest() { return E(-INFINITY); }
template <> inline long lowest<long>() { return long(0x8000000000000000ul); }
template <typename E> inline E highest() { return E(~lowest<E>()); }
template <> inline float highest<float>() { return INFINITY; }

template <typename E> struct Extreme {
    typedef E State;
    typedef E C;
    static E identity() { return RESULT == 0 ? lowest<E>() : highest<E>(); }
    static E lift(thread const E* x, uint count) {
        E found = identity();
        for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
            if (k < count) {
                found = combine(found, magnitude(x[k]));
            }
        }
        return found;
    }
    static E combine(E a, E b) { return (RESULT == 0 ? b > a : b < a) || b != b ? b : a; }
    static E shuffle_xor(E s, ushort bits) { return lane_xor(s, bits); }
    static E shuffle_up(E s, ushort by) { return lane_up(s, by); }
    static E finish(E s, ulong, float) { return s; }
};

// The number of nonzero elements. Results: 0 any, 1 all, 2 the number.
struct NonzeroCount {
    typedef ulong State;
    typedef uint C;
    static ulong identity() { return 0; }
    static ulong lift(thread const uint* x, uint count) {
        uint sum = 0;
        for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
            sum += k < count ? x[k] : 0;
        }
        return sum;
    }
    static ulong combine(ulong a, ulong b) { return a + b; }
    static ulong shuffle_xor(ulong s, ushort bits) { return lane_xor(s, bits); }
    static float finish(ulong s, ulong count, float) {
        return RESULT == 0 ? float(s > 0) : RESULT == 1 ? float(s == count) : float(s);
    }
};

// Products of floats: a number of 48 bits between 1/2 and 1 in magnitude, and a power of two, so that intermediate
// results neither overflow nor vanish.
struct FloatProd {
    struct State {
        float high;
        float low;
        int power;
    };
    typedef float C;
    static State identity() { return State{1.0f, 0.0f, 0}; }
    static State scaled(float high, float low, int power) {
        if (high == 0 || !isfinite(high)) {
            return State{high, 0.0f, 0};
        }
        int by;
        const float part = frexp(high, by);
        return State{part, ldexp(low, -by), power + by};
    }
    static State lift(thread const float* x, uint count) {
        State state = identity();
        for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
            if (k < count) {
                state = combine(state, scaled(x[k], 0.0f, 0));
            }
        }
        return state;
    }
    static State combine(State a, State b) {
        const float high = a.high * b.high;
        const float low = fma(a.high, b.high, -high) + (a.high * b.low + a.low * b.high);
        return scaled(high, low, a.power + b.power);
    }
    static State shuffle_xor(State s, ushort bits) {
        return State{lane_xor(s.high, bits), lane_xor(s.low, bits), lane_xor(s.power, bits)};
    }
    static State shuffle_up(State s, ushort by) {
        return State{lane_up(s.high, by), lane_up(s.low, by), lane_up(s.power, by)};
    }
    static float finish(State s, ulong, float) {
        // In two steps, since a power may be out of float's range while the result is not.
        const int power = clamp(s.power, -400, 400);
        const int half_way = power / 2;
        return ldexp(ldexp(rounded_sum(s.high, s.low), half_way), power - half_way);
    }
};

// Products of integers.
template <typename U> struct IntProd {
    typedef U State;
    typedef U C;
    static U identity() { return U(1); }
    static U lift(thread const U* x, uint count) {
        U product = 1;
        for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
            product *= k < count ? x[k] : U(1);
        }
        return product;
    }
    static U combine(U a, U b) { return a * b; }
    static U shuffle_xor(U s, ushort bits) { return lane_xor(s, bits); }
    static U shuffle_up(U s, ushort by) { return lane_up(s, by); }
    static U finish(U s, ulong, float) { return s; }
};

// Mean and sum of squared distances from it, combined by Chan's algorithm. Results: 0 the variance, 1 its root.
struct Moment {
    struct State {
        float count;
        float mean;
        // Rounding error of the mean.
        float rest;
        float square;
    };
    typedef float C;
    static State identity() { return State{0, 0, 0, 0}; }
    static State lift(thread const float* x, uint count) {
        const float n = float(count);
        float sum = 0;
        for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
            sum += k < count ? x[k] : 0.0f;
        }
        const float estimate = sum / n;
        float deviations = 0;
        float square = 0;
        for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
            const float deviation = k < count ? x[k] - estimate : 0.0f;
            deviations += deviation;
            square += deviation * deviation;
        }
        const float deviation = deviations / n;
        return State{n, estimate, deviation, max(square - deviations * deviation, 0.0f) + 0.0f * square};
    }
    static State combine(State a, State b) {
        if (a.count == 0) {
            return b;
        }
        if (b.count == 0) {
            return a;
        }
        const float count = a.count + b.count;
        const float share = b.count / count;
        const float deviation = (b.mean - a.mean) + (b.rest - a.rest);
        const float2 mean = two_sum(a.mean, deviation * share);
        return State{count, mean[0], a.rest + mean[1], a.square + b.square + deviation * deviation * (a.count * share)};
    }
    static State shuffle_xor(State s, ushort bits) {
        return State{lane_xor(s.count, bits), lane_xor(s.mean, bits), lane_xor(s.rest, bits),
                     lane_xor(s.square, bits)};
    }
    static float finish(State s, ulong count, float ddof) {
        const float variance = s.square / (ddof < float(count) ? float(count) - ddof : 0.0f);
        return RESULT == 0 ? variance : precise::sqrt(variance);
    }
};

// Log-sum-exp: exponentials are relative to the running maximum.
struct Exponential {
    struct State {
        float maximum;
        float sum;
    };
    typedef float C;
    static State identity() { return State{-INFINITY, 0.0f}; }
    static State lift(thread const float* x, uint count) {
        State state = identity();
        for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
            if (k < count) {
                state.maximum = x[k] > state.maximum || isnan(x[k]) ? x[k] : state.maximum;
            }
        }
        if (isfinite(state.maximum)) {
            for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
                state.sum += k < count ? precise::exp(x[k] - state.maximum) : 0.0f;
            }
        }
        return state;
    }
    static State combine(State a, State b) {
        const float maximum = b.maximum > a.maximum || isnan(b.maximum) ? b.maximum : a.maximum;
        if (!isfinite(maximum)) {
            return State{maximum, 0.0f};
        }
        const float first = a.maximum == maximum ? a.sum : a.sum * precise::exp(a.maximum - maximum);
        const float second = b.maximum == maximum ? b.sum : b.sum * precise::exp(b.maximum - maximum);
        return State{maximum, first + second};
    }
    static State shuffle_xor(State s, ushort bits) { return State{lane_xor(s.maximum, bits), lane_xor(s.sum, bits)}; }
    static float finish(State s, ulong, float) {
        return isfinite(s.maximum) ? s.maximum + precise::log(s.sum) : s.maximum;
    }
};

// The root of a sum of squares, of numbers divided by a power of two if their squares would overflow or vanish.
struct Square {
    struct State {
        float high;
        float low;
        int power;
    };
    typedef float C;
    static State identity() { return State{0.0f, 0.0f, -70}; }
    static State lift(thread const float* x, uint count) {
        float maximum = 0;
        for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
            maximum = k < count ? max(maximum, fabs(x[k])) : maximum;
        }
        State state = identity();
        state.power = maximum > 0x1p60f ? 70 : maximum < 0x1p-60f ? -70 : 0;
        const float scale = maximum > 0x1p60f ? 0x1p-70f : maximum < 0x1p-60f ? 0x1p70f : 1.0f;
        for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
            if (k < count) {
                const float y = x[k] * scale;
                const float square = y * y;
                const float2 sum = two_sum(state.high, square);
                state.high = sum[0];
                state.low += sum[1] + fma(y, y, -square);
            }
        }
        return state;
    }
    static State combine(State a, State b) {
        const int power = max(a.power, b.power);
        const int down_a = 2 * (a.power - power);
        const int down_b = 2 * (b.power - power);
        const float2 sum = two_sum(ldexp(a.high, down_a), ldexp(b.high, down_b));
        return State{sum[0], (ldexp(a.low, down_a) + ldexp(b.low, down_b)) + sum[1], power};
    }
    static State shuffle_xor(State s, ushort bits) {
        return State{lane_xor(s.high, bits), lane_xor(s.low, bits), lane_xor(s.power, bits)};
    }
    static float finish(State s, ulong, float) {
        const float square = rounded_sum(s.high, s.low);
        if (square == 0 || !isfinite(square)) {
            return square;
        }
        float root = precise::sqrt(square);
        // One step of Newton's method, with the error of both roundings.
        root += (fma(-root, root, s.high) + s.low) / (2 * root);
        return ldexp(root, s.power);
    }
};

#if FOLD == FOLD_ARG
// Index of the greatest element, or of the least (result 1): the first of equal ones, the first NaN.
struct Arg {
    struct State {
        Key key;
        uint index;
    };
    typedef State C;
    static State identity() { return State{0, 0xFFFFFFFFu}; }
    static State lift(thread const State* x, uint count) {
        State state = identity();
        for (uint k = 0; k < FOLD_BLOCK_LEN; k++) {
            if (k < count) {
                state = combine(state, x[k]);
            }
        }
        return state;
    }
    static State combine(State a, State b) {
        return b.key > a.key || (b.key == a.key && b.index < a.index) ? b : a;
    }
    static State shuffle_xor(State s, ushort bits) { return State{lane_xor(s.key, bits), lane_xor(s.index, bits)}; }
    static long finish(State s, ulong, float) { return long(s.index); }
};
#endif

#if FOLD == FOLD_SUM
template <typename U, bool FLOAT> struct sum_of_kind { typedef IntSum<U> type; };
template <typename U> struct sum_of_kind<U, true> { typedef FloatSum type; };
typedef sum_of_kind<U, is_floating_point_v<computed_t<T>>>::type F;
#elif FOLD == FOLD_EXTREME
typedef Extreme<computed_t<T>> F;
#elif FOLD == FOLD_NONZERO
typedef NonzeroCount F;
#elif FOLD == FOLD_PROD
template <typename U, bool FLOAT> struct prod_of_kind { typedef IntProd<U> type; };
template <typename U> struct prod_of_kind<U, true> { typedef FloatProd type; };
typedef prod_of_kind<U, is_floating_point_v<computed_t<T>>>::type F;
#elif FOLD == FOLD_MOMENT
typedef Moment F;
#elif FOLD == FOLD_EXP
typedef Exponential F;
#elif FOLD == FOLD_SQUARE
typedef Square F;
#else
typedef Arg F;
#endif

typedef F::State State;
typedef F::C C;

#ifndef KINDS
// An element in the type in which it is folded.
inline C element(T x) {
#if FOLD == FOLD_NONZERO
    return C(x != T(0));
#else
    return C(x);
#endif
}
#endif

// Element `at` of the input, number `i` of its result, in the type in which it is folded.
inline C element_at(device const T* input, long at, uint i) {
#if FOLD == FOLD_ARG
    const Key key = key_at((device const uchar*)input, at);
    return C{RESULT == 0 || is_nan_key(key) ? key : Key(~key), i};
#elif defined(KINDS)
    const long x = integer_at((device const uchar*)input, at);
#if FOLD == FOLD_NONZERO
    return C(x != 0);
#elif FOLD == FOLD_EXTREME
    // Unsigned integers in the order of signed ones.
    return KIND == 3 ? as_type<long>(as_type<ulong>(x) ^ 0x8000000000000000ul) : x;
#else
    return C(x);
#endif
#else
    return element(input[at]);
#endif
}

// Writes a result.
inline void store_result(device uchar* output, ulong at, State state, ulong count, float ddof) {
#if defined(KINDS) && FOLD == FOLD_EXTREME
    put_integer(output, at, KIND == 3 ? as_type<long>(as_type<ulong>(state) ^ 0x8000000000000000ul) : state);
#else
    ((device U*)output)[at] = U(F::finish(state, count, ddof));
#endif
}
