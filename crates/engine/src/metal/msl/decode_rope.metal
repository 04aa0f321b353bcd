#include "types.h"
#include "decode_heads.h"
#include "rope.h"
#include "host/DecodeState.h"

// Norms of query and key heads, RoPE, and the write of keys to the cache: a SIMD-group each.

FUNCTION_CONSTANT(bool, INTERLEAVED);
// Whether keys of this token go to scratch memory, from which attention quantises them into the cache.
FUNCTION_CONSTANT(bool, STAGED_KV);

// Maximum pairs of a lane.
#define PAIRS_PER_LANE 4

kernel void ENTRY(decode_rope)(device float* q, device const float* k, device T* keys, device const float* q_norm,
                               device const float* k_norm, device const ulong* frequencies,
                               device const DecodeState* state,
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
    float2 pairs[PAIRS_PER_LANE];
    float squares = 0;
    for (uint u = 0; u < PAIRS_PER_LANE; u++) {
        const uint p = u * 32 + lane;
        pairs[u] = 0;
        if (p < half_dim) {
            const uint2 elements = pair_elements(heads, INTERLEAVED, p);
            pairs[u] = float2(from[elements.x], from[elements.y]);
        }
        squares += dot(pairs[u], pairs[u]);
    }
    const float scale = 1.0f / precise::sqrt(simd_sum(squares) / float(heads.dim) + heads.eps);
    const uint position = state->position;
    for (uint u = 0; u < PAIRS_PER_LANE; u++) {
        const uint p = u * 32 + lane;
        if (p >= half_dim) {
            continue;
        }
        const uint2 elements = pair_elements(heads, INTERLEAVED, p);
        float2 pair = pairs[u] * scale * float2(norm[elements.x], norm[elements.y]);
        if (p < heads.pairs) {
            const float2 angle = cosine_and_sine(ulong(position) * frequencies[p]) * heads.factor;
            pair = float2(pair.x * angle.x - pair.y * angle.y, pair.y * angle.x + pair.x * angle.y);
        }
        if (is_q) {
            q[head * heads.dim + elements.x] = pair.x;
            q[head * heads.dim + elements.y] = pair.y;
        } else if (STAGED_KV || position < heads.capacity) {
            const ulong cache_offset = (STAGED_KV ? ulong(head) : ulong(head) * heads.capacity + position) * heads.dim;
            keys[cache_offset + elements.x] = T(pair.x);
            keys[cache_offset + elements.y] = T(pair.y);
        }
    }
}
