// Reductions of n elements to output[0], by the first threadgroup of the grid, which may have any size up to 1024.
#include <metal_stdlib>
using namespace metal;

inline float add(float a, float b) { return a + b; }
inline float smaller(float a, float b) { return fmin(a, b); }
inline float larger(float a, float b) { return fmax(a, b); }

// Every lane combines every size-th element; then the upper half of the lanes is folded onto the lower one.
#define REDUCE(NAME, COMBINE, EMPTY)                                                     \
    kernel void NAME(                                                                    \
        device const float* input [[buffer(0)]],                                         \
        device float* output [[buffer(1)]],                                              \
        constant uint& n [[buffer(2)]],                                                  \
        uint lane [[thread_index_in_threadgroup]],                                       \
        uint3 block [[threads_per_threadgroup]],                                         \
        uint3 group [[threadgroup_position_in_grid]])                                    \
    {                                                                                    \
        threadgroup float partial[1024];                                                 \
        if (group.x != 0 || group.y != 0 || group.z != 0) {                              \
            return;                                                                      \
        }                                                                                \
        const uint size = block.x * block.y * block.z;                                   \
        float result = EMPTY;                                                            \
        for (uint i = lane; i < n; i += size) {                                          \
            result = COMBINE(result, input[i]);                                          \
        }                                                                                \
        partial[lane] = result;                                                          \
        threadgroup_barrier(mem_flags::mem_threadgroup);                                 \
        for (uint width = size; width > 1;) {                                            \
            const uint lower = (width + 1) / 2;                                          \
            if (lane + lower < width) {                                                  \
                partial[lane] = COMBINE(partial[lane], partial[lane + lower]);           \
            }                                                                            \
            threadgroup_barrier(mem_flags::mem_threadgroup);                             \
            width = lower;                                                               \
        }                                                                                \
        if (lane == 0) {                                                                 \
            output[0] = partial[0];                                                      \
        }                                                                                \
    }

REDUCE(reduce_sum, add, 0.0f)
REDUCE(reduce_min, smaller, INFINITY)
REDUCE(reduce_max, larger, -INFINITY)
