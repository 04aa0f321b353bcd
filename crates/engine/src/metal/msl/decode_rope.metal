#include "types.h"
#include "decode_heads.h"
#include "rope.h"
#include "host/DecodeState.h"

// Norms of query and key heads, RoPE, and the write of keys to the cache: a SIMD-group each.

FUNCTION_CONSTANT(bool, INTERLEAVED);
// Whether keys of this token go to scratch memory, from which attention quantises them into the cache.
FUNCTION_CONSTANT(bool, FRESH);

// Maximum pairs of a lane.
#define HELD 4

kernel void ENTRY(decode_rope)(device float* q, device const float* k, device T* keys, device const float* q_norm,
                               device const float* k_norm, device const ulong* turns, device const DecodeState* state,
                               constant HeadArgs& heads, uint group [[threadgroup_position_in_grid]],
                               uint lane [[thread_index_in_simdgroup]],
                               uint simd_group [[simdgroup_index_in_threadgroup]],
                               uint simd_groups [[simdgroups_per_threadgroup]]) {
    const uint at = group * simd_groups + simd_group;
    if (at >= heads.heads + heads.kv_heads) {
        return;
    }
    const bool is_q = at < heads.heads;
    const uint head = is_q ? at : at - heads.heads;
    device const float* from = (is_q ? q : k) + head * heads.dim;
    device const float* norm = is_q ? q_norm : k_norm;
    const uint half_dim = heads.dim / 2;
    float2 held[HELD];
    float squares = 0;
    for (uint u = 0; u < HELD; u++) {
        const uint p = u * 32 + lane;
        held[u] = 0;
        if (p < half_dim) {
            const uint2 place = pair_place(heads, INTERLEAVED, p);
            held[u] = float2(from[place.x], from[place.y]);
        }
        squares += dot(held[u], held[u]);
    }
    const float scale = 1.0f / precise::sqrt(simd_sum(squares) / float(heads.dim) + heads.eps);
    const uint position = state->position;
    for (uint u = 0; u < HELD; u++) {
        const uint p = u * 32 + lane;
        if (p >= half_dim) {
            continue;
        }
        const uint2 place = pair_place(heads, INTERLEAVED, p);
        float2 pair = held[u] * scale * float2(norm[place.x], norm[place.y]);
        if (p < heads.pairs) {
            const float2 turn = cosine_and_sine(ulong(position) * turns[p]) * heads.factor;
            pair = float2(pair.x * turn.x - pair.y * turn.y, pair.y * turn.x + pair.x * turn.y);
        }
        if (is_q) {
            q[head * heads.dim + place.x] = pair.x;
            q[head * heads.dim + place.y] = pair.y;
        } else if (FRESH || position < heads.capacity) {
            const ulong cached = (FRESH ? ulong(head) : ulong(head) * heads.capacity + position) * heads.dim;
            keys[cached + place.x] = T(pair.x);
            keys[cached + place.y] = T(pair.y);
        }
    }
}
