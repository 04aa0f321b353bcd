// Heads of queries, keys and values of a token.
#include "host/HeadArgs.h"

// The elements of pair `p` of a head; those past the ones that turn are pairs of neighbours.
inline uint2 pair_place(constant HeadArgs& heads, bool interleaved, uint p) {
    if (interleaved || p >= heads.pairs) {
        return uint2(2 * p, 2 * p + 1);
    }
    return uint2(p, p + heads.pairs);
}
