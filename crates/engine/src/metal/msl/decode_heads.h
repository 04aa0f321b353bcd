// Query, key and value heads of a token.
#include "host/HeadArgs.h"

// The elements of pair `p` of a head; pairs past the rotated ones are neighbours.
inline uint2 pair_elements(constant HeadArgs& heads, bool interleaved, uint p) {
    if (interleaved || p >= heads.pairs) {
        return uint2(2 * p, 2 * p + 1);
    }
    return uint2(p, p + heads.pairs);
}
