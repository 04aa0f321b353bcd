#include "types.h"

// The greatest of some numbers, the first of several, as the token that comes next. One threadgroup.
kernel void ENTRY(decode_greatest)(device const float* logits, device uint* token, device uint* id,
                                   constant uint& count, uint index [[thread_index_in_threadgroup]],
                                   uint threads [[threads_per_threadgroup]],
                                   uint lane [[thread_index_in_simdgroup]],
                                   uint simd_group [[simdgroup_index_in_threadgroup]],
                                   uint simd_groups [[simdgroups_per_threadgroup]]) {
    threadgroup float tops[32];
    threadgroup uint places[32];
    float most = -INFINITY;
    uint at = count;
    for (uint i = index; i < count; i += threads) {
        if (logits[i] > most) {
            most = logits[i];
            at = i;
        }
    }
    float top = simd_max(most);
    uint place = simd_min(most == top ? at : count);
    if (lane == 0) {
        tops[simd_group] = top;
        places[simd_group] = place;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simd_group == 0) {
        most = lane < simd_groups ? tops[lane] : -INFINITY;
        at = lane < simd_groups ? places[lane] : count;
        top = simd_max(most);
        place = simd_min(most == top ? at : count);
        if (lane == 0) {
            // Numbers that are none leave the first one.
            place = place < count ? place : 0;
            *token = place;
            *id = place;
        }
    }
}
