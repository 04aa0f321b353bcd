#include "types.h"
#include "band.h"
#include "cache.h"
#include <metal_simdgroup_matrix>
#include "host/QueryTile.h"
#include "host/PrefillAttentionArgs.h"

// Attention of many rows over the KV cache, whose type is T. A tile has some rows of one sequence at the query heads
// that share a KV head, and iterates over tiles of keys, with a running maximum and sum for each query (online
// softmax). The scores of a tile are only in the registers of the SIMD-groups, eight queries each.
//
// Tiles of keys begin at multiples of KEYS, and keys that a query does not see have no part in its sums; so they do not
// depend on the rows that are computed with it.

// Maximum elements of a head, and queries and keys of a tile, from the host.
// #define DIMS, QUERIES, KEYS

FUNCTION_CONSTANT(bool, CAUSAL);
FUNCTION_CONSTANT(bool, WINDOW);
FUNCTION_CONSTANT(bool, CAP);
// Blocks of 8 elements of a head.
FUNCTION_CONSTANT(uint, EIGHTS);

// Pitch of a tile: 16 bytes more than a line, so that columns are in different banks.
#define PITCH (DIMS + 4)

// Loads lines of the cache into a tile, padded with 0.
inline void tile_read(threadgroup float* tile, device const T* from, uint lines, uint dim, uint index) {
    const uint fours = EIGHTS * 2;
    for (uint i = index; i < KEYS * fours; i += QUERIES * 4) {
        const uint line = i / fours, column = i % fours * 4;
        float4 four = 0;
        if (line < lines && column < dim) {
            four = Cached<T>::four(from + line * Cached<T>::row(dim), column);
        }
        *(threadgroup float4*)(tile + line * PITCH + column) = four;
    }
}

// Grid: tiles of rows, KV heads times the groups of query heads that share one.
kernel void ENTRY(prefill_attention)(device const float* q, device const T* keys, device const T* values,
                                     device const QueryTile* tiles, device float* output, constant PrefillAttentionArgs& attend, BAND_ARGUMENT,
                                     uint2 group [[threadgroup_position_in_grid]],
                                     uint index [[thread_index_in_threadgroup]],
                                     uint lane [[thread_index_in_simdgroup]],
                                     uint simd_group [[simdgroup_index_in_threadgroup]]) {
    if (BANDED) {
        group += band.origin.xy;
    }
    threadgroup float queries[QUERIES * PITCH];
    // Keys, then values.
    threadgroup float others[KEYS * PITCH];
    const QueryTile rows = tiles[group.x];
    const uint dim = attend.dim, kv_head = group.y / attend.shares, part = group.y % attend.shares;
    const uint together = attend.heads / attend.kv_heads, begin = part * attend.share;
    const uint share = min(attend.share, together - begin);
    const uint first_head = kv_head * together + begin, count = rows.count * share;
    const uint fours = EIGHTS * 2;
    for (uint i = index; i < QUERIES * fours; i += QUERIES * 4) {
        const uint line = i / fours, column = i % fours * 4;
        float4 four = 0;
        if (line < count && column < dim) {
            const ulong at = ulong(rows.first + line / share) * attend.stride + (first_head + line % share) * dim;
            four = *(device const float4*)(q + at + column) * attend.scale;
        }
        *(threadgroup float4*)(queries + line * PITCH + column) = four;
    }
    const ulong cached_row = Cached<T>::row(dim);
    const ulong cached = (ulong(rows.slot) * attend.kv_heads + kv_head) * attend.positions * cached_row;

    // The elements of a SIMD-group matrix that a lane has: two neighbours of a line.
    const uint line = simd_group * 8 + lane / 16 * 4 + lane / 2 % 4;
    const uint column = lane / 8 % 2 * 4 + lane % 2 * 2;
    // The positions that the query of this lane sees, and those that the whole tile sees.
    const uint position = rows.position + line / share;
    const uint end = line < count ? (CAUSAL ? min(position + 1, rows.len) : rows.len) : 0;
    const uint begins = WINDOW && position + 1 > attend.window ? position + 1 - attend.window : 0;
    const uint low = WINDOW && rows.position + 1 > attend.window ? rows.position + 1 - attend.window : 0;
    const uint high = CAUSAL ? min(rows.position + rows.count, rows.len) : rows.len;

    simdgroup_matrix<float, 8, 8> sums[DIMS / 8];
    for (uint i = 0; i < EIGHTS; i++) {
        sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    float top = -INFINITY;
    // Sum of the weights of this lane's keys.
    float total = 0;
    for (uint start = low / KEYS * KEYS; start < high; start += KEYS) {
        const uint left = min(uint(KEYS), rows.len - start);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        tile_read(others, keys + cached + start * cached_row, left, dim, index);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_matrix<float, 8, 8> scores[KEYS / 8];
        for (uint j = 0; j < KEYS / 8; j++) {
            scores[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
        for (uint d = 0; d < EIGHTS; d++) {
            simdgroup_matrix<float, 8, 8> a;
            simdgroup_load(a, queries + simd_group * 8 * PITCH + d * 8, PITCH);
            for (uint j = 0; j < KEYS / 8; j++) {
                simdgroup_matrix<float, 8, 8> b;
                simdgroup_load(b, others + j * 8 * PITCH + d * 8, PITCH, ulong2(0, 0), true);
                simdgroup_multiply_accumulate(scores[j], a, b, scores[j]);
            }
        }
        float most = top;
        for (uint j = 0; j < KEYS / 8; j++) {
            for (uint e = 0; e < 2; e++) {
                const uint key = start + j * 8 + column + e;
                float found = scores[j].thread_elements()[e];
                if (CAP) {
                    found = attend.cap * precise::tanh(found / attend.cap);
                }
                found = key >= begins && key < end ? found : -INFINITY;
                scores[j].thread_elements()[e] = found;
                most = max(most, found);
            }
        }
        // The lanes of a line differ in these bits.
        most = max(most, simd_shuffle_xor(most, 1));
        most = max(most, simd_shuffle_xor(most, 8));
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
        for (uint i = 0; i < EIGHTS; i++) {
            sums[i].thread_elements()[0] *= factor;
            sums[i].thread_elements()[1] *= factor;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        tile_read(others, values + cached + start * cached_row, left, dim, index);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint j = 0; j < KEYS / 8; j++) {
            for (uint i = 0; i < EIGHTS; i++) {
                simdgroup_matrix<float, 8, 8> b;
                simdgroup_load(b, others + j * 8 * PITCH + i * 8, PITCH);
                simdgroup_multiply_accumulate(sums[i], scores[j], b, sums[i]);
            }
        }
    }
    total += simd_shuffle_xor(total, 1);
    total += simd_shuffle_xor(total, 8);
    if (line >= count) {
        return;
    }
    const float scale = total == 0 ? 0.0f : 1 / total;
    device float* to =
        output + (ulong(rows.first + line / share) * attend.heads + first_head + line % share) * dim;
    for (uint i = 0; i < EIGHTS; i++) {
        for (uint e = 0; e < 2; e++) {
            const uint d = i * 8 + column + e;
            if (d < dim) {
                to[d] = sums[i].thread_elements()[e] * scale;
            }
        }
    }
}
