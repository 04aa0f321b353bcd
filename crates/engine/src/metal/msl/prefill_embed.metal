#include "types.h"
#include "quant.h"
#include "host/PrefillEmbedArgs.h"

// Embedding lookup of tokens, in the format E_FORMAT.

// One chunk of a row per thread. Grid: chunks, tokens.
kernel void ENTRY(prefill_embed)(device const uchar* embedding, device const uint* tokens, device float* x,
                                 constant PrefillEmbedArgs& args, uint2 at [[thread_position_in_grid]]) {
    const uint cols = args.width;
    float chunk[CHUNK];
    Weights<E_FORMAT>::read(embedding + tokens[at.y] * Weights<E_FORMAT>::row_bytes(cols), at.x, cols, chunk);
    device float* to = x + ulong(at.y) * cols + at.x * CHUNK;
    for (uint i = 0; i < CHUNK; i++) {
        if (at.x * CHUNK + i < cols) {
            to[i] = chunk[i] * args.scale;
        }
    }
}
