#include "types.h"
#include "threadgroup_reduce.h"
#include "quant.h"
#include "host/DecodeState.h"
#include "host/GemvArgs.h"

// Matrix-vector products (GEMV) of a decoding step, for kernels with fused prologues and epilogues.

// Lanes that share a row: 32, or fewer if rows are short.
FUNCTION_CONSTANT(uint, LANES);
// Whether a block's output is still to be added to the residual stream, after its post-norm.
FUNCTION_CONSTANT(bool, POST_NORM);
FUNCTION_CONSTANT(bool, BIAS);

// Rows that a lane group computes together: they share its loads of the vector.
#define ROWS 4

// Lanes that share rows: the index of the group in the grid, and of this lane in the group.
struct LaneGroup {
    uint index;
    uint lane;
};

inline LaneGroup lane_group(uint group, uint simd_group, uint simd_groups, uint lane) {
    return LaneGroup{(group * simd_groups + simd_group) * (32 / LANES) + lane / LANES, lane % LANES};
}

// Number of lane groups of a grid.
inline uint lane_groups(uint groups, uint simd_groups) {
    return groups * simd_groups * (32 / LANES);
}

// The sum over the lanes of a group; all of them have it.
inline float lane_group_sum(float value) {
    if (LANES == 32) {
        return simd_sum(value);
    }
    for (ushort bits = 1; bits < LANES; bits *= 2) {
        value += simd_shuffle_xor(value, bits);
    }
    return value;
}

// Elements 16 at to 16 at + 15 of a vector; 0 past its end.
inline void vector_read(device const float* from, uint at, uint cols, thread float* to) {
    const uint first = at * CHUNK;
    if (first + CHUNK <= cols) {
        for (uint i = 0; i < CHUNK; i += 4) {
            const float4 four = *(device const float4*)(from + first + i);
            to[i] = four.x;
            to[i + 1] = four.y;
            to[i + 2] = four.z;
            to[i + 3] = four.w;
        }
        return;
    }
    for (uint i = 0; i < CHUNK; i++) {
        to[i] = first + i < cols ? from[first + i] : 0.0f;
    }
}

// A vector without a norm.
struct RawVector {
    device const float* x;

    void read(uint at, uint cols, thread float* to) const { vector_read(x, at, cols, to); }
};

// The residual stream times the weights of a norm: products with it need only be scaled to be those of the norm.
struct NormedVector {
    device const float* x;
    device const float* block_output;
    device const float* post_norm;
    device const float* weight;
    float post_scale;

    void read(uint at, uint cols, thread float* to) const {
        float w[CHUNK];
        vector_read(x, at, cols, to);
        if (POST_NORM) {
            float a[CHUNK];
            vector_read(block_output, at, cols, a);
            vector_read(post_norm, at, cols, w);
            for (uint i = 0; i < CHUNK; i++) {
                to[i] += a[i] * post_scale * w[i];
            }
        }
        vector_read(weight, at, cols, w);
        for (uint i = 0; i < CHUNK; i++) {
            to[i] *= w[i];
        }
    }
};

// This lane's partial sums of the products of rows with a vector.
template <int FORMAT, int COUNT, typename V>
inline void row_products(device const uchar* thread* rows, V vector, uint cols, uint lane, thread float* sums) {
    for (int r = 0; r < COUNT; r++) {
        sums[r] = 0;
    }
    const uint chunks = (cols + CHUNK - 1) / CHUNK;
    for (uint at = lane; at < chunks; at += LANES) {
        float x[CHUNK];
        vector.read(at, cols, x);
        for (int r = 0; r < COUNT; r++) {
            float w[CHUNK];
            Weights<FORMAT>::read(rows[r], at, cols, w);
            float sum = 0;
            for (uint i = 0; i < CHUNK; i++) {
                sum = fma(x[i], w[i], sum);
            }
            sums[r] += sum;
        }
    }
}

// Position of a thread in its threadgroup.
struct ThreadPosition {
    uint group;
    uint index;
    uint threads;
    uint lane;
    uint simd_group;
    uint simd_groups;
};

inline float norm_scale(float squares, uint count, float eps) {
    return 1.0f / precise::sqrt(squares / float(count) + eps);
}

// The scales of both norms: that of the pending block output, and that of the sum. Every threadgroup computes them; the
// first writes the sum for later launches.
inline float2 norm_scales(device const float* x, device const float* block_output, device const float* post_norm,
                          device float* next,
                          uint cols, float eps, threadgroup float* shared, ThreadPosition thread_position) {
    float post_scale = 0;
    if (POST_NORM) {
        float squares = 0;
        for (uint i = thread_position.index; i < cols; i += thread_position.threads) {
            squares = fma(block_output[i], block_output[i], squares);
        }
        squares = group_reduce<Sum<float>>(squares, shared, thread_position.lane, thread_position.simd_group,
                                           thread_position.simd_groups);
        post_scale = norm_scale(squares, cols, eps);
    }
    float squares = 0;
    for (uint i = thread_position.index; i < cols; i += thread_position.threads) {
        float value = x[i];
        if (POST_NORM) {
            value += block_output[i] * post_scale * post_norm[i];
            if (thread_position.group == 0) {
                next[i] = value;
            }
        }
        squares = fma(value, value, squares);
    }
    squares = group_reduce<Sum<float>>(squares, shared, thread_position.lane, thread_position.simd_group,
                                       thread_position.simd_groups);
    return float2(post_scale, norm_scale(squares, cols, eps));
}
