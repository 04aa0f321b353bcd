#include "types.h"
#include "rope.h"
#include "view.h"
#include "host/RopeArgs.h"

// Whether neighbours make a pair, not elements half the rotated ones apart.
FUNCTION_CONSTANT(bool, INTERLEAVED);
// Whether positions are given.
FUNCTION_CONSTANT(bool, POSITIONS);
// Heads that a thread rotates by the same angle.
FUNCTION_CONSTANT(uint, HEADS);

typedef computed_t<T> C;

// An angle in units of 2^-64 turns: products wrap, so that whole turns do not matter. Positions are integers or floats.
inline ulong angle(long position, ulong fraction, ulong) {
    return ulong(position) * fraction;
}

inline ulong angle(float position, ulong fraction, ulong whole) {
    const float below = floor(position);
    // Both conversions are exact, or the position is so large that it has no fraction.
    const ulong part = ulong((position - below) * 0x1p32f) << 32;
    return ulong(long(below)) * fraction + mulhi(part, fraction) + part * whole;
}

// A pair of a row for some heads, or an element past the rotated ones.
kernel void ENTRY(rope)(device const T* input, device const ulong* frequencies, device const P* positions,
                        device T* output, constant RopeArgs& rotation,
                        uint3 at [[thread_position_in_grid]]) {
    const uint seq = at.y;
    const uint first = at.z * HEADS;
    const uint last = min(first + HEADS, rotation.outer);
    const uint inner = rotation.walk.dims[rotation.walk.rank - 1];
    if (at.x >= rotation.pairs) {
        const uint i = at.x + rotation.pairs;
        for (uint head = first; head < last; head++) {
            const long from = view_offset(rotation.walk, rotation.view, uint2(head % inner, head / inner));
            const ulong to = (ulong(head) * rotation.seq + seq) * rotation.dim;
            output[to + i] = input[from + long(seq) * rotation.row_stride + long(i) * rotation.stride];
        }
        return;
    }
    const long entry = rotation.table_offset + long(at.x) * rotation.table_stride;
    const ulong fraction = frequencies[entry];
    const ulong whole = frequencies[entry + rotation.table_whole];
    ulong turns_64;
    if (POSITIONS) {
        const long position_index = rotation.position_offset + long(first / rotation.sharing) * rotation.position_batch +
                           long(seq) * rotation.position_stride;
        turns_64 = angle(positions[position_index], fraction, whole);
    } else {
        turns_64 = angle(long(rotation.first + seq), fraction, whole);
    }
    const float2 cos_sin = cosine_and_sine(turns_64);
    const C c = cos_sin.x * rotation.factor;
    const C s = cos_sin.y * rotation.factor;
    const uint i = INTERLEAVED ? 2 * at.x : at.x;
    const uint j = INTERLEAVED ? i + 1 : at.x + rotation.pairs;
    for (uint head = first; head < last; head++) {
        const long from = view_offset(rotation.walk, rotation.view, uint2(head % inner, head / inner)) +
                          long(seq) * rotation.row_stride;
        const ulong to = (ulong(head) * rotation.seq + seq) * rotation.dim;
        const C a = C(input[from + long(i) * rotation.stride]);
        const C b = C(input[from + long(j) * rotation.stride]);
        output[to + i] = T(fma(a, c, -(b * s)));
        output[to + j] = T(fma(b, c, a * s));
    }
}
