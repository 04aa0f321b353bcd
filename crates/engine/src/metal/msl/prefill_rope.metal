#include "types.h"
#include "kv_cache.h"
#include "rope.h"
#include "host/RowPosition.h"
#include "host/PrefillRopeArgs.h"

// Between the projections of queries, keys and values and attention: head norms, if a family has them, RoPE, and the
// write of keys and values to the cache, whose type is T.

// Whether neighbours make a pair, not elements half the rotated ones apart.
FUNCTION_CONSTANT(bool, INTERLEAVED);
FUNCTION_CONSTANT(bool, HEAD_NORMS);

// A SIMD-group for every head of every row: queries, keys, values. Queries stay in place.
kernel void ENTRY(prefill_rope)(device float* qkv [[buffer(0)]],
                                device const float* q_norm [[buffer(1), function_constant(HEAD_NORMS)]],
                                device const float* k_norm [[buffer(2), function_constant(HEAD_NORMS)]],
                                device const ulong* frequencies [[buffer(3)]],
                                device const RowPosition* rows [[buffer(4)]],
                                device T* keys [[buffer(5)]], device T* values [[buffer(6)]],
                                constant PrefillRopeArgs& args [[buffer(7)]],
                                uint group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                                uint simd_group [[simdgroup_index_in_threadgroup]],
                                uint simd_groups [[simdgroups_per_threadgroup]]) {
    const uint all = args.heads + 2 * args.kv_heads;
    const uint at = group * simd_groups + simd_group;
    if (at >= args.rows * all) {
        return;
    }
    const uint head = at % all;
    const RowPosition row = rows[at / all];
    device float* from = qkv + ulong(at) * args.dim;
    const bool is_query = head < args.heads, is_value = head >= args.heads + args.kv_heads;
    device T* cache = is_value ? values : keys;
    if (!is_query) {
        const uint kv_head = (head - args.heads) % args.kv_heads;
        cache += ((ulong(row.slot) * args.kv_heads + kv_head) * args.positions + row.position) *
                 KvCache<T>::row_len(args.dim);
    }
    if (is_value) {
        cache_store(cache, from, args.dim, lane);
        return;
    }
    // Elements that are quantised in blocks are rotated in place first.
    const bool in_place = is_query || KvCache<T>::is_quantised();
    float scale = 1;
    device const float* weight = is_query ? q_norm : k_norm;
    if (HEAD_NORMS) {
        float squares = 0;
        for (uint i = lane; i < args.dim; i += 32) {
            squares = fma(from[i], from[i], squares);
        }
        scale = 1.0f / precise::sqrt(simd_sum(squares) / float(args.dim) + args.eps);
    }
    for (uint pair = lane; pair < args.pairs; pair += 32) {
        const float2 angle = cosine_and_sine(ulong(row.position) * frequencies[pair]) * args.factor;
        const uint i = INTERLEAVED ? 2 * pair : pair;
        const uint j = INTERLEAVED ? i + 1 : pair + args.pairs;
        const float a = HEAD_NORMS ? from[i] * scale * weight[i] : from[i];
        const float b = HEAD_NORMS ? from[j] * scale * weight[j] : from[j];
        const float x = fma(a, angle.x, -(b * angle.y));
        const float y = fma(b, angle.x, a * angle.y);
        if (in_place) {
            from[i] = x;
            from[j] = y;
        } else {
            cache[i] = T(x);
            cache[j] = T(y);
        }
    }
    for (uint i = 2 * args.pairs + lane; i < args.dim; i += 32) {
        const float x = HEAD_NORMS ? from[i] * scale * weight[i] : from[i];
        if (in_place) {
            from[i] = x;
        } else {
            cache[i] = T(x);
        }
    }
    if (in_place && !is_query) {
        simdgroup_barrier(mem_flags::mem_device);
        cache_store(cache, from, args.dim, lane);
    }
}
