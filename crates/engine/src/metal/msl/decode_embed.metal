#include "types.h"
#include "quant.h"
#include "host/DecodeState.h"
#include "host/DecodeEmbedArgs.h"

// Embedding lookup of one token.

// Whether the host gives the token and its position, instead of an earlier launch.
FUNCTION_CONSTANT(bool, HOST_TOKEN);

kernel void ENTRY(decode_embed)(device const uchar* table, device DecodeState* state, device float* x,
                                constant DecodeEmbedArgs& embedding, uint at [[thread_position_in_grid]]) {
    uint token = embedding.token;
    if (HOST_TOKEN) {
        if (at == 0) {
            state->token = token;
            state->position = embedding.position;
        }
    } else {
        token = state->token;
    }
    // Sampled tokens are inside the vocabulary; the bound holds for any memory.
    token = min(token, embedding.vocab - 1);
    float values[CHUNK];
    device const uchar* row = table + ulong(token) * Weights<E_FORMAT>::row_bytes(embedding.width);
    Weights<E_FORMAT>::read(row, at, embedding.width, values);
    for (uint i = 0; i < CHUNK; i++) {
        if (at * CHUNK + i < embedding.width) {
            x[at * CHUNK + i] = values[i] * embedding.scale;
        }
    }
}
