#include "types.h"
#include "cache.h"
#include "decode_heads.h"
#include "host/DecodeState.h"

// Attention of one token over the KV cache of its sequence, itself included (flash decoding). A threadgroup has a KV
// head, query heads that share it, and a split of the positions; its SIMD-groups take them in turn.

FUNCTION_CONSTANT(bool, CAP);
// Whether threadgroups split the positions: the output is then partial results for `decode_attention_merge`.
FUNCTION_CONSTANT(bool, SPLIT);
// Whether the cache already has the key and the value of the token, or this kernel quantises them into it.
FUNCTION_CONSTANT(bool, KEPT);
FUNCTION_CONSTANT(bool, FRESH);

// Query heads that are computed together, elements of a head per lane, and SIMD-groups, from the host.
// #define ROWS, LANE_DIMS, SIMDS

// Keys that a SIMD-group takes per step: their loads overlap, and the maximum changes once.
#define AT_ONCE (ROWS <= 2 ? 4 : 2)

// Minimum positions of a split.
#define LEAST 64

template <typename E> inline void lane_read(device const E* row, uint lane, uint dim, thread float* held) {
    const uint first = lane * LANE_DIMS;
#if LANE_DIMS % 4 == 0
    if (first + LANE_DIMS <= dim) {
        for (uint e = 0; e < LANE_DIMS; e += 4) {
            const float4 four = float4(*(device const vec<E, 4>*)(row + first + e));
            held[e] = four.x;
            held[e + 1] = four.y;
            held[e + 2] = four.z;
            held[e + 3] = four.w;
        }
        return;
    }
#endif
    for (uint e = 0; e < LANE_DIMS; e++) {
        held[e] = first + e < dim ? float(row[first + e]) : 0.0f;
    }
}

inline void lane_read(device const uchar* row, uint lane, uint dim, thread float* held) {
    const uint first = lane * LANE_DIMS;
    device const uchar* block = row + first / CACHE_GROUP * CACHE_BYTES;
    device const uchar* levels = block + 2 + first % CACHE_GROUP;
    const float scale = first < dim ? float(*(device const half*)block) : 0.0f;
#if LANE_DIMS % 4 == 0
    if (first + LANE_DIMS <= dim) {
        for (uint e = 0; e < LANE_DIMS; e += 4) {
            const float4 four = float4(char4(*(device const packed_char4*)(levels + e))) * scale;
            held[e] = four.x;
            held[e + 1] = four.y;
            held[e + 2] = four.z;
            held[e + 3] = four.w;
        }
        return;
    }
#endif
    for (uint e = 0; e < LANE_DIMS; e++) {
        held[e] = first + e < dim ? float(as_type<char>(levels[e])) * scale : 0.0f;
    }
}

// Reads the key or value of the token as later tokens read it from the cache, and writes it there if `keep` is set.
inline void lane_keep(device const float* from, device uchar* row, bool keep, uint lane, uint dim, thread float* held) {
    lane_read(from, lane, dim, held);
    float largest = 0;
    for (uint e = 0; e < LANE_DIMS; e++) {
        largest = max(largest, cache_size(held[e]));
    }
    for (ushort bits = 1; bits < CACHE_GROUP / LANE_DIMS; bits *= 2) {
        largest = max(largest, simd_shuffle_xor(largest, bits));
    }
    const CacheScale scale(largest);
    const uint first = lane * LANE_DIMS;
    device uchar* block = row + first / CACHE_GROUP * CACHE_BYTES;
    if (keep && first < dim && first % CACHE_GROUP == 0) {
        *(device half*)block = scale.kept;
    }
    for (uint e = 0; e < LANE_DIMS; e++) {
        if (first + e < dim) {
            const int level = scale.level(held[e]);
            held[e] = float(level) * float(scale.kept);
            if (keep) {
                block[2 + first % CACHE_GROUP + e] = uchar(level);
            }
        }
    }
}

// Other types are written by the kernel that computes them.
template <typename E>
inline void lane_keep(device const float*, device E*, bool, uint, uint, thread float*) {}

// The range of positions that the token attends to, and the length of a split.
inline uint3 reach(device const DecodeState* state, constant HeadArgs& heads) {
    const uint high = min(state->position, heads.capacity - 1) + 1;
    const uint low = high > heads.window ? high - heads.window : 0;
    return uint3(low, high, max(uint(LEAST), (high - low + heads.splits - 1) / heads.splits));
}

// Factor that rescales weights from one maximum to a greater one (online softmax).
inline float seen_from(float top, float most) {
    return top == -INFINITY ? 0.0f : precise::exp(top - most);
}

