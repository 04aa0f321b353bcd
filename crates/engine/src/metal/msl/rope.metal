#include "types.h"
#include "rope.h"
#include "view.h"
#include "host/RopeArgs.h"

// Whether neighbours make a pair, not elements half the rotated ones apart.
FUNCTION_CONSTANT(bool, INTERLEAVED);
// Whether positions are given.
FUNCTION_CONSTANT(bool, GIVEN);
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
kernel void ENTRY(rope)(device const T* input, device const ulong* turns, device const P* positions,
                        device T* output, constant RopeArgs& rotation,
                        uint3 at [[thread_position_in_grid]]) {
    const uint seq = at.y;
    const uint first = at.z * HEADS;
    const uint last = min(first + HEADS, rotation.outer);
    const uint inner = rotation.walk.dims[rotation.walk.rank - 1];
    if (at.x >= rotation.pairs) {
        const uint i = at.x + rotation.pairs;
        for (uint head = first; head < last; head++) {
            const long from = place(rotation.walk, rotation.steps, uint2(head % inner, head / inner));
            const ulong to = (ulong(head) * rotation.seq + seq) * rotation.dim;
            output[to + i] = input[from + long(seq) * rotation.row_stride + long(i) * rotation.stride];
        }
        return;
    }
    const long entry = rotation.table_offset + long(at.x) * rotation.table_stride;
    const ulong fraction = turns[entry];
    const ulong whole = turns[entry + rotation.table_whole];
    ulong turned;
    if (GIVEN) {
        const long place = rotation.at_offset + long(first / rotation.same) * rotation.at_batch +
                           long(seq) * rotation.at_stride;
        turned = angle(positions[place], fraction, whole);
    } else {
        turned = angle(long(rotation.first + seq), fraction, whole);
    }
    const float2 turn = cosine_and_sine(turned);
    const C c = turn.x * rotation.factor;
    const C s = turn.y * rotation.factor;
    const uint i = INTERLEAVED ? 2 * at.x : at.x;
    const uint j = INTERLEAVED ? i + 1 : at.x + rotation.pairs;
    for (uint head = first; head < last; head++) {
        const long from = place(rotation.walk, rotation.steps, uint2(head % inner, head / inner)) +
                          long(seq) * rotation.row_stride;
        const ulong to = (ulong(head) * rotation.seq + seq) * rotation.dim;
        const C a = C(input[from + long(i) * rotation.stride]);
        const C b = C(input[from + long(j) * rotation.stride]);
        output[to + i] = T(fma(a, c, -(b * s)));
        output[to + j] = T(fma(b, c, a * s));
    }
}
