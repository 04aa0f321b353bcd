#include "types.h"
#include "band.h"
#include "kv_cache.h"
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
FUNCTION_CONSTANT(uint, DIM_BLOCKS);

// Pitch of a tile: 16 bytes more than a line, so that columns are in different banks.
#define PITCH (DIMS + 4)

// Loads lines of the cache into a tile, padded with 0.
inline void tile_load(threadgroup float* tile, device const T* from, uint lines, uint dim, uint index) {
    const uint vectors = DIM_BLOCKS * 2;
    for (uint i = index; i < KEYS * vectors; i += QUERIES * 4) {
        const uint line = i / vectors, column = i % vectors * 4;
        float4 four = 0;
        if (line < lines && column < dim) {
            four = KvCache<T>::load_four(from + line * KvCache<T>::row_len(dim), column);
        }
        *(threadgroup float4*)(tile + line * PITCH + column) = four;
    }
}

// Grid: tiles of rows, KV heads times the groups of query heads that share one.
kernel void ENTRY(prefill_attention)(device const float* q, device const T* keys, device const T* values,
                                     device const QueryTile* tiles, device float* output,
                                     constant PrefillAttentionArgs& args, BAND_ARGUMENT,
                                     uint2 group [[threadgroup_position_in_grid]],
                                     uint index [[thread_index_in_threadgroup]],
                                     uint lane [[thread_index_in_simdgroup]],
                                     uint simd_group [[simdgroup_index_in_threadgroup]]) {
    if (BANDED) {
        group += band.origin.xy;
    }
    threadgroup float queries[QUERIES * PITCH];
    // Keys, then values.
    threadgroup float kv_tile[KEYS * PITCH];
    const QueryTile rows = tiles[group.x];
    const uint dim = args.dim, kv_head = group.y / args.shares, head_group = group.y % args.shares;
    const uint group_heads = args.heads / args.kv_heads, begin = head_group * args.share;
    const uint head_count = min(args.share, group_heads - begin);
    const uint first_head = kv_head * group_heads + begin, count = rows.count * head_count;
    const uint vectors = DIM_BLOCKS * 2;
    for (uint i = index; i < QUERIES * vectors; i += QUERIES * 4) {
        const uint line = i / vectors, column = i % vectors * 4;
        float4 four = 0;
        if (line < count && column < dim) {
            const ulong at = ulong(rows.first + line / head_count) * args.stride + (first_head + line % head_count) * dim;
            four = *(device const float4*)(q + at + column) * args.scale;
        }
        *(threadgroup float4*)(queries + line * PITCH + column) = four;
    }
    const ulong cache_row = KvCache<T>::row_len(dim);
    const ulong cache_offset = (ulong(rows.slot) * args.kv_heads + kv_head) * args.positions * cache_row;

    // The elements of a SIMD-group matrix that a lane has: two neighbours of a line.
    const uint line = simd_group * 8 + lane / 16 * 4 + lane / 2 % 4;
    const uint column = lane / 8 % 2 * 4 + lane % 2 * 2;
    // The positions that the query of this lane sees, and those that the whole tile sees.
    const uint position = rows.position + line / head_count;
    const uint end_visible = line < count ? (CAUSAL ? min(position + 1, rows.len) : rows.len) : 0;
    const uint first_visible = WINDOW && position + 1 > args.window ? position + 1 - args.window : 0;
    const uint low = WINDOW && rows.position + 1 > args.window ? rows.position + 1 - args.window : 0;
    const uint high = CAUSAL ? min(rows.position + rows.count, rows.len) : rows.len;

    simdgroup_matrix<float, 8, 8> sums[DIMS / 8];
    for (uint i = 0; i < DIM_BLOCKS; i++) {
        sums[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
    float running_max = -INFINITY;
    // Sum of the weights of this lane's keys.
    float running_sum = 0;
    for (uint start = low / KEYS * KEYS; start < high; start += KEYS) {
        const uint key_count = min(uint(KEYS), rows.len - start);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        tile_load(kv_tile, keys + cache_offset + start * cache_row, key_count, dim, index);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_matrix<float, 8, 8> scores[KEYS / 8];
        for (uint j = 0; j < KEYS / 8; j++) {
            scores[j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
        for (uint d = 0; d < DIM_BLOCKS; d++) {
            simdgroup_matrix<float, 8, 8> a;
            simdgroup_load(a, queries + simd_group * 8 * PITCH + d * 8, PITCH);
            for (uint j = 0; j < KEYS / 8; j++) {
                simdgroup_matrix<float, 8, 8> b;
                simdgroup_load(b, kv_tile + j * 8 * PITCH + d * 8, PITCH, ulong2(0, 0), true);
                simdgroup_multiply_accumulate(scores[j], a, b, scores[j]);
            }
        }
        float new_max = running_max;
        for (uint j = 0; j < KEYS / 8; j++) {
            for (uint e = 0; e < 2; e++) {
                const uint key = start + j * 8 + column + e;
                float masked = scores[j].thread_elements()[e];
                if (CAP) {
                    masked = args.cap * precise::tanh(masked / args.cap);
                }
                masked = key >= first_visible && key < end_visible ? masked : -INFINITY;
                scores[j].thread_elements()[e] = masked;
                new_max = max(new_max, masked);
            }
        }
        // The lanes of a line differ in these bits.
        new_max = max(new_max, simd_shuffle_xor(new_max, 1));
        new_max = max(new_max, simd_shuffle_xor(new_max, 8));
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
        for (uint i = 0; i < DIM_BLOCKS; i++) {
            sums[i].thread_elements()[0] *= factor;
            sums[i].thread_elements()[1] *= factor;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        tile_load(kv_tile, values + cache_offset + start * cache_row, key_count, dim, index);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint j = 0; j < KEYS / 8; j++) {
            for (uint i = 0; i < DIM_BLOCKS; i++) {
                simdgroup_matrix<float, 8, 8> b;
                simdgroup_load(b, kv_tile + j * 8 * PITCH + i * 8, PITCH);
                simdgroup_multiply_accumulate(sums[i], scores[j], b, sums[i]);
            }
        }
    }
    running_sum += simd_shuffle_xor(running_sum, 1);
    running_sum += simd_shuffle_xor(running_sum, 8);
    if (line >= count) {
        return;
    }
    const float scale = running_sum == 0 ? 0.0f : 1 / running_sum;
    device float* to =
        output + (ulong(rows.first + line / head_count) * args.heads + first_head + line % head_count) * dim;
    for (uint i = 0; i < DIM_BLOCKS; i++) {
        for (uint e = 0; e < 2; e++) {
            const uint d = i * 8 + column + e;
            if (d < dim) {
                to[d] = sums[i].thread_elements()[e] * scale;
            }
        }
    }
}
