#include "attention.h"

// Few queries: the keys are split among SIMD-groups and, if they are many, among threadgroups (flash decoding). Rows of
// queries that share a KV head are computed together.

// Rows that are computed together, elements of a row per lane, and SIMD-groups of a threadgroup, from the host.
// #define ROWS, LANE_DIMS, SIMDS

// Keys that a SIMD-group takes per step: their loads overlap, and the maximum changes once.
#define AT_ONCE (ROWS == 1 ? 4 : 2)

inline void lane_read(device const T* row, uint lane, uint dim, thread float* held) {
    const uint first = lane * LANE_DIMS;
    if (VECTOR && first + LANE_DIMS <= dim) {
        for (uint e = 0; e < LANE_DIMS; e += 4) {
            const vec<T, 4> four = *(device const vec<T, 4>*)(row + first + e);
            for (uint k = 0; k < 4; k++) {
                held[e + k] = float(four[k]);
            }
        }
        return;
    }
    for (uint e = 0; e < LANE_DIMS; e++) {
        held[e] = first + e < dim ? float(row[first + e]) : 0.0f;
    }
}

// A split of the keys of a head for some rows. Writes the result, or for each row and split the maximum, the sum of
// weights and the weighted sum of values.
kernel void ENTRY(attention_decode)(device const T* q, device const T* k, device const T* v,
                                    device const uchar* mask, device uchar* target,
                                    constant AttentionArgs& problem, BAND_ARGUMENT,
                                    uint3 group [[threadgroup_position_in_grid]],
                                    uint index [[thread_index_in_threadgroup]],
                                    uint lane [[thread_index_in_simdgroup]],
                                    uint simd_group [[simdgroup_index_in_threadgroup]],
                                    uint simd_groups [[simdgroups_per_threadgroup]]) {
    if (BANDED) {
        group += band.origin;
    }
    threadgroup float sums[SIMDS * LANE_DIMS * 32];
    threadgroup float tops[SIMDS * ROWS];
    threadgroup float totals[SIMDS * ROWS];
    const uint shared_heads = problem.heads / problem.group;
    const uint batch = group.y / shared_heads;
    const uint shared_head = group.y % shared_heads;
    const uint first = group.z * ROWS;
    const uint rows = min(uint(ROWS), problem.group * problem.queries - first);

    float query[ROWS][LANE_DIMS];
    float sum[ROWS][LANE_DIMS];
    float top[ROWS];
    float total[ROWS];
    uint2 seen[ROWS];
    uint low = problem.keys;
    uint high = 0;
    for (uint r = 0; r < ROWS; r++) {
        top[r] = -INFINITY;
        total[r] = 0;
        seen[r] = uint2(0, 0);
        for (uint e = 0; e < LANE_DIMS; e++) {
            query[r][e] = 0;
            sum[r][e] = 0;
        }
        if (r < rows) {
            const uint head = shared_head * problem.group + (first + r) / problem.queries;
            const uint i = (first + r) % problem.queries;
            lane_read(q + problem.q_offset + long(batch) * problem.q[0] + long(head) * problem.q[1] +
                          long(i) * problem.q[2],
                      lane, problem.dim, query[r]);
            seen[r] = reach(problem, i);
            low = min(low, seen[r][0]);
            high = max(high, seen[r][1]);
        }
    }
    const uint chunk = high > low ? (high - low + problem.parts - 1) / problem.parts : 0;
    const uint begin = low + group.x * chunk;
    const uint end = min(high, begin + chunk);
    device const T* keys =
        k + problem.k_offset + long(batch) * problem.k[0] + long(shared_head) * problem.k[1];
    device const T* values =
        v + problem.v_offset + long(batch) * problem.v[0] + long(shared_head) * problem.v[1];
    for (uint start = begin + simd_group * AT_ONCE; start < end; start += simd_groups * AT_ONCE) {
        float at_key[AT_ONCE][LANE_DIMS];
        float value[AT_ONCE][LANE_DIMS];
        for (uint u = 0; u < AT_ONCE; u++) {
            // Keys past the end repeat the last one.
            const long key = min(start + u, end - 1);
            lane_read(keys + key * problem.k[2], lane, problem.dim, at_key[u]);
            lane_read(values + key * problem.v[2], lane, problem.value_dim, value[u]);
        }
        for (uint r = 0; r < ROWS; r++) {
            const uint head = shared_head * problem.group + (first + r) / problem.queries;
            const uint i = (first + r) % problem.queries;
            float found[AT_ONCE];
            float most = top[r];
            for (uint u = 0; u < AT_ONCE; u++) {
                float product = 0;
                for (uint e = 0; e < LANE_DIMS; e++) {
                    product = fma(query[r][e], at_key[u][e], product);
                }
                product = simd_sum(product);
                const uint key = start + u;
                found[u] = -INFINITY;
                if (key < end && key >= seen[r][0] && key < seen[r][1]) {
                    found[u] = score(product, problem, mask, batch, head, i, key);
                }
                most = above(most, found[u]);
            }
            const float factor = seen_from(top[r], most);
            top[r] = most;
            total[r] *= factor;
            for (uint e = 0; e < LANE_DIMS; e++) {
                sum[r][e] *= factor;
            }
            for (uint u = 0; u < AT_ONCE; u++) {
                // Hidden keys add nothing, whatever their value.
                if (found[u] != -INFINITY) {
                    const float weight = precise::exp(found[u] - most);
                    total[r] += weight;
                    for (uint e = 0; e < LANE_DIMS; e++) {
                        sum[r][e] = fma(weight, value[u][e], sum[r][e]);
                    }
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
        for (uint s = 0; s < simd_groups; s++) {
            most = above(most, tops[s * ROWS + r]);
        }
        float weights = 0;
        for (uint s = 0; s < simd_groups; s++) {
            weights += totals[s * ROWS + r] * seen_from(tops[s * ROWS + r], most);
        }
        const float factor = seen_from(top[r], most);
        for (uint e = 0; e < LANE_DIMS; e++) {
            sums[(simd_group * 32 + lane) * LANE_DIMS + e] = sum[r][e] * factor;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const uint head = shared_head * problem.group + (first + r) / problem.queries;
        const uint i = (first + r) % problem.queries;
        const ulong row = (ulong(batch) * problem.heads + head) * problem.queries + i;
        const ulong place = (row * problem.parts + group.x) * (problem.value_dim + 2);
        for (uint d = index; d < problem.value_dim; d += simd_groups * 32) {
            float all = 0;
            for (uint s = 0; s < simd_groups; s++) {
                all += sums[s * 32 * LANE_DIMS + d];
            }
            if (problem.parts == 1) {
                device T* output = (device T*)target;
                output[row * problem.value_dim + d] = T(weights == 0 ? 0.0f : all / weights);
            } else {
                ((device float*)target)[place + 2 + d] = all;
            }
        }
        if (problem.parts > 1 && index == 0) {
            ((device float*)target)[place] = most;
            ((device float*)target)[place + 1] = weights;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
}

// Merges the splits of a row, with one threadgroup per row.
kernel void ENTRY(attention_parts)(device const float* partial, device T* output, constant AttentionArgs& problem,
                                   uint row [[threadgroup_position_in_grid]],
                                   uint index [[thread_position_in_threadgroup]],
                                   uint threads [[threads_per_threadgroup]]) {
    const uint width = problem.value_dim + 2;
    device const float* from = partial + ulong(row) * problem.parts * width;
    float most = -INFINITY;
    for (uint part = 0; part < problem.parts; part++) {
        most = above(most, from[part * width]);
    }
    float weights = 0;
    for (uint part = 0; part < problem.parts; part++) {
        weights += from[part * width + 1] * seen_from(from[part * width], most);
    }
    for (uint d = index; d < problem.value_dim; d += threads) {
        float all = 0;
        for (uint part = 0; part < problem.parts; part++) {
            all += from[part * width + 2 + d] * seen_from(from[part * width], most);
        }
        output[ulong(row) * problem.value_dim + d] = T(weights == 0 ? 0.0f : all / weights);
    }
}
