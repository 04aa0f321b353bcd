#include "elementwise.h"
#include "host/RandomArgs.h"

// Which distribution: bits, uniform, normal, integers or booleans.
FUNCTION_CONSTANT(uint, KIND);
#define BITS 0
#define UNIFORM 1
#define NORMAL 2
#define INTEGERS 3

// Threefry-2x32 with 20 rounds.
inline uint2 threefry(uint key_0, uint key_1, ulong counter) {
    const uint rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    const uint keys[3] = {key_0, key_1, key_0 ^ key_1 ^ 0x1bd11bda};
    uint a = uint(counter) + keys[0];
    uint b = uint(counter >> 32) + keys[1];
    for (uint group = 0; group < 5; group++) {
        for (uint round = 0; round < 4; round++) {
            a += b;
            b = rotate(b, rotations[group % 2 * 4 + round]) ^ a;
        }
        a += keys[(group + 1) % 3];
        b += keys[(group + 2) % 3] + group + 1;
    }
    return uint2(a, b);
}

// Two numbers of the normal distribution by the Box-Muller transform, in the CPU's steps: separate products and sums,
// so that the bits are the same.
inline float2 normal_pair(uint u, uint v) {
    // ln(u): u = 2^e m with m around 1, ln(m) = 2 artanh((m - 1) / (m + 1)).
    const float unit = (float(u) + 0.5f) * 0x1p-32f;
    const uint root_half = 0x3f3504f3;
    const uint bits = as_type<uint>(unit) - root_half;
    const float exponent = float(as_type<int>(bits) >> 23);
    const float m = as_type<float>((bits & 0x7fffff) + root_half);
    const float s = (m - 1.0f) / (m + 1.0f);
    const float square = s * s;
    float log_terms = 1.0f / 9.0f;
    log_terms = log_terms * square + 1.0f / 7.0f;
    log_terms = log_terms * square + 1.0f / 5.0f;
    log_terms = log_terms * square + 1.0f / 3.0f;
    const float log_m = 2.0f * s + 2.0f * s * square * log_terms;
    // ln(2) in 10 bits, so that its multiples by exponents are exact, and the remainder.
    const float log = exponent * 0.6933594f + (log_m + exponent * -2.1219444e-4f);
    const float twice = -2.0f * log;
    const float radius = precise::sqrt(twice > 0.0f ? twice : 0.0f);
    // The nearest quarter turn, and the angle from it, at most an eighth.
    const uint quarter = (v + (1u << 29)) >> 30;
    const int rest = as_type<int>(v - (quarter << 30));
    const float t = float(rest) * 0x1.921fb6p-30f;
    const float z = t * t;
    float p = 1.0f / 362880.0f;
    p = p * z + -1.0f / 5040.0f;
    p = p * z + 1.0f / 120.0f;
    p = p * z + -1.0f / 6.0f;
    const float sine = t + t * z * p;
    float q = -1.0f / 3628800.0f;
    q = q * z + 1.0f / 40320.0f;
    q = q * z + -1.0f / 720.0f;
    q = q * z + 1.0f / 24.0f;
    q = q * z + -1.0f / 2.0f;
    const float cosine = 1.0f + z * q;
    const bool even = (quarter & 1) == 0;
    const uint x = as_type<uint>(even ? cosine : sine) ^ ((quarter + 1) >> 1 & 1) << 31;
    const uint y = as_type<uint>(even ? sine : cosine) ^ (quarter >> 1 & 1) << 31;
    return float2(radius * as_type<float>(x), radius * as_type<float>(y));
}

// The upper 64 bits of a product.
inline ulong mulhi_64(ulong a, ulong b) {
    const ulong a_high = a >> 32, a_low = a & 0xffffffff, b_high = b >> 32, b_low = b & 0xffffffff;
    const ulong middle = a_high * b_low + (a_low * b_low >> 32);
    const ulong other = a_low * b_high + (middle & 0xffffffff);
    return a_high * b_high + (middle >> 32) + (other >> 32);
}

inline float uniform_number(uint word, constant RandomArgs& args) {
    const float unit = as_type<float>((127 - args.bits) << 23);
    const float x = float(int(word >> (32 - args.bits))) * unit * args.range + args.low;
    return x < args.last ? x : args.last;
}

// Four numbers a thread: of two counters of the generator, or of four.
kernel void ENTRY(random)(device T* output, constant Extent& extent, constant RandomArgs& args,
                          uint2 at [[thread_position_in_grid]]) {
    const ThreadSpan span = thread_span(extent, at);
    T x[ELEMENTS_PER_THREAD];
    if (KIND == INTEGERS || (KIND == BITS && sizeof(T) == 8)) {
        for (uint k = 0; k < ELEMENTS_PER_THREAD; k++) {
            const uint2 words = threefry(args.key[0], args.key[1], span.to + k);
            const ulong block = ulong(words.y) << 32 | words.x;
            const ulong whole = KIND == BITS || args.width == 0 ? block : mulhi_64(block, args.width);
            x[k] = T(whole + args.start);
        }
    } else {
        for (uint k = 0; k < ELEMENTS_PER_THREAD; k += 2) {
            const uint2 words = threefry(args.key[0], args.key[1], (span.to + k) / 2);
            if (KIND == NORMAL) {
                const float2 both = normal_pair(words.x, words.y);
                x[k] = T(both.x);
                x[k + 1] = T(both.y);
                continue;
            }
            for (uint n = 0; n < 2; n++) {
                const uint word = words[n];
                x[k + n] = KIND == UNIFORM ? T(uniform_number(word, args))
                           : KIND == BITS  ? T(word >> (32 - min(32u, uint(sizeof(T)) * 8)))
                                           : T(ulong(word) < args.width ? 1 : 0);
            }
        }
    }
    store_elements<T>(x, output, span, true);
}
