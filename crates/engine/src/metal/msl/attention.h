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
inline uint2 visible_keys(constant AttentionArgs& args, uint query) {
    const long at = max(0l, long(args.keys) + long(query) + 1 - long(args.queries));
    const uint high = CAUSAL ? uint(min(at, long(args.keys))) : args.keys;
    const uint low = WINDOW ? uint(max(0l, at - long(args.window))) : 0;
    return uint2(min(low, high), high);
}

// The score of a query and a key from their dot product: scaled, soft-capped and masked.
inline float score(float product, constant AttentionArgs& args, device const uchar* mask, uint batch, uint head,
                   uint query, uint key) {
    float result = product * args.scale;
    if (CAP) {
        result = args.cap * precise::tanh(result / args.cap);
    }
    if (MASK != 0) {
        const long at = args.mask_offset + long(batch) * args.mask[0] + long(head) * args.mask[1] +
                        long(query) * args.mask[2] + long(key) * args.mask[3];
        if (MASK == 1) {
            result = mask[at] != 0 ? result : -INFINITY;
        } else {
            result += float(((device const T*)mask)[at]);
        }
    }
    return result;
}

// The maximum; NaN if one is.
inline float max_or_nan(float a, float b) {
    return isnan(a) || a > b ? a : b;
}

// Factor that rescales weights from one maximum to a greater one (online softmax).
inline float rescale(float running_max, float new_max) {
    return running_max == -INFINITY ? 0.0f : precise::exp(running_max - new_max);
}
