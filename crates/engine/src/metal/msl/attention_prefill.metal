#include "attention.h"
#include <metal_simdgroup_matrix>

// Many queries: tiles of queries iterate over tiles of keys, with a running maximum and sum for each query (online
// softmax). The scores of a tile are only in the registers of the SIMD-groups, eight queries each.

// Maximum elements of a row, and queries and keys of a tile, from the host.
// #define DIMS, QUERIES, KEYS

// Blocks of 8 elements of the rows of queries and keys, and of values.
FUNCTION_CONSTANT(uint, EIGHTS);
FUNCTION_CONSTANT(uint, VALUE_EIGHTS);

// Pitch of a tile: 16 bytes more than a row, so that columns are in different banks.
#define PITCH (DIMS + 16 / sizeof(T))

// Copies rows to a tile, padded with 0.
inline void tile_read(threadgroup T* tile, uint tile_rows, device const T* from, long stride, uint rows,
                      uint dim, uint eights, uint index, uint threads) {
    const uint fours = eights * 2;
    for (uint i = index; i < tile_rows * fours; i += threads) {
        const uint row = i / fours;
        const uint column = i % fours * 4;
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
                                     device const uchar* mask, device T* output, constant AttentionArgs& problem, BAND_ARGUMENT,
                                     uint3 group [[threadgroup_position_in_grid]],
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
    threadgroup T others[KEYS * PITCH];
    const uint threads = QUERIES * 4;
    const uint head = group.y;
    const uint batch = group.z;
    const uint shared_head = head / problem.group;
    // The last queries see the most keys: they start first.
    const uint first = (CAUSAL ? groups.x - 1 - group.x : group.x) * QUERIES;
    const uint count = min(uint(QUERIES), problem.queries - first);
    tile_read(queries, QUERIES,
              q + problem.q_offset + long(batch) * problem.q[0] + long(head) * problem.q[1] +
                  long(first) * problem.q[2],
              problem.q[2], count, problem.dim, EIGHTS, index, threads);
    device const T* keys =
        k + problem.k_offset + long(batch) * problem.k[0] + long(shared_head) * problem.k[1];
    device const T* values =
        v + problem.v_offset + long(batch) * problem.v[0] + long(shared_head) * problem.v[1];

    // The elements of a SIMD-group matrix that a lane has: two neighbours of a row.
    const uint row = simd_group * 8 + lane / 16 * 4 + lane / 2 % 4;
    const uint column = lane / 8 % 2 * 4 + lane % 2 * 2;
    const uint query = first + row;
    const uint2 seen = row < count ? reach(problem, query) : uint2(0, 0);
    const uint low = reach(problem, first)[0];
    const uint high = reach(problem, first + count - 1)[1];

    simdgroup_matrix<float, 8, 8> sums[DIMS / 8];
    for (uint i = 0; i < VALUE_EIGHTS; i++) {
        sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    float top = -INFINITY;
    // Sum of the weights of this lane's keys.
    float total = 0;
    for (uint start = low / KEYS * KEYS; start < high; start += KEYS) {
        const uint left = min(uint(KEYS), problem.keys - start);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        tile_read(others, KEYS, keys + long(start) * problem.k[2], problem.k[2], left, problem.dim, EIGHTS,
                  index, threads);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_matrix<float, 8, 8> scores[KEYS / 8];
        for (uint j = 0; j < KEYS / 8; j++) {
            scores[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
        for (uint d = 0; d < EIGHTS; d++) {
            simdgroup_matrix<T, 8, 8> a;
            simdgroup_load(a, queries + simd_group * 8 * PITCH + d * 8, PITCH);
            for (uint j = 0; j < KEYS / 8; j++) {
                simdgroup_matrix<T, 8, 8> b;
                simdgroup_load(b, others + j * 8 * PITCH + d * 8, PITCH, ulong2(0, 0), true);
                simdgroup_multiply_accumulate(scores[j], a, b, scores[j]);
            }
        }
        float most = top;
        for (uint j = 0; j < KEYS / 8; j++) {
            for (uint e = 0; e < 2; e++) {
                const uint key = start + j * 8 + column + e;
                float found = -INFINITY;
                if (key >= seen[0] && key < seen[1]) {
                    found = score(scores[j].thread_elements()[e], problem, mask, batch, head, query, key);
                }
                scores[j].thread_elements()[e] = found;
                most = above(most, found);
            }
        }
        // The lanes of a row differ in these bits.
        most = above(most, simd_shuffle_xor(most, 1));
        most = above(most, simd_shuffle_xor(most, 8));
        // If no key is visible yet, weights are 0 whatever is subtracted.
        const float shift = most == -INFINITY ? 0.0f : most;
        const float factor = precise::exp(top - shift);
        top = most;
        total *= factor;
        for (uint j = 0; j < KEYS / 8; j++) {
            for (uint e = 0; e < 2; e++) {
                const float weight = precise::exp(scores[j].thread_elements()[e] - shift);
                scores[j].thread_elements()[e] = weight;
                total += weight;
            }
        }
        for (uint i = 0; i < VALUE_EIGHTS; i++) {
            sums[i].thread_elements()[0] *= factor;
            sums[i].thread_elements()[1] *= factor;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        tile_read(others, KEYS, values + long(start) * problem.v[2], problem.v[2], left, problem.value_dim,
                  VALUE_EIGHTS, index, threads);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint j = 0; j < KEYS / 8; j++) {
            for (uint i = 0; i < VALUE_EIGHTS; i++) {
                simdgroup_matrix<T, 8, 8> b;
                simdgroup_load(b, others + j * 8 * PITCH + i * 8, PITCH);
                simdgroup_multiply_accumulate(sums[i], scores[j], b, sums[i]);
            }
        }
    }
    total += simd_shuffle_xor(total, 1);
    total += simd_shuffle_xor(total, 8);
    if (row >= count) {
        return;
    }
    const float scale = total == 0 ? 0.0f : 1 / total;
    device T* to =
        output + ((ulong(batch) * problem.heads + head) * problem.queries + query) * problem.value_dim;
    for (uint i = 0; i < VALUE_EIGHTS; i++) {
        for (uint e = 0; e < 2; e++) {
            const uint d = i * 8 + column + e;
            if (d < problem.value_dim) {
                to[d] = T(sums[i].thread_elements()[e] * scale);
            }
        }
    }
}