kernel void ENTRY(decode_attention)(device const float* q [[buffer(0)]],
                                    device const T* keys [[buffer(1), function_constant(KEPT)]],
                                    device const T* values [[buffer(2), function_constant(KEPT)]],
                                    device const DecodeState* state [[buffer(3)]], device float* target [[buffer(4)]],
                                    constant HeadArgs& heads [[buffer(5)]],
                                    device const float* new_keys [[buffer(6), function_constant(FRESH)]],
                                    device const float* new_values [[buffer(7), function_constant(FRESH)]],
                                    device T* kept_keys [[buffer(8), function_constant(FRESH)]],
                                    device T* kept_values [[buffer(9), function_constant(FRESH)]],
                                    uint3 group [[threadgroup_position_in_grid]],
                                    uint index [[thread_index_in_threadgroup]],
                                    uint lane [[thread_index_in_simdgroup]],
                                    uint simd_group [[simdgroup_index_in_threadgroup]]) {
    threadgroup float sums[SIMDS * LANE_DIMS * 32];
    threadgroup float tops[SIMDS * ROWS];
    threadgroup float totals[SIMDS * ROWS];
    const uint dim = heads.dim;
    const uint shared = heads.heads / heads.kv_heads;
    const uint first = group.z * ROWS;
    const uint rows = min(uint(ROWS), shared - first);
    const uint first_head = group.y * shared + first;

    const uint3 seen = reach(state, heads);
    const uint begin = seen[0] + group.x * seen[2];
    const uint end = min(seen[1], begin + seen[2]);
    if (begin >= end) {
        // An empty split: the merge does not read it.
        return;
    }

    float query[ROWS][LANE_DIMS];
    float sum[ROWS][LANE_DIMS];
    float top[ROWS];
    float total[ROWS];
    for (uint r = 0; r < ROWS; r++) {
        top[r] = -INFINITY;
        total[r] = 0;
        // Rows past the end repeat the last one.
        lane_read(q + (first_head + min(r, rows - 1)) * dim, lane, dim, query[r]);
        for (uint e = 0; e < LANE_DIMS; e++) {
            query[r][e] *= heads.scale;
            sum[r][e] = 0;
        }
    }
    const ulong row = Cached<T>::row(dim), head_first = ulong(group.y) * heads.capacity * row;
    device const T* head_keys = (FRESH ? kept_keys : keys) + head_first;
    device const T* head_values = (FRESH ? kept_values : values) + head_first;
    // The token's own position, unless the cache is full.
    const uint fresh = FRESH && state->position < heads.capacity ? state->position : ~0u;
    for (uint start = begin + simd_group * AT_ONCE; start < end; start += SIMDS * AT_ONCE) {
        float key[AT_ONCE][LANE_DIMS];
        float value[AT_ONCE][LANE_DIMS];
        for (uint u = 0; u < AT_ONCE; u++) {
            const uint at = min(start + u, end - 1);
            if (FRESH && at == fresh) {
                const bool keep = start + u == fresh && group.z == 0;
                const uint head_new = group.y * dim;
                const ulong place = head_first + at * row;
                lane_keep(new_keys + head_new, kept_keys + place, keep, lane, dim, key[u]);
                lane_keep(new_values + head_new, kept_values + place, keep, lane, dim, value[u]);
            } else {
                lane_read(head_keys + at * row, lane, dim, key[u]);
                lane_read(head_values + at * row, lane, dim, value[u]);
            }
        }
        for (uint r = 0; r < ROWS; r++) {
            float found[AT_ONCE];
            float most = top[r];
            for (uint u = 0; u < AT_ONCE; u++) {
                float product = 0;
                for (uint e = 0; e < LANE_DIMS; e++) {
                    product = fma(query[r][e], key[u][e], product);
                }
                product = simd_sum(product);
                if (CAP) {
                    product = heads.cap * precise::tanh(product / heads.cap);
                }
                found[u] = start + u < end ? product : -INFINITY;
                most = max(most, found[u]);
            }
            const float factor = seen_from(top[r], most);
            top[r] = most;
            total[r] *= factor;
            for (uint e = 0; e < LANE_DIMS; e++) {
                sum[r][e] *= factor;
            }
            for (uint u = 0; u < AT_ONCE; u++) {
                const float weight = seen_from(found[u], most);
                total[r] += weight;
                for (uint e = 0; e < LANE_DIMS; e++) {
                    sum[r][e] = fma(weight, value[u][e], sum[r][e]);
                }
            }
        }
    }

    if (lane == 0) {
        for (uint r = 0; r < ROWS; r++) {
            tops[simd_group * ROWS + r] = top[r];
            totals[simd_group * ROWS + r] = total[r];
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint r = 0; r < rows; r++) {
        float most = -INFINITY;
        for (uint s = 0; s < SIMDS; s++) {
            most = max(most, tops[s * ROWS + r]);
        }
        float weights = 0;
        for (uint s = 0; s < SIMDS; s++) {
            weights += totals[s * ROWS + r] * seen_from(tops[s * ROWS + r], most);
        }
        const float factor = seen_from(top[r], most);
        for (uint e = 0; e < LANE_DIMS; e++) {
            sums[(simd_group * 32 + lane) * LANE_DIMS + e] = sum[r][e] * factor;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const uint head = first_head + r;
        const uint part = (head * heads.splits + group.x) * (dim + 2);
        for (uint d = index; d < dim; d += SIMDS * 32) {
            float all = 0;
            for (uint s = 0; s < SIMDS; s++) {
                all += sums[s * 32 * LANE_DIMS + d];
            }
            if (SPLIT) {
                target[part + 2 + d] = all;
            } else {
                target[head * dim + d] = all / weights;
            }
        }
        if (SPLIT && index == 0) {
            target[part] = most;
            target[part + 1] = weights;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

// Merges the splits of a head, with one threadgroup per head.
kernel void ENTRY(decode_join)(device const float* parts, device const DecodeState* state, device float* mixed,
                               constant HeadArgs& heads, uint head [[threadgroup_position_in_grid]],
                               uint index [[thread_position_in_threadgroup]],
                               uint threads [[threads_per_threadgroup]]) {
    const uint width = heads.dim + 2;
    device const float* from = parts + head * heads.splits * width;
    const uint3 seen = reach(state, heads);
    const uint used = (seen[1] - seen[0] + seen[2] - 1) / seen[2];
    float most = -INFINITY;
    for (uint part = 0; part < used; part++) {
        most = max(most, from[part * width]);
    }
    float weights = 0;
    for (uint part = 0; part < used; part++) {
        weights += from[part * width + 1] * seen_from(from[part * width], most);
    }
    for (uint d = index; d < heads.dim; d += threads) {
        float all = 0;
        for (uint part = 0; part < used; part++) {
            all += from[part * width + 2 + d] * seen_from(from[part * width], most);
        }
        mixed[head * heads.dim + d] = all / weights;
    }
}
