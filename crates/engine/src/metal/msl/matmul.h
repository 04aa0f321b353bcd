#include "band.h"
#include "view.h"
#include "activation.h"
#include "erf.h"
#include "host/MatrixStrides.h"
#include "host/MatmulArgs.h"

// Shared by the matmul kernels.
//
// A problem is `out[row, col] = sum over k of left[row, k] * right[col, k]`, for each of a batch. Strides decide which
// factor is the left one, and the layout of either.

// Whether the factors are K-major: contiguous along the depth; if not, they are contiguous along their lines, if at
// all.
FUNCTION_CONSTANT(bool, LEFT_K_MAJOR);
FUNCTION_CONSTANT(bool, RIGHT_K_MAJOR);
// Whether four neighbours are one aligned load.
FUNCTION_CONSTANT(bool, LEFT_VECTOR);
FUNCTION_CONSTANT(bool, RIGHT_VECTOR);
// Whether K is split among threadgroups: partial sums go to memory as float and are reduced by another kernel.
FUNCTION_CONSTANT(bool, SPLIT);
// The epilogue.
FUNCTION_CONSTANT(bool, ADDEND);
FUNCTION_CONSTANT(bool, RESIDUAL);
// Whether every step is rounded to the type of the result, as it is if it is a separate op.
FUNCTION_CONSTANT(bool, STEPWISE);
// Columns, and rows of a SIMD-group, of a skinny matmul.
FUNCTION_CONSTANT(uint, COLS);
FUNCTION_CONSTANT(uint, ROWS);
// SIMD-groups that split the depth.
FUNCTION_CONSTANT(uint, SIMD_SPLITS);

// Offset of matrix `i` of the batch.
inline long batch_offset(constant MatmulArgs& p, constant ViewStrides& view, uint i) {
    const uint inner = p.batch.dims[p.batch.rank - 1];
    return view_offset(p.batch, view, uint2(i % inner, i / inner));
}

// The activation ACTIVATION, as the op of its name computes it.
inline float activate(float x) {
#if ACTIVATION == 1
    return x <= 0.0f ? 0.0f : x;
#elif ACTIVATION == 2
    return unary_silu(x);
#elif ACTIVATION == 3
    return unary_gelu_tanh(x);
#elif ACTIVATION == 4
    return unary_gelu(x);
#elif ACTIVATION == 5
    return unary_sigmoid(x);
#else
    return x;
#endif
}

template <typename T> inline float round_step(float x) {
    return STEPWISE ? float(T(x)) : x;
}

// A tensor of the epilogue, from the first element of matrix `i` on.
template <typename T>
inline device const T* batch_of(constant MatmulArgs& p, constant ViewStrides& view, uint i, device const T* all,
                                bool used) {
    return used ? all + batch_offset(p, view, i) : all;
}

// The epilogue before the last rounding: activation(alpha * sum + beta * addend) + residual. `at` is row and column,
// and the pointers are those of the matrix.
template <typename T>
inline float apply_epilogue(constant MatmulArgs& p, float sum, uint2 at, device const T* addend,
                            device const T* residual) {
    float y = round_step<T>(p.alpha * sum);
    if (ADDEND) {
        y = round_step<T>(fma(p.beta, float(addend[at.x * p.addend.outer + at.y * p.addend.inner]), y));
    }
    y = round_step<T>(activate(y));
    if (RESIDUAL) {
        y += float(residual[at.x * p.residual.outer + at.y * p.residual.inner]);
    }
    return y;
}

// Destination of the sums of a matrix.
template <typename T> struct MatmulOutput {
    device void* output;
    device const T* addend;
    device const T* residual;

    // `all` is the output of the whole batch, or of all its splits.
    MatmulOutput(constant MatmulArgs& p, device void* all, device const T* addends, device const T* residuals,
                 uint split, uint batch, uint batches) {
        const ulong size = ulong(p.rows) * p.cols;
        if (SPLIT) {
            output = (device float*)all + (ulong(split) * batches + batch) * size;
        } else {
            output = (device T*)all + batch * size;
        }
        addend = batch_of(p, p.addend_view, batch, addends, ADDEND);
        residual = batch_of(p, p.residual_view, batch, residuals, RESIDUAL);
    }

    void store(constant MatmulArgs& p, float sum, uint2 at) const {
        const long to = at.x * p.out.outer + at.y * p.out.inner;
        if (SPLIT) {
            ((device float*)output)[to] = sum;
        } else {
            ((device T*)output)[to] = T(apply_epilogue(p, sum, at, addend, residual));
        }
    }
};

// Four elements of a line, `left` of which exist; the others are 0.
template <typename T>
inline vec<T, 4> load_four(device const T* from, long step, uint left, bool vector) {
    if (vector && left >= 4) {
        return *(device const vec<T, 4>*)from;
    }
    vec<T, 4> values = vec<T, 4>(T(0));
    for (uint e = 0; e < 4; e++) {
        if (e < left) {
            values[e] = from[e * step];
        }
    }
    return values;
}
