#include "decode.h"
#include "decode_heads.h"
#include "turn.h"

// Norm, queries, keys and values, biases, rotary embedding, and keys and values into the cache.

constant bool INTERLEAVED [[function_constant(3)]];
// Whether heads are normed before they are turned, which is then another launch's work, or turned here.
constant bool PLAIN_HEADS [[function_constant(4)]];
constant bool TURNED [[function_constant(5)]];

// Pairs of rows that lanes compute together.
#define PAIRS (ROWS / 2)

kernel void ENTRY(decode_qkv)(device const float* x [[buffer(0)]],
                              device const float* added [[buffer(1), function_constant(POST)]],
                              device const float* post [[buffer(2), function_constant(POST)]],
                              device float* next [[buffer(3), function_constant(POST)]],
                              device const float* norm [[buffer(4)]], device const uchar* wq [[buffer(5)]],
                              device const uchar* wk [[buffer(6)]], device const uchar* wv [[buffer(7)]],
                              device const float* bias [[buffer(8), function_constant(BIAS)]],
                              device const State* state [[buffer(9)]], device float* q [[buffer(10)]],
                              device T* values [[buffer(11)]],
                              device const ulong* turns [[buffer(12), function_constant(TURNED)]],
                              device T* keys [[buffer(13), function_constant(TURNED)]],
                              device float* plain_keys [[buffer(14), function_constant(PLAIN_HEADS)]],
                              constant Heads& heads [[buffer(15)]],
                              uint group [[threadgroup_position_in_grid]],
                              uint index [[thread_index_in_threadgroup]],
                              uint threads [[threads_per_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]],
                              uint simd_group [[simdgroup_index_in_threadgroup]],
                              uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup float shared[32];
    const Place place{group, index, threads, lane, simd_group, simd_groups};
    device const float* addend = x;
    device const float* post_weight = x;
    device float* complete = q;
    if (POST) {
        addend = added;
        post_weight = post;
        complete = next;
    }
    const float2 scales = norm_scales(x, addend, post_weight, complete, heads.width, heads.eps, shared, place);
    const Normed vector{x, addend, post_weight, norm, scales.x};

    // Which pairs: those past the last are the last ones again, and are not written.
    const Team own = team(group, simd_group, simd_groups, lane);
    const uint half_dim = heads.dim / 2;
    const uint all = (heads.heads + 2 * heads.kv_heads) * half_dim;
    const uint first = min(own.index * PAIRS, all - PAIRS);
    const uint head = first / half_dim;
    const bool is_q = head < heads.heads;
    const bool is_k = !is_q && head < heads.heads + heads.kv_heads;
    const uint before = is_q ? 0 : is_k ? heads.heads : heads.heads + heads.kv_heads;
    uint2 places[PAIRS];
    for (uint u = 0; u < PAIRS; u++) {
        places[u] = pair_place(heads, INTERLEAVED, first % half_dim + u);
    }
    device const uchar* rows[ROWS];
    float sums[ROWS];
    const uint first_row = (head - before) * heads.dim;
#if Q_FORMAT == K_FORMAT && K_FORMAT == V_FORMAT
    device const uchar* matrix = is_q ? wq : is_k ? wk : wv;
    const ulong stride = Weights<Q_FORMAT>::row_bytes(heads.width);
    for (uint r = 0; r < ROWS; r++) {
        rows[r] = matrix + (first_row + places[r / 2][r % 2]) * stride;
    }
    row_products<Q_FORMAT, ROWS>(rows, vector, heads.width, own.lane, sums);
#else
    if (is_q) {
        const ulong stride = Weights<Q_FORMAT>::row_bytes(heads.width);
        for (uint r = 0; r < ROWS; r++) {
            rows[r] = wq + (first_row + places[r / 2][r % 2]) * stride;
        }
        row_products<Q_FORMAT, ROWS>(rows, vector, heads.width, own.lane, sums);
    } else if (is_k) {
        const ulong stride = Weights<K_FORMAT>::row_bytes(heads.width);
        for (uint r = 0; r < ROWS; r++) {
            rows[r] = wk + (first_row + places[r / 2][r % 2]) * stride;
        }
        row_products<K_FORMAT, ROWS>(rows, vector, heads.width, own.lane, sums);
    } else {
        const ulong stride = Weights<V_FORMAT>::row_bytes(heads.width);
        for (uint r = 0; r < ROWS; r++) {
            rows[r] = wv + (first_row + places[r / 2][r % 2]) * stride;
        }
        row_products<V_FORMAT, ROWS>(rows, vector, heads.width, own.lane, sums);
    }
#endif
    for (uint r = 0; r < ROWS; r++) {
        sums[r] = team_sum(sums[r]) * scales.y;
    }
    if (own.lane != 0 || own.index * PAIRS >= all) {
        return;
    }
    if (BIAS) {
        for (uint r = 0; r < ROWS; r++) {
            sums[r] += bias[head * heads.dim + places[r / 2][r % 2]];
        }
    }
    const uint position = state->position;
    if (TURNED && (is_q || is_k)) {
        for (uint u = 0; u < PAIRS; u++) {
            const uint p = first % half_dim + u;
            if (p < heads.pairs) {
                const float2 turn = cosine_and_sine(ulong(position) * turns[p]) * heads.factor;
                const float a = sums[2 * u], b = sums[2 * u + 1];
                sums[2 * u] = a * turn.x - b * turn.y;
                sums[2 * u + 1] = b * turn.x + a * turn.y;
            }
        }
    }
    const ulong cached = (ulong(head - before) * heads.capacity + position) * heads.dim;
    for (uint r = 0; r < ROWS; r++) {
        const uint d = places[r / 2][r % 2];
        if (is_q) {
            q[first_row + d] = sums[r];
        } else if (is_k && PLAIN_HEADS) {
            plain_keys[first_row + d] = sums[r];
        } else if (position < heads.capacity) {
            if (is_k) {
                keys[cached + d] = T(sums[r]);
            } else {
                values[cached + d] = T(sums[r]);
            }
        }
    }
}
