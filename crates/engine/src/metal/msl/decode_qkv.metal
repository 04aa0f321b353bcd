#include "decode_gemv.h"
#include "decode_heads.h"
#include "rope.h"

// Norm, queries, keys and values, biases, RoPE, and the write of keys and values to the cache.

FUNCTION_CONSTANT(bool, INTERLEAVED);
// Whether heads are normed before RoPE, which is then another launch's work, or rotated here.
FUNCTION_CONSTANT(bool, HEAD_NORMS);
FUNCTION_CONSTANT(bool, ROTATED);
// Whether keys and values of this token go to scratch memory, from which attention quantises them into the cache.
FUNCTION_CONSTANT(bool, STAGED_KV);

// Pairs of rows that a lane group computes together.
#define PAIRS (ROWS / 2)

// This lane's partial sums of the products of a head's rows with a vector.
template <int FORMAT>
inline void head_products(device const uchar* matrix, uint first_row, thread uint2* elements, NormedVector vector,
                          uint cols, uint lane, thread float* sums) {
    device const uchar* rows[ROWS];
    const ulong stride = Weights<FORMAT>::row_bytes(cols);
    for (uint r = 0; r < ROWS; r++) {
        rows[r] = matrix + (first_row + elements[r / 2][r % 2]) * stride;
    }
    row_products<FORMAT, ROWS>(rows, vector, cols, lane, sums);
}

kernel void ENTRY(decode_qkv)(device const float* x [[buffer(0)]],
                              device const float* block_output [[buffer(1), function_constant(POST_NORM)]],
                              device const float* post_norm [[buffer(2), function_constant(POST_NORM)]],
                              device float* next [[buffer(3), function_constant(POST_NORM)]],
                              device const float* norm [[buffer(4)]], device const uchar* wq [[buffer(5)]],
                              device const uchar* wk [[buffer(6)]], device const uchar* wv [[buffer(7)]],
                              device const float* bias [[buffer(8), function_constant(BIAS)]],
                              device const DecodeState* state [[buffer(9)]], device float* q [[buffer(10)]],
                              device T* values [[buffer(11)]],
                              device const ulong* frequencies [[buffer(12), function_constant(ROTATED)]],
                              device T* keys [[buffer(13), function_constant(ROTATED)]],
                              device float* unnormed_keys [[buffer(14), function_constant(HEAD_NORMS)]],
                              constant HeadArgs& heads [[buffer(15)]],
                              uint group [[threadgroup_position_in_grid]],
                              uint groups [[threadgroups_per_grid]],
                              uint index [[thread_index_in_threadgroup]],
                              uint threads [[threads_per_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]],
                              uint simd_group [[simdgroup_index_in_threadgroup]],
                              uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup float shared[32];
    const ThreadPosition thread_position{group, index, threads, lane, simd_group, simd_groups};
    device const float* block = x;
    device const float* post_weight = x;
    device float* next_residual = q;
    if (POST_NORM) {
        block = block_output;
        post_weight = post_norm;
        next_residual = next;
    }
    const float2 scales = norm_scales(x, block, post_weight, next_residual, heads.width, heads.eps, shared,
                                      thread_position);
    const NormedVector vector{x, block, post_weight, norm, scales.x};

    const LaneGroup lanes = lane_group(group, simd_group, simd_groups, lane);
    const uint half_dim = heads.dim / 2;
    const uint all = (heads.heads + 2 * heads.kv_heads) * half_dim;
    const uint position = state->position;
    for (uint pass = 0; pass < heads.repeats; pass++) {
        // Pairs past the last repeat the last ones, and are not written.
        const uint first_pair = (lanes.index + pass * lane_groups(groups, simd_groups)) * PAIRS;
        const uint first = min(first_pair, all - PAIRS);
        const uint head = first / half_dim;
        const bool is_q = head < heads.heads;
        const bool is_k = !is_q && head < heads.heads + heads.kv_heads;
        const uint heads_before = is_q ? 0 : is_k ? heads.heads : heads.heads + heads.kv_heads;
        uint2 elements[PAIRS];
        for (uint u = 0; u < PAIRS; u++) {
            elements[u] = pair_elements(heads, INTERLEAVED, first % half_dim + u);
        }
        const uint first_row = (head - heads_before) * heads.dim;
        float sums[ROWS];
#if Q_FORMAT == K_FORMAT && K_FORMAT == V_FORMAT
        head_products<Q_FORMAT>(is_q ? wq : is_k ? wk : wv, first_row, elements, vector, heads.width, lanes.lane, sums);
#else
        if (is_q) {
            head_products<Q_FORMAT>(wq, first_row, elements, vector, heads.width, lanes.lane, sums);
        } else if (is_k) {
            head_products<K_FORMAT>(wk, first_row, elements, vector, heads.width, lanes.lane, sums);
        } else {
            head_products<V_FORMAT>(wv, first_row, elements, vector, heads.width, lanes.lane, sums);
        }
#endif
        for (uint r = 0; r < ROWS; r++) {
            sums[r] = lane_group_sum(sums[r]) * scales.y;
        }
        if (lanes.lane != 0 || first_pair >= all) {
            continue;
        }
        if (BIAS) {
            for (uint r = 0; r < ROWS; r++) {
                sums[r] += bias[head * heads.dim + elements[r / 2][r % 2]];
            }
        }
        if (ROTATED && (is_q || is_k)) {
            for (uint u = 0; u < PAIRS; u++) {
                const uint p = first % half_dim + u;
                if (p < heads.pairs) {
                    const float2 angle = cosine_and_sine(ulong(position) * frequencies[p]) * heads.factor;
                    const float a = sums[2 * u], b = sums[2 * u + 1];
                    sums[2 * u] = a * angle.x - b * angle.y;
                    sums[2 * u + 1] = b * angle.x + a * angle.y;
                }
            }
        }
        const ulong kv_head = head - heads_before;
        const ulong cache_offset = (STAGED_KV ? kv_head : kv_head * heads.capacity + position) * heads.dim;
        for (uint r = 0; r < ROWS; r++) {
            const uint d = elements[r / 2][r % 2];
            if (is_q) {
                q[first_row + d] = sums[r];
            } else if (is_k && HEAD_NORMS) {
                unnormed_keys[first_row + d] = sums[r];
            } else if (STAGED_KV || position < heads.capacity) {
                if (is_k) {
                    keys[cache_offset + d] = T(sums[r]);
                } else {
                    values[cache_offset + d] = T(sums[r]);
                }
            }
        }
    }
}
