#include "types.h"
#include "quant_tile.h"

// Products of rows with up to three matrices, of the formats A_FORMAT, B_FORMAT and C_FORMAT, whose results lie beside
// each other: `output[vector] = [a x, b x, c x]`. A bias is added, or what is there already. The struct is that of
// decoder/prefill.rs.

// The shape of a tile: quant_tile.h.
constant uint EIGHTS [[function_constant(0)]];
constant uint TEAM [[function_constant(1)]];
constant bool SEVERAL [[function_constant(2)]];
constant bool BIAS [[function_constant(3)]];
constant bool RESIDUAL [[function_constant(4)]];
constant bool CAP [[function_constant(5)]];

struct Project {
    uint vectors;
    uint cols;
    // Of every matrix.
    uint rows[3];
    // Numbers from one vector of the result to the next.
    uint stride;
    float cap;
};

// What a sum becomes: this SIMD-group's part of the result.
struct Finish {
    device float* output;
    device const float* bias;
    uint vectors;
    uint rows;
    ulong stride;
    float cap;

    void operator()(uint vector, uint row, float sum) const {
        if (vector >= vectors || row >= rows) {
            return;
        }
        device float* to = output + vector * stride + row;
        if (BIAS) {
            sum += bias[row];
        }
        if (RESIDUAL) {
            sum += *to;
        }
        *to = CAP ? cap * precise::tanh(sum / cap) : sum;
    }
};

// Grid: tiles of vectors, and of rows of one matrix after the other.
kernel void ENTRY(prefill_project)(device const uchar* a [[buffer(0)]],
                                   device const uchar* b [[buffer(1), function_constant(SEVERAL)]],
                                   device const uchar* c [[buffer(2), function_constant(SEVERAL)]],
                                   device const float* x [[buffer(3)]],
                                   device const float* bias [[buffer(4), function_constant(BIAS)]],
                                   device float* output [[buffer(5)]], constant Project& p [[buffer(6)]],
                                   threadgroup float* shared [[threadgroup(0)]],
                                   uint2 group [[threadgroup_position_in_grid]],
                                   uint index [[thread_index_in_threadgroup]],
                                   uint lane [[thread_index_in_simdgroup]],
                                   uint simd_group [[simdgroup_index_in_threadgroup]]) {
    const uint tall = TEAM * 16, vector = group.x * EIGHTS * 8;
    uint tile = group.y, matrix = 0, before = 0;
    device const uchar* weights = a;
    if (SEVERAL) {
        for (uint i = 0; i < 2; i++) {
            const uint tiles = (p.rows[i] + tall - 1) / tall;
            if (matrix == i && tile >= tiles) {
                tile -= tiles;
                before += p.rows[i];
                matrix = i + 1;
            }
        }
        weights = matrix == 0 ? a : matrix == 1 ? b : c;
    }
    const uint rows = p.rows[matrix], row = tile * tall, own = row + simd_group * 16;
    QuantVectors vectors;
    vectors.from = x + vector * ulong(p.cols);
    vectors.stride = p.cols;
    vectors.count = p.vectors - vector;
    QuantSums sums;
    sums.clear();
#if A_FORMAT == B_FORMAT && A_FORMAT == C_FORMAT
    quant_multiply<A_FORMAT>(sums, weights + row * Weights<A_FORMAT>::row_bytes(p.cols), rows - row, vectors, p.cols,
                             shared, EIGHTS, TEAM, index);
#else
    if (matrix == 0) {
        quant_multiply<A_FORMAT>(sums, weights + row * Weights<A_FORMAT>::row_bytes(p.cols), rows - row, vectors,
                                 p.cols, shared, EIGHTS, TEAM, index);
    } else if (matrix == 1) {
        quant_multiply<B_FORMAT>(sums, weights + row * Weights<B_FORMAT>::row_bytes(p.cols), rows - row, vectors,
                                 p.cols, shared, EIGHTS, TEAM, index);
    } else {
        quant_multiply<C_FORMAT>(sums, weights + row * Weights<C_FORMAT>::row_bytes(p.cols), rows - row, vectors,
                                 p.cols, shared, EIGHTS, TEAM, index);
    }
#endif
    Finish finish;
    finish.output = output + vector * ulong(p.stride) + before + own;
    finish.bias = bias + before + own;
    finish.vectors = p.vectors - vector;
    finish.rows = own < rows ? rows - own : 0;
    finish.stride = p.stride;
    finish.cap = p.cap;
    sums.put(finish, EIGHTS, lane);
}
