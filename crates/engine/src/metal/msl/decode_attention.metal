#include "types.h"
#include "kv_cache.h"
#include "decode_heads.h"
#include "host/DecodeState.h"

// Attention of one token over the KV cache of its sequence, itself included (flash decoding). A threadgroup has a KV
// head, query heads that share it, and a split of the positions; its SIMD-groups take them in turn.

FUNCTION_CONSTANT(bool, CAP);
// Whether threadgroups split the positions: the output is then partial results for `decode_attention_merge`.
FUNCTION_CONSTANT(bool, SPLIT);
// Whether the cache already has the key and the value of the token, or this kernel quantises them into it.
FUNCTION_CONSTANT(bool, CACHED_KV);
FUNCTION_CONSTANT(bool, STAGED_KV);

// Query heads that are computed together, elements of a head per lane, and SIMD-groups, from the host.
// #define ROWS, LANE_DIMS, SIMDS

// Keys that a SIMD-group takes per step: their loads overlap, and the maximum changes once.
#define KEYS_PER_STEP (ROWS <= 2 ? 4 : 2)

// Minimum positions of a split.
#define MIN_SPLIT_POSITIONS 64

template <typename E> inline void lane_load(device const E* row, uint lane, uint dim, thread float* out) {
    const uint first = lane * LANE_DIMS;
#if LANE_DIMS % 4 == 0
    if (first + LANE_DIMS <= dim) {
        for (uint e = 0; e < LANE_DIMS; e += 4) {
            const float4 four = float4(*(device const vec<E, 4>*)(row + first + e));
            out[e] = four.x;
            out[e + 1] = four.y;
            out[e + 2] = four.z;
            out[e + 3] = four.w;
        }
        return;
    }
#endif
    for (uint e = 0; e < LANE_DIMS; e++) {
        out[e] = first + e < dim ? float(row[first + e]) : 0.0f;
    }
}

inline void lane_load(device const uchar* row, uint lane, uint dim, thread float* out) {
    const uint first = lane * LANE_DIMS;
    device const uchar* block = row + first / CACHE_BLOCK_LEN * CACHE_BLOCK_BYTES;
    device const uchar* levels = block + 2 + first % CACHE_BLOCK_LEN;
    const float scale = first < dim ? float(*(device const half*)block) : 0.0f;
#if LANE_DIMS % 4 == 0
    if (first + LANE_DIMS <= dim) {
        for (uint e = 0; e < LANE_DIMS; e += 4) {
            const float4 four = float4(char4(*(device const packed_char4*)(levels + e))) * scale;
            out[e] = four.x;
            out[e + 1] = four.y;
            out[e + 2] = four.z;
            out[e + 3] = four.w;
        }
        return;
    }
#endif
    for (uint e = 0; e < LANE_DIMS; e++) {
        out[e] = first + e < dim ? float(as_type<char>(levels[e])) * scale : 0.0f;
    }
}

// Reads the key or value of the token as later tokens read it from the cache, and writes it there if `store` is set.
inline void lane_quantise(device const float* from, device uchar* row, bool store, uint lane, uint dim,
                          thread float* out) {
    lane_load(from, lane, dim, out);
    float largest = 0;
    for (uint e = 0; e < LANE_DIMS; e++) {
        largest = max(largest, cache_magnitude(out[e]));
    }
    for (ushort bits = 1; bits < CACHE_BLOCK_LEN / LANE_DIMS; bits *= 2) {
        largest = max(largest, simd_shuffle_xor(largest, bits));
    }
    const CacheScale scale(largest);
    const uint first = lane * LANE_DIMS;
    device uchar* block = row + first / CACHE_BLOCK_LEN * CACHE_BLOCK_BYTES;
    if (store && first < dim && first % CACHE_BLOCK_LEN == 0) {
        *(device half*)block = scale.stored;
    }
    for (uint e = 0; e < LANE_DIMS; e++) {
        if (first + e < dim) {
            const int level = scale.level(out[e]);
            out[e] = float(level) * float(scale.stored);
            if (store) {
                block[2 + first % CACHE_BLOCK_LEN + e] = uchar(level);
            }
        }
    }
}

