#include "band.h"
#include "view.h"
#include "activation.h"
#include "erf.h"

// Products of matrices: what their kernels have in common. The structs are those of metal/matmul.rs.
//
// A problem is `out[row, col] = sum over k of left[row, k] * right[col, k]`, for each of a batch. Which factor
// is left, and how either lies in memory, is a matter of strides.

// How far an operand goes from one line to the next, and from one element of a line to the next.
struct Sides {
    long line;
    long step;
};

struct Problem {
    uint rows;
    uint cols;
    uint depth;
    // Elements of the depth that one split takes; all of them where there is one.
    uint share;
    // Tiles that the rows and the columns are cut into.
    uint tall;
    uint wide;
    float alpha;
    float beta;
    // The factors as integers, for integers.
    long whole_alpha;
    long whole_beta;
    // From row to row, and from column to column.
    Sides out;
    Sides addend;
    Sides residual;
    // From row (of the right: column) to the next, and along the depth.
    Sides left;
    Sides right;
    // Where each matrix of the batch begins.
    Walk batch;
    Steps left_steps;
    Steps right_steps;
    Steps addend_steps;
    Steps residual_steps;
};

// Whether consecutive elements of the depth are neighbours in the left factor; if not, those of a line are,
// if any.
constant bool LEFT_DEEP [[function_constant(0)]];
constant bool RIGHT_DEEP [[function_constant(1)]];
// Whether four neighbours may be read at once.
constant bool LEFT_FOUR [[function_constant(2)]];
constant bool RIGHT_FOUR [[function_constant(3)]];
// Whether the depth is split among threadgroups: sums go to memory as float and are joined by another kernel.
constant bool SPLIT [[function_constant(4)]];
// What becomes of the sums.
constant bool ADDEND [[function_constant(5)]];
constant bool RESIDUAL [[function_constant(6)]];
// Whether every step is rounded to the type of the result, as it is where it is an op of its own.
constant bool STEPWISE [[function_constant(7)]];
// Columns, and rows that a SIMD-group takes at once, where they are few.
constant uint COLS [[function_constant(8)]];
constant uint ROWS [[function_constant(9)]];
// SIMD-groups that share the depth.
constant uint ACROSS [[function_constant(10)]];

// Matrix `i` of the batch.
inline long start(constant Problem& p, constant Steps& steps, uint i) {
    const uint inner = p.batch.dims[p.batch.rank - 1];
    return place(p.batch, steps, uint2(i % inner, i / inner));
}

// The function ACTIVATION, as the op of its name computes it.
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

template <typename T> inline float step_of(float x) {
    return STEPWISE ? float(T(x)) : x;
}

// What is added to the sums of matrix `i`, from the first one on.
template <typename T>
inline device const T* of_batch(constant Problem& p, constant Steps& steps, uint i, device const T* all, bool used) {
    return used ? all + start(p, steps, i) : all;
}

// What a sum becomes before it is rounded for the last time: activation(alpha * sum + beta * addend) + residual. `at` is
// its row and column, and the pointers are those of its matrix.
template <typename T>
inline float finish(constant Problem& p, float sum, uint2 at, device const T* addend, device const T* residual) {
    float y = step_of<T>(p.alpha * sum);
    if (ADDEND) {
        y = step_of<T>(fma(p.beta, float(addend[at.x * p.addend.line + at.y * p.addend.step]), y));
    }
    y = step_of<T>(activate(y));
    if (RESIDUAL) {
        y += float(residual[at.x * p.residual.line + at.y * p.residual.step]);
    }
    return y;
}

// Where the sums of a matrix go.
template <typename T> struct Goal {
    device void* output;
    device const T* addend;
    device const T* residual;

    // `output` is of the whole batch, or of all splits of it.
    Goal(constant Problem& p, device void* all, device const T* addends, device const T* residuals, uint split,
         uint batch, uint batches) {
        const ulong size = ulong(p.rows) * p.cols;
        if (SPLIT) {
            output = (device float*)all + (ulong(split) * batches + batch) * size;
        } else {
            output = (device T*)all + batch * size;
        }
        addend = of_batch(p, p.addend_steps, batch, addends, ADDEND);
        residual = of_batch(p, p.residual_steps, batch, residuals, RESIDUAL);
    }

    void store(constant Problem& p, float sum, uint2 at) const {
        const long to = at.x * p.out.line + at.y * p.out.step;
        if (SPLIT) {
            ((device float*)output)[to] = sum;
        } else {
            ((device T*)output)[to] = T(finish(p, sum, at, addend, residual));
        }
    }
};

// Four elements of a line, `left` of which exist; the others are 0.
template <typename T>
inline vec<T, 4> fetch(device const T* from, long step, uint left, bool four) {
    if (four && left >= 4) {
        return *(device const vec<T, 4>*)from;
    }
    vec<T, 4> found = vec<T, 4>(T(0));
    for (uint e = 0; e < 4; e++) {
        if (e < left) {
            found[e] = from[e * step];
        }
    }
    return found;
}
