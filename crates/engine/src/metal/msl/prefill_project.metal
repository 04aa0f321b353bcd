#include "types.h"
#include "quant_skinny.h"
#include "host/ProjectArgs.h"

// Linear layers: products of rows with up to three matrices, of the formats A_FORMAT, B_FORMAT and C_FORMAT, whose
// results are concatenated: `output[vector] = [a x, b x, c x]`. A bias is added, or the residual in the output.

// The shape of a tile: quant_tile.h.
FUNCTION_CONSTANT(uint, VECTOR_BLOCKS);
FUNCTION_CONSTANT(uint, SIMD_GROUPS);
FUNCTION_CONSTANT(bool, MULTIPLE);
FUNCTION_CONSTANT(bool, BIAS);
FUNCTION_CONSTANT(bool, RESIDUAL);
FUNCTION_CONSTANT(bool, CAP);
// SIMD-groups that split the columns of a skinny matmul: quant_skinny.h.
FUNCTION_CONSTANT(uint, SIMD_SPLITS);

// Epilogue of a sum, which stores it in this SIMD-group's part of the result.
struct LinearEpilogue {
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
struct MatrixRows {
    uint matrix;
    // The first row, and rows of the matrices before.
    uint row;
    uint before;
};

// The rows at position `at` of the grid: `tall` rows each, of one matrix after the other.
inline MatrixRows matrix_rows(constant ProjectArgs& p, uint at, uint tall) {
    MatrixRows block{0, 0, 0};
    if (MULTIPLE) {
        for (uint i = 0; i < 2; i++) {
            const uint partials = (p.rows[i] + tall - 1) / tall;
            if (block.matrix == i && at >= partials) {
                at -= partials;
                block.before += p.rows[i];
                block.matrix = i + 1;
            }
        }
    }
    block.row = at * tall;
    return block;
}

// Up to 16 vectors. Grid: rows of one matrix after the other, 16 for every SIMD_SPLITS SIMD-groups.
kernel void ENTRY(prefill_project_skinny)(device const uchar* a [[buffer(0)]],
                                          device const uchar* b [[buffer(1), function_constant(MULTIPLE)]],
                                          device const uchar* c [[buffer(2), function_constant(MULTIPLE)]],
                                          device const float* x [[buffer(3)]],
                                          device const float* bias [[buffer(4), function_constant(BIAS)]],
                                          device float* output [[buffer(5)]], constant ProjectArgs& p [[buffer(6)]],
                                          uint group [[threadgroup_position_in_grid]],
                                          uint lane [[thread_index_in_simdgroup]],
                                          uint simd_group [[simdgroup_index_in_threadgroup]]) {
    threadgroup float partials[SKINNY_SIMD_GROUPS * SKINNY_SUMS];
    const MatrixRows block = matrix_rows(p, group, SKINNY_SIMD_GROUPS / SIMD_SPLITS * 16);
    const uint rows = p.rows[block.matrix], own = block.row + simd_group / SIMD_SPLITS * 16, begin = simd_group % SIMD_SPLITS;
    device const uchar* weights = a;
    if (MULTIPLE) {
        weights = block.matrix == 0 ? a : block.matrix == 1 ? b : c;
    }
    const QuantLane position(lane);
    QuantVectors vectors;
    vectors.from = x;
    vectors.stride = p.cols;
    vectors.count = p.vectors;
    QuantSkinnySums sums;
    sums.clear();
#if A_FORMAT == B_FORMAT && A_FORMAT == C_FORMAT
    quant_skinny_rows<A_FORMAT>(sums, weights, own, rows, vectors, p.cols, VECTOR_BLOCKS, begin, SIMD_SPLITS, position);
#else
    if (block.matrix == 0) {
        quant_skinny_rows<A_FORMAT>(sums, weights, own, rows, vectors, p.cols, VECTOR_BLOCKS, begin, SIMD_SPLITS,
                                    position);
    } else if (block.matrix == 1) {
        quant_skinny_rows<B_FORMAT>(sums, weights, own, rows, vectors, p.cols, VECTOR_BLOCKS, begin, SIMD_SPLITS,
                                    position);
    } else {
        quant_skinny_rows<C_FORMAT>(sums, weights, own, rows, vectors, p.cols, VECTOR_BLOCKS, begin, SIMD_SPLITS,
                                    position);
    }
#endif
    sums.combine(partials, SIMD_SPLITS, lane, simd_group);
    if (begin != 0) {
        return;
    }
    LinearEpilogue epilogue;
    epilogue.output = output + block.before + own;
    epilogue.bias = bias + block.before + own;
    epilogue.vectors = p.vectors;
    epilogue.rows = own < rows ? rows - own : 0;
    epilogue.stride = p.stride;
    epilogue.cap = p.cap;
    sums.store(epilogue, VECTOR_BLOCKS, position);
}

// Grid: tiles of vectors, and of rows of one matrix after the other.
kernel void ENTRY(prefill_project)(device const uchar* a [[buffer(0)]],
                                   device const uchar* b [[buffer(1), function_constant(MULTIPLE)]],
                                   device const uchar* c [[buffer(2), function_constant(MULTIPLE)]],
                                   device const float* x [[buffer(3)]],
                                   device const float* bias [[buffer(4), function_constant(BIAS)]],
                                   device float* output [[buffer(5)]], constant ProjectArgs& p [[buffer(6)]],
                                   threadgroup float* shared [[threadgroup(0)]],
                                   uint2 group [[threadgroup_position_in_grid]],
                                   uint index [[thread_index_in_threadgroup]],
                                   uint lane [[thread_index_in_simdgroup]],
                                   uint simd_group [[simdgroup_index_in_threadgroup]]) {
    const MatrixRows block = matrix_rows(p, group.y, SIMD_GROUPS * 16);
    const uint vector = group.x * VECTOR_BLOCKS * 8, matrix = block.matrix, before = block.before;
    device const uchar* weights = a;
    if (MULTIPLE) {
        weights = matrix == 0 ? a : matrix == 1 ? b : c;
    }
    const uint rows = p.rows[matrix], row = block.row, own = row + simd_group * 16;
    QuantVectors vectors;
    vectors.from = x + vector * ulong(p.cols);
    vectors.stride = p.cols;
    vectors.count = p.vectors - vector;
    QuantTileSums sums;
    sums.clear();
#if A_FORMAT == B_FORMAT && A_FORMAT == C_FORMAT
    quant_multiply<A_FORMAT>(sums, weights + row * Weights<A_FORMAT>::row_bytes(p.cols), rows - row, vectors, p.cols,
                             shared, VECTOR_BLOCKS, SIMD_GROUPS, index);
#else
    if (matrix == 0) {
        quant_multiply<A_FORMAT>(sums, weights + row * Weights<A_FORMAT>::row_bytes(p.cols), rows - row, vectors,
                                 p.cols, shared, VECTOR_BLOCKS, SIMD_GROUPS, index);
    } else if (matrix == 1) {
        quant_multiply<B_FORMAT>(sums, weights + row * Weights<B_FORMAT>::row_bytes(p.cols), rows - row, vectors,
                                 p.cols, shared, VECTOR_BLOCKS, SIMD_GROUPS, index);
    } else {
        quant_multiply<C_FORMAT>(sums, weights + row * Weights<C_FORMAT>::row_bytes(p.cols), rows - row, vectors,
                                 p.cols, shared, VECTOR_BLOCKS, SIMD_GROUPS, index);
    }
#endif
    LinearEpilogue epilogue;
    epilogue.output = output + vector * ulong(p.stride) + before + own;
    epilogue.bias = bias + before + own;
    epilogue.vectors = p.vectors - vector;
    epilogue.rows = own < rows ? rows - own : 0;
    epilogue.stride = p.stride;
    epilogue.cap = p.cap;
    sums.store(epilogue, VECTOR_BLOCKS, lane);
}
