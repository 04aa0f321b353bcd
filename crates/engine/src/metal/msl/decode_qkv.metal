#include "decode.h"
#include "decode_heads.h"
#include "rope.h"

// Norm, queries, keys and values, biases, RoPE, and the write of keys and values to the cache.

FUNCTION_CONSTANT(bool, INTERLEAVED);
// Whether heads are normed before RoPE, which is then another launch's work, or rotated here.
FUNCTION_CONSTANT(bool, PLAIN_HEADS);
FUNCTION_CONSTANT(bool, TURNED);
// Whether keys and values of this token go to scratch memory, from which attention quantises them into the cache.
FUNCTION_CONSTANT(bool, FRESH);

// Pairs of rows that a lane group computes together.
#define PAIRS (ROWS / 2)

// This lane's partial sums of the products of a head's rows with a vector.
template <int FORMAT>
inline void head_products(device const uchar* matrix, uint first_row, thread uint2* places, Normed vector, uint cols,
                          uint lane, thread float* sums) {
    device const uchar* rows[ROWS];
    const ulong stride = Weights<FORMAT>::row_bytes(cols);
    for (uint r = 0; r < ROWS; r++) {
        rows[r] = matrix + (first_row + places[r / 2][r % 2]) * stride;
    }
    row_products<FORMAT, ROWS>(rows, vector, cols, lane, sums);
}

kernel void ENTRY(decode_qkv)(device const float* x [[buffer(0)]],
                              device const float* added [[buffer(1), function_constant(POST)]],
                              device const float* post [[buffer(2), function_constant(POST)]],
                              device float* next [[buffer(3), function_constant(POST)]],
                              device const float* norm [[buffer(4)]], device const uchar* wq [[buffer(5)]],
                              device const uchar* wk [[buffer(6)]], device const uchar* wv [[buffer(7)]],
                              device const float* bias [[buffer(8), function_constant(BIAS)]],
                              device const DecodeState* state [[buffer(9)]], device float* q [[buffer(10)]],
                              device T* values [[buffer(11)]],
                              device const ulong* turns [[buffer(12), function_constant(TURNED)]],
                              device T* keys [[buffer(13), function_constant(TURNED)]],
                              device float* plain_keys [[buffer(14), function_constant(PLAIN_HEADS)]],
                              constant HeadArgs& heads [[buffer(15)]],
                              uint group [[threadgroup_position_in_grid]],
                              uint groups [[threadgroups_per_grid]],
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

    const Team own = team(group, simd_group, simd_groups, lane);
    const uint half_dim = heads.dim / 2;
    const uint all = (heads.heads + 2 * heads.kv_heads) * half_dim;
    const uint position = state->position;
    for (uint turn = 0; turn < heads.repeats; turn++) {
        // Pairs past the last repeat the last ones, and are not written.
        const uint wanted = (own.index + turn * teams(groups, simd_groups)) * PAIRS;
        const uint first = min(wanted, all - PAIRS);
        const uint head = first / half_dim;
        const bool is_q = head < heads.heads;
        const bool is_k = !is_q && head < heads.heads + heads.kv_heads;
        const uint before = is_q ? 0 : is_k ? heads.heads : heads.heads + heads.kv_heads;
        uint2 places[PAIRS];
        for (uint u = 0; u < PAIRS; u++) {
            places[u] = pair_place(heads, INTERLEAVED, first % half_dim + u);
        }
        const uint first_row = (head - before) * heads.dim;
        float sums[ROWS];
#if Q_FORMAT == K_FORMAT && K_FORMAT == V_FORMAT
        head_products<Q_FORMAT>(is_q ? wq : is_k ? wk : wv, first_row, places, vector, heads.width, own.lane, sums);
#else
        if (is_q) {
            head_products<Q_FORMAT>(wq, first_row, places, vector, heads.width, own.lane, sums);
        } else if (is_k) {
            head_products<K_FORMAT>(wk, first_row, places, vector, heads.width, own.lane, sums);
        } else {
            head_products<V_FORMAT>(wv, first_row, places, vector, heads.width, own.lane, sums);
        }
#endif
        for (uint r = 0; r < ROWS; r++) {
            sums[r] = team_sum(sums[r]) * scales.y;
        }
        if (own.lane != 0 || wanted >= all) {
            continue;
        }
        if (BIAS) {
            for (uint r = 0; r < ROWS; r++) {
                sums[r] += bias[head * heads.dim + places[r / 2][r % 2]];
            }
        }
        if (TURNED && (is_q || is_k)) {
            for (uint u = 0; u < PAIRS; u++) {
                const uint p = first % half_dim + u;
                if (p < heads.pairs) {
                    const float2 angle = cosine_and_sine(ulong(position) * turns[p]) * heads.factor;
                    const float a = sums[2 * u], b = sums[2 * u + 1];
                    sums[2 * u] = a * angle.x - b * angle.y;
                    sums[2 * u + 1] = b * angle.x + a * angle.y;
                }
            }
        }
        const ulong kv_head = head - before;
        const ulong cached = (FRESH ? kv_head : kv_head * heads.capacity + position) * heads.dim;
        for (uint r = 0; r < ROWS; r++) {
            const uint d = places[r / 2][r % 2];
            if (is_q) {
                q[first_row + d] = sums[r];
            } else if (is_k && PLAIN_HEADS) {
                plain_keys[first_row + d] = sums[r];
            } else if (FRESH || position < heads.capacity) {
                if (is_k) {
                    keys[cached + d] = T(sums[r]);
                } else {
                    values[cached + d] = T(sums[r]);
                }
            }
        }
    }
}
