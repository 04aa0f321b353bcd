#include "types.h"
#include "quant_batch.h"
#include "host/ProjectArgs.h"

// Linear layers: products of rows with up to three matrices, of the formats A_FORMAT, B_FORMAT and C_FORMAT, whose
// results are concatenated: `output[vector] = [a x, b x, c x]`. A bias is added, or the residual in the output.

// The shape of a tile: quant_tile.h.
FUNCTION_CONSTANT(uint, EIGHTS);
FUNCTION_CONSTANT(uint, TEAM);
FUNCTION_CONSTANT(bool, SEVERAL);
FUNCTION_CONSTANT(bool, BIAS);
FUNCTION_CONSTANT(bool, RESIDUAL);
FUNCTION_CONSTANT(bool, CAP);
// SIMD-groups that split the columns of a skinny matmul: quant_skinny.h.
FUNCTION_CONSTANT(uint, ACROSS);

// Epilogue of a sum, which stores it in this SIMD-group's part of the result.
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

// Rows of one of the matrices.
struct Part {
    uint matrix;
    // The first row, and rows of the matrices before.
    uint row;
    uint before;
};

// The rows at position `at` of the grid: `tall` rows each, of one matrix after the other.
inline Part part_of(constant ProjectArgs& p, uint at, uint tall) {
    Part part{0, 0, 0};
    if (SEVERAL) {
        for (uint i = 0; i < 2; i++) {
            const uint parts = (p.rows[i] + tall - 1) / tall;
            if (part.matrix == i && at >= parts) {
                at -= parts;
                part.before += p.rows[i];
                part.matrix = i + 1;
            }
        }
    }
    part.row = at * tall;
    return part;
}

// Up to 16 vectors. Grid: rows of one matrix after the other, 16 for every SIMD_SPLITS SIMD-groups.
kernel void ENTRY(prefill_project_few)(device const uchar* a [[buffer(0)]],
                                       device const uchar* b [[buffer(1), function_constant(SEVERAL)]],
                                       device const uchar* c [[buffer(2), function_constant(SEVERAL)]],
                                       device const float* x [[buffer(3)]],
                                       device const float* bias [[buffer(4), function_constant(BIAS)]],
                                       device float* output [[buffer(5)]], constant ProjectArgs& p [[buffer(6)]],
                                       uint group [[threadgroup_position_in_grid]],
                                       uint lane [[thread_index_in_simdgroup]],
                                       uint simd_group [[simdgroup_index_in_threadgroup]]) {
    threadgroup float parts[BATCH_TEAM * BATCH_SUMS];
    const Part part = part_of(p, group, BATCH_TEAM / ACROSS * 16);
    const uint rows = p.rows[part.matrix], own = part.row + simd_group / ACROSS * 16, begin = simd_group % ACROSS;
    device const uchar* weights = a;
    if (SEVERAL) {
        weights = part.matrix == 0 ? a : part.matrix == 1 ? b : c;
    }
    const QuantPlace place(lane);
    QuantVectors vectors;
    vectors.from = x;
    vectors.stride = p.cols;
    vectors.count = p.vectors;
    QuantBatch sums;
    sums.clear();
#if A_FORMAT == B_FORMAT && A_FORMAT == C_FORMAT
    quant_batch_rows<A_FORMAT>(sums, weights, own, rows, vectors, p.cols, EIGHTS, begin, ACROSS, place);
#else
    if (part.matrix == 0) {
        quant_batch_rows<A_FORMAT>(sums, weights, own, rows, vectors, p.cols, EIGHTS, begin, ACROSS, place);
    } else if (part.matrix == 1) {
        quant_batch_rows<B_FORMAT>(sums, weights, own, rows, vectors, p.cols, EIGHTS, begin, ACROSS, place);
    } else {
        quant_batch_rows<C_FORMAT>(sums, weights, own, rows, vectors, p.cols, EIGHTS, begin, ACROSS, place);
    }
#endif
    sums.join(parts, ACROSS, lane, simd_group);
    if (begin != 0) {
        return;
    }
    Finish finish;
    finish.output = output + part.before + own;
    finish.bias = bias + part.before + own;
    finish.vectors = p.vectors;
    finish.rows = own < rows ? rows - own : 0;
    finish.stride = p.stride;
    finish.cap = p.cap;
    sums.put(finish, EIGHTS, place);
}

// Grid: tiles of vectors, and of rows of one matrix after the other.
kernel void ENTRY(prefill_project)(device const uchar* a [[buffer(0)]],
                                   device const uchar* b [[buffer(1), function_constant(SEVERAL)]],
                                   device const uchar* c [[buffer(2), function_constant(SEVERAL)]],
                                   device const float* x [[buffer(3)]],
                                   device const float* bias [[buffer(4), function_constant(BIAS)]],
                                   device float* output [[buffer(5)]], constant ProjectArgs& p [[buffer(6)]],
                                   threadgroup float* shared [[threadgroup(0)]],
                                   uint2 group [[threadgroup_position_in_grid]],
                                   uint index [[thread_index_in_threadgroup]],
                                   uint lane [[thread_index_in_simdgroup]],
                                   uint simd_group [[simdgroup_index_in_threadgroup]]) {
    const Part part = part_of(p, group.y, TEAM * 16);
    const uint vector = group.x * EIGHTS * 8, matrix = part.matrix, before = part.before;
    device const uchar* weights = a;
    if (SEVERAL) {
        weights = matrix == 0 ? a : matrix == 1 ? b : c;
    }
    const uint rows = p.rows[matrix], row = part.row, own = row + simd_group * 16;
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