// Other types are written by the kernel that computes them.
template <typename E>
inline void lane_quantise(device const float*, device E*, bool, uint, uint, thread float*) {}

// The range of positions that the token attends to, and the length of a split.
inline uint3 visible_positions(device const DecodeState* state, constant HeadArgs& heads) {
    const uint high = min(state->position, heads.capacity - 1) + 1;
    const uint low = high > heads.window ? high - heads.window : 0;
    return uint3(low, high, max(uint(MIN_SPLIT_POSITIONS), (high - low + heads.splits - 1) / heads.splits));
}

// Factor that rescales weights from one maximum to a greater one (online softmax).
inline float rescale(float running_max, float new_max) {
    return running_max == -INFINITY ? 0.0f : precise::exp(running_max - new_max);
}

kernel void ENTRY(decode_attention)(device const float* q [[buffer(0)]],
                                    device const T* keys [[buffer(1), function_constant(CACHED_KV)]],
                                    device const T* values [[buffer(2), function_constant(CACHED_KV)]],
                                    device const DecodeState* state [[buffer(3)]], device float* output [[buffer(4)]],
                                    constant HeadArgs& heads [[buffer(5)]],
                                    device const float* staged_keys [[buffer(6), function_constant(STAGED_KV)]],
                                    device const float* staged_values [[buffer(7), function_constant(STAGED_KV)]],
                                    device T* cache_keys [[buffer(8), function_constant(STAGED_KV)]],
                                    device T* cache_values [[buffer(9), function_constant(STAGED_KV)]],
                                    uint3 group [[threadgroup_position_in_grid]],
                                    uint index [[thread_index_in_threadgroup]],
                                    uint lane [[thread_index_in_simdgroup]],
                                    uint simd_group [[simdgroup_index_in_threadgroup]]) {
    threadgroup float sums[SIMD_GROUPS * LANE_DIMS * 32];
    threadgroup float maxima[SIMD_GROUPS * ROWS];
    threadgroup float weight_sums[SIMD_GROUPS * ROWS];
    const uint dim = heads.dim;
    const uint group_heads = heads.heads / heads.kv_heads;
    const uint first = group.z * ROWS;
    const uint rows = min(uint(ROWS), group_heads - first);
    const uint first_head = group.y * group_heads + first;

    const uint3 visible = visible_positions(state, heads);
    const uint begin = visible[0] + group.x * visible[2];
    const uint end = min(visible[1], begin + visible[2]);
    if (begin >= end) {
        // An empty split: the merge does not read it.
        return;
    }

    float query[ROWS][LANE_DIMS];
    float sum[ROWS][LANE_DIMS];
    float running_max[ROWS];
    float running_sum[ROWS];
    for (uint r = 0; r < ROWS; r++) {
        running_max[r] = -INFINITY;
        running_sum[r] = 0;
        // Rows past the end repeat the last one.
        lane_load(q + (first_head + min(r, rows - 1)) * dim, lane, dim, query[r]);
        for (uint e = 0; e < LANE_DIMS; e++) {
            query[r][e] *= heads.scale;
            sum[r][e] = 0;
        }
    }
    const ulong row = KvCache<T>::row_len(dim), head_first = ulong(group.y) * heads.capacity * row;
    device const T* head_keys = (STAGED_KV ? cache_keys : keys) + head_first;
    device const T* head_values = (STAGED_KV ? cache_values : values) + head_first;
    // The token's own position, unless the cache is full.
    const uint own_position = STAGED_KV && state->position < heads.capacity ? state->position : ~0u;
    for (uint start = begin + simd_group * KEYS_PER_STEP; start < end; start += SIMD_GROUPS * KEYS_PER_STEP) {
        float key[KEYS_PER_STEP][LANE_DIMS];
        float value[KEYS_PER_STEP][LANE_DIMS];
        for (uint u = 0; u < KEYS_PER_STEP; u++) {
            const uint at = min(start + u, end - 1);
            if (STAGED_KV && at == own_position) {
                const bool store = start + u == own_position && group.z == 0;
                const uint staged_offset = group.y * dim;
                const ulong cache_offset = head_first + at * row;
                lane_quantise(staged_keys + staged_offset, cache_keys + cache_offset, store, lane, dim, key[u]);
                lane_quantise(staged_values + staged_offset, cache_values + cache_offset, store, lane, dim, value[u]);
            } else {
                lane_load(head_keys + at * row, lane, dim, key[u]);
                lane_load(head_values + at * row, lane, dim, value[u]);
            }
        }
        for (uint r = 0; r < ROWS; r++) {
            float scores[KEYS_PER_STEP];
            float new_max = running_max[r];
            for (uint u = 0; u < KEYS_PER_STEP; u++) {
                float product = 0;
                for (uint e = 0; e < LANE_DIMS; e++) {
                    product = fma(query[r][e], key[u][e], product);
                }
                product = simd_sum(product);
                if (CAP) {
                    product = heads.cap * precise::tanh(product / heads.cap);
                }
                scores[u] = start + u < end ? product : -INFINITY;
                new_max = max(new_max, scores[u]);
            }
            const float factor = rescale(running_max[r], new_max);
            running_max[r] = new_max;
            running_sum[r] *= factor;
            for (uint e = 0; e < LANE_DIMS; e++) {
                sum[r][e] *= factor;
            }
            for (uint u = 0; u < KEYS_PER_STEP; u++) {
                const float weight = rescale(scores[u], new_max);
                running_sum[r] += weight;
                for (uint e = 0; e < LANE_DIMS; e++) {
                    sum[r][e] = fma(weight, value[u][e], sum[r][e]);
                }
            }
        }
    }

    if (lane == 0) {
        for (uint r = 0; r < ROWS; r++) {
            maxima[simd_group * ROWS + r] = running_max[r];
            weight_sums[simd_group * ROWS + r] = running_sum[r];
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint r = 0; r < rows; r++) {
        float new_max = -INFINITY;
        for (uint s = 0; s < SIMD_GROUPS; s++) {
            new_max = max(new_max, maxima[s * ROWS + r]);
        }
        float weights = 0;
        for (uint s = 0; s < SIMD_GROUPS; s++) {
            weights += weight_sums[s * ROWS + r] * rescale(maxima[s * ROWS + r], new_max);
        }
        const float factor = rescale(running_max[r], new_max);
        for (uint e = 0; e < LANE_DIMS; e++) {
            sums[(simd_group * 32 + lane) * LANE_DIMS + e] = sum[r][e] * factor;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const uint head = first_head + r;
        const uint split = (head * heads.splits + group.x) * (dim + 2);
        for (uint d = index; d < dim; d += SIMD_GROUPS * 32) {
            float sum_of_splits = 0;
            for (uint s = 0; s < SIMD_GROUPS; s++) {
                sum_of_splits += sums[s * 32 * LANE_DIMS + d];
            }
            if (SPLIT) {
                output[split + 2 + d] = sum_of_splits;
            } else {
                output[head * dim + d] = sum_of_splits / weights;
            }
        }
        if (SPLIT && index == 0) {
            output[split] = new_max;
            output[split + 1] = weights;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

// Merges the splits of a head, with one threadgroup per head.
kernel void ENTRY(decode_attention_merge)(device const float* partials, device const DecodeState* state,
                                          device float* output,
                                          constant HeadArgs& heads, uint head [[threadgroup_position_in_grid]],
                                          uint index [[thread_position_in_threadgroup]],
                                          uint threads [[threads_per_threadgroup]]) {
    const uint width = heads.dim + 2;
    device const float* from = partials + head * heads.splits * width;
    const uint3 visible = visible_positions(state, heads);
    const uint used_splits = (visible[1] - visible[0] + visible[2] - 1) / visible[2];
    float new_max = -INFINITY;
    for (uint split = 0; split < used_splits; split++) {
        new_max = max(new_max, from[split * width]);
    }
    float weights = 0;
    for (uint split = 0; split < used_splits; split++) {
        weights += from[split * width + 1] * rescale(from[split * width], new_max);
    }
    for (uint d = index; d < heads.dim; d += threads) {
        float sum_of_splits = 0;
        for (uint split = 0; split < used_splits; split++) {
            sum_of_splits += from[split * width + 2 + d] * rescale(from[split * width], new_max);
        }
        output[head * heads.dim + d] = sum_of_splits / weights;
    }
}
