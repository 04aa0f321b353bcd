#include "attention.h"
#include <metal_simdgroup_matrix>

// Many queries: tiles of queries iterate over tiles of keys, with a running maximum and sum for each query (online
// softmax). The scores of a tile are only in the registers of the SIMD-groups, eight queries each.

// Maximum elements of a row, and queries and keys of a tile, from the host.
// #define DIMS, QUERIES, KEYS

// Blocks of 8 elements of the rows of queries and keys, and of values.
FUNCTION_CONSTANT(uint, DIM_BLOCKS);
FUNCTION_CONSTANT(uint, VALUE_DIM_BLOCKS);

// Pitch of a tile: 16 bytes more than a row, so that columns are in different banks.
#define PITCH (DIMS + 16 / sizeof(T))

// Copies rows to a tile, padded with 0.
inline void tile_load(threadgroup T* tile, uint tile_rows, device const T* from, long stride, uint rows,
                      uint dim, uint dim_blocks, uint index, uint threads) {
    const uint vectors = dim_blocks * 2;
    for (uint i = index; i < tile_rows * vectors; i += threads) {
        const uint row = i / vectors;
        const uint column = i % vectors * 4;
        threadgroup T* to = tile + row * PITCH + column;
        device const T* source = from + long(row) * stride + column;
        if (VECTOR && row < rows && column + 4 <= dim) {
            *(threadgroup vec<T, 4>*)to = *(device const vec<T, 4>*)source;
        } else {
            for (uint k = 0; k < 4; k++) {
                to[k] = row < rows && column + k < dim ? source[k] : T(0);
            }
        }
    }
}

kernel void ENTRY(attention_prefill)(device const T* q, device const T* k, device const T* v,
                                     device const uchar* mask, device T* output, constant AttentionArgs& args,
                                     BAND_ARGUMENT, uint3 group [[threadgroup_position_in_grid]],
                                     uint3 groups [[threadgroups_per_grid]],
                                     uint index [[thread_index_in_threadgroup]],
                                     uint lane [[thread_index_in_simdgroup]],
                                     uint simd_group [[simdgroup_index_in_threadgroup]]) {
    if (BANDED) {
        group += band.origin;
        groups = band.grid;
    }
    threadgroup T queries[QUERIES * PITCH];
    // Keys, then values.
    threadgroup T kv_tile[KEYS * PITCH];
    const uint threads = QUERIES * 4;
    const uint head = group.y;
    const uint batch = group.z;
    const uint kv_head = head / args.group;
    // The last queries see the most keys: they start first.
    const uint first = (CAUSAL ? groups.x - 1 - group.x : group.x) * QUERIES;
    const uint count = min(uint(QUERIES), args.queries - first);
    tile_load(queries, QUERIES,
              q + args.q_offset + long(batch) * args.q[0] + long(head) * args.q[1] +
                  long(first) * args.q[2],
              args.q[2], count, args.dim, DIM_BLOCKS, index, threads);
    device const T* keys =
        k + args.k_offset + long(batch) * args.k[0] + long(kv_head) * args.k[1];
    device const T* values =
        v + args.v_offset + long(batch) * args.v[0] + long(kv_head) * args.v[1];

    // The elements of a SIMD-group matrix that a lane has: two neighbours of a row.
    const uint row = simd_group * 8 + lane / 16 * 4 + lane / 2 % 4;
    const uint column = lane / 8 % 2 * 4 + lane % 2 * 2;
    const uint query = first + row;
    const uint2 visible = row < count ? visible_keys(args, query) : uint2(0, 0);
    const uint low = visible_keys(args, first)[0];
    const uint high = visible_keys(args, first + count - 1)[1];

    simdgroup_matrix<float, 8, 8> sums[DIMS / 8];
    for (uint i = 0; i < VALUE_DIM_BLOCKS; i++) {
        sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    float running_max = -INFINITY;
    // Sum of the weights of this lane's keys.
    float running_sum = 0;
    for (uint start = low / KEYS * KEYS; start < high; start += KEYS) {
        const uint key_count = min(uint(KEYS), args.keys - start);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        tile_load(kv_tile, KEYS, keys + long(start) * args.k[2], args.k[2], key_count, args.dim, DIM_BLOCKS,
                  index, threads);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_matrix<float, 8, 8> scores[KEYS / 8];
        for (uint j = 0; j < KEYS / 8; j++) {
            scores[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
        for (uint d = 0; d < DIM_BLOCKS; d++) {
            simdgroup_matrix<T, 8, 8> a;
            simdgroup_load(a, queries + simd_group * 8 * PITCH + d * 8, PITCH);
            for (uint j = 0; j < KEYS / 8; j++) {
                simdgroup_matrix<T, 8, 8> b;
                simdgroup_load(b, kv_tile + j * 8 * PITCH + d * 8, PITCH, ulong2(0, 0), true);
                simdgroup_multiply_accumulate(scores[j], a, b, scores[j]);
            }
        }
        float new_max = running_max;
        for (uint j = 0; j < KEYS / 8; j++) {
            for (uint e = 0; e < 2; e++) {
                const uint key = start + j * 8 + column + e;
                float masked = -INFINITY;
                if (key >= visible[0] && key < visible[1]) {
                    masked = score(scores[j].thread_elements()[e], args, mask, batch, head, query, key);
                }
                scores[j].thread_elements()[e] = masked;
                new_max = max_or_nan(new_max, masked);
            }
        }
        // The lanes of a row differ in these bits.
        new_max = max_or_nan(new_max, simd_shuffle_xor(new_max, 1));
        new_max = max_or_nan(new_max, simd_shuffle_xor(new_max, 8));
        // If no key is visible yet, weights are 0 whatever is subtracted.
        const float shift = new_max == -INFINITY ? 0.0f : new_max;
        const float factor = precise::exp(running_max - shift);
        running_max = new_max;
        running_sum *= factor;
        for (uint j = 0; j < KEYS / 8; j++) {
            for (uint e = 0; e < 2; e++) {
                const float weight = precise::exp(scores[j].thread_elements()[e] - shift);
                scores[j].thread_elements()[e] = weight;
                running_sum += weight;
            }
        }
        for (uint i = 0; i < VALUE_DIM_BLOCKS; i++) {
            sums[i].thread_elements()[0] *= factor;
            sums[i].thread_elements()[1] *= factor;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        tile_load(kv_tile, KEYS, values + long(start) * args.v[2], args.v[2], key_count, args.value_dim,
                  VALUE_DIM_BLOCKS, index, threads);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint j = 0; j < KEYS / 8; j++) {
            for (uint i = 0; i < VALUE_DIM_BLOCKS; i++) {
                simdgroup_matrix<T, 8, 8> b;
                simdgroup_load(b, kv_tile + j * 8 * PITCH + i * 8, PITCH);
                simdgroup_multiply_accumulate(sums[i], scores[j], b, sums[i]);
            }
        }
    }
    running_sum += simd_shuffle_xor(running_sum, 1);
    running_sum += simd_shuffle_xor(running_sum, 8);
    if (row >= count) {
        return;
    }
    const float scale = running_sum == 0 ? 0.0f : 1 / running_sum;
    device T* to =
        output + ((ulong(batch) * args.heads + head) * args.queries + query) * args.value_dim;
    for (uint i = 0; i < VALUE_DIM_BLOCKS; i++) {
        for (uint e = 0; e < 2; e++) {
            const uint d = i * 8 + column + e;
            if (d < args.value_dim) {
                to[d] = T(sums[i].thread_elements()[e] * scale);
            }
        }
    }
}
