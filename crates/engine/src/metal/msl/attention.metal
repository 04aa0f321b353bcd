#include "attention.h"

// Few queries: the keys are split among SIMD-groups and, if they are many, among threadgroups (flash decoding). Rows of
// queries that share a KV head are computed together.

// Rows that are computed together, elements of a row per lane, and SIMD-groups of a threadgroup, from the host.
// #define ROWS, LANE_DIMS, SIMDS

// Keys that a SIMD-group takes per step: their loads overlap, and the maximum changes once.
#define KEYS_PER_STEP (ROWS == 1 ? 4 : 2)

inline void lane_load(device const T* row, uint lane, uint dim, thread float* out) {
    const uint first = lane * LANE_DIMS;
    if (VECTOR && first + LANE_DIMS <= dim) {
        for (uint e = 0; e < LANE_DIMS; e += 4) {
            const vec<T, 4> four = *(device const vec<T, 4>*)(row + first + e);
            for (uint k = 0; k < 4; k++) {
                out[e + k] = float(four[k]);
            }
        }
        return;
    }
    for (uint e = 0; e < LANE_DIMS; e++) {
        out[e] = first + e < dim ? float(row[first + e]) : 0.0f;
    }
}

// A split of the keys of a head for some rows. Writes the result, or for each row and split the maximum, the sum of
// weights and the weighted sum of values.
kernel void ENTRY(attention_decode)(device const T* q, device const T* k, device const T* v,
                                    device const uchar* mask, device uchar* target,
                                    constant AttentionArgs& args, BAND_ARGUMENT,
                                    uint3 group [[threadgroup_position_in_grid]],
                                    uint index [[thread_index_in_threadgroup]],
                                    uint lane [[thread_index_in_simdgroup]],
                                    uint simd_group [[simdgroup_index_in_threadgroup]],
                                    uint simd_groups [[simdgroups_per_threadgroup]]) {
    if (BANDED) {
        group += band.origin;
    }
    threadgroup float sums[SIMD_GROUPS * LANE_DIMS * 32];
    threadgroup float maxima[SIMD_GROUPS * ROWS];
    threadgroup float weight_sums[SIMD_GROUPS * ROWS];
    const uint kv_heads = args.heads / args.group;
    const uint batch = group.y / kv_heads;
    const uint kv_head = group.y % kv_heads;
    const uint first = group.z * ROWS;
    const uint rows = min(uint(ROWS), args.group * args.queries - first);

    float query[ROWS][LANE_DIMS];
    float sum[ROWS][LANE_DIMS];
    float running_max[ROWS];
    float running_sum[ROWS];
    uint2 visible[ROWS];
    uint low = args.keys;
    uint high = 0;
    for (uint r = 0; r < ROWS; r++) {
        running_max[r] = -INFINITY;
        running_sum[r] = 0;
        visible[r] = uint2(0, 0);
        for (uint e = 0; e < LANE_DIMS; e++) {
            query[r][e] = 0;
            sum[r][e] = 0;
        }
        if (r < rows) {
            const uint head = kv_head * args.group + (first + r) / args.queries;
            const uint i = (first + r) % args.queries;
            lane_load(q + args.q_offset + long(batch) * args.q[0] + long(head) * args.q[1] +
                          long(i) * args.q[2],
                      lane, args.dim, query[r]);
            visible[r] = visible_keys(args, i);
            low = min(low, visible[r][0]);
            high = max(high, visible[r][1]);
        }
    }
    const uint chunk = high > low ? (high - low + args.splits - 1) / args.splits : 0;
    const uint begin = low + group.x * chunk;
    const uint end = min(high, begin + chunk);
    device const T* keys =
        k + args.k_offset + long(batch) * args.k[0] + long(kv_head) * args.k[1];
    device const T* values =
        v + args.v_offset + long(batch) * args.v[0] + long(kv_head) * args.v[1];
    for (uint start = begin + simd_group * KEYS_PER_STEP; start < end; start += simd_groups * KEYS_PER_STEP) {
        float key_values[KEYS_PER_STEP][LANE_DIMS];
        float value[KEYS_PER_STEP][LANE_DIMS];
        for (uint u = 0; u < KEYS_PER_STEP; u++) {
            // Keys past the end repeat the last one.
            const long key = min(start + u, end - 1);
            lane_load(keys + key * args.k[2], lane, args.dim, key_values[u]);
            lane_load(values + key * args.v[2], lane, args.value_dim, value[u]);
        }
        for (uint r = 0; r < ROWS; r++) {
            const uint head = kv_head * args.group + (first + r) / args.queries;
            const uint i = (first + r) % args.queries;
            float scores[KEYS_PER_STEP];
            float new_max = running_max[r];
            for (uint u = 0; u < KEYS_PER_STEP; u++) {
                float product = 0;
                for (uint e = 0; e < LANE_DIMS; e++) {
                    product = fma(query[r][e], key_values[u][e], product);
                }
                product = simd_sum(product);
                const uint key = start + u;
                scores[u] = -INFINITY;
                if (key < end && key >= visible[r][0] && key < visible[r][1]) {
                    scores[u] = score(product, args, mask, batch, head, i, key);
                }
                new_max = max_or_nan(new_max, scores[u]);
            }
            const float factor = rescale(running_max[r], new_max);
            running_max[r] = new_max;
            running_sum[r] *= factor;
            for (uint e = 0; e < LANE_DIMS; e++) {
                sum[r][e] *= factor;
            }
            for (uint u = 0; u < KEYS_PER_STEP; u++) {
                // Hidden keys add nothing, whatever their value.
                if (scores[u] != -INFINITY) {
                    const float weight = precise::exp(scores[u] - new_max);
                    running_sum[r] += weight;
                    for (uint e = 0; e < LANE_DIMS; e++) {
                        sum[r][e] = fma(weight, value[u][e], sum[r][e]);
                    }
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
        for (uint s = 0; s < simd_groups; s++) {
            new_max = max_or_nan(new_max, maxima[s * ROWS + r]);
        }
        float weights = 0;
        for (uint s = 0; s < simd_groups; s++) {
            weights += weight_sums[s * ROWS + r] * rescale(maxima[s * ROWS + r], new_max);
        }
        const float factor = rescale(running_max[r], new_max);
        for (uint e = 0; e < LANE_DIMS; e++) {
            sums[(simd_group * 32 + lane) * LANE_DIMS + e] = sum[r][e] * factor;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const uint head = kv_head * args.group + (first + r) / args.queries;
        const uint i = (first + r) % args.queries;
        const ulong row = (ulong(batch) * args.heads + head) * args.queries + i;
        const ulong partial_offset = (row * args.splits + group.x) * (args.value_dim + 2);
        for (uint d = index; d < args.value_dim; d += simd_groups * 32) {
            float all = 0;
            for (uint s = 0; s < simd_groups; s++) {
                all += sums[s * 32 * LANE_DIMS + d];
            }
            if (args.splits == 1) {
                device T* output = (device T*)target;
                output[row * args.value_dim + d] = T(weights == 0 ? 0.0f : all / weights);
            } else {
                ((device float*)target)[partial_offset + 2 + d] = all;
            }
        }
        if (args.splits > 1 && index == 0) {
            ((device float*)target)[partial_offset] = new_max;
            ((device float*)target)[partial_offset + 1] = weights;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

// Merges the splits of a row, with one threadgroup per row.
kernel void ENTRY(attention_merge)(device const float* partial, device T* output, constant AttentionArgs& args,
                                   uint row [[threadgroup_position_in_grid]],
                                   uint index [[thread_position_in_threadgroup]],
                                   uint threads [[threads_per_threadgroup]]) {
    const uint width = args.value_dim + 2;
    device const float* from = partial + ulong(row) * args.splits * width;
    float new_max = -INFINITY;
    for (uint split = 0; split < args.splits; split++) {
        new_max = max_or_nan(new_max, from[split * width]);
    }
    float weights = 0;
    for (uint split = 0; split < args.splits; split++) {
        weights += from[split * width + 1] * rescale(from[split * width], new_max);
    }
    for (uint d = index; d < args.value_dim; d += threads) {
        float all = 0;
        for (uint split = 0; split < args.splits; split++) {
            all += from[split * width + 2 + d] * rescale(from[split * width], new_max);
        }
        output[ulong(row) * args.value_dim + d] = T(weights == 0 ? 0.0f : all / weights);
    }
}
