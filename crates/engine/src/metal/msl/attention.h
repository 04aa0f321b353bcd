#include "types.h"
#include "band.h"
#include "host/AttentionArgs.h"

// Shared by the attention kernels.

FUNCTION_CONSTANT(bool, CAUSAL);
FUNCTION_CONSTANT(bool, WINDOW);
FUNCTION_CONSTANT(bool, CAP);
// 0: none; 1: boolean; 2: added to the scores.
FUNCTION_CONSTANT(uint, MASK);
// Whether rows are aligned for vector loads of four.
FUNCTION_CONSTANT(bool, VECTOR);

// The range of keys that a query may see, masks apart.
inline uint2 reach(constant AttentionArgs& problem, uint query) {
    const long at = max(0l, long(problem.keys) + long(query) + 1 - long(problem.queries));
    const uint high = CAUSAL ? uint(min(at, long(problem.keys))) : problem.keys;
    const uint low = WINDOW ? uint(max(0l, at - long(problem.window))) : 0;
    return uint2(min(low, high), high);
}

// The score of a query and a key from their dot product: scaled, soft-capped and masked.
inline float score(float product, constant AttentionArgs& problem, device const uchar* mask, uint batch, uint head,
                   uint query, uint key) {
    float result = product * problem.scale;
    if (CAP) {
        result = problem.cap * precise::tanh(result / problem.cap);
    }
    if (MASK != 0) {
        const long at = problem.mask_offset + long(batch) * problem.mask[0] + long(head) * problem.mask[1] +
                        long(query) * problem.mask[2] + long(key) * problem.mask[3];
        if (MASK == 1) {
            result = mask[at] != 0 ? result : -INFINITY;
        } else {
            result += float(((device const T*)mask)[at]);
        }
    }
    return result;
}

// The maximum; NaN if one is.
inline float above(float a, float b) {
    return isnan(a) || a > b ? a : b;
}

// Factor that rescales weights from one maximum to a greater one (online softmax).
inline float seen_from(float top, float most) {
    return top == -INFINITY ? 0.0f : precise::exp(top - most);
}
