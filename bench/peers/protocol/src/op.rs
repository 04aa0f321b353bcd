//! The ops that are measured.

use serde::{Deserialize, Serialize};

/// An op of the benchmark. Its JSON name is the variant's in snake case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "named after the functions; the peculiar ones are explained"
)]
pub enum Op {
    // One operand.
    Neg,
    Abs,
    Sign,
    Square,
    Sqrt,
    Rsqrt,
    Reciprocal,
    Cbrt,
    Exp,
    Exp2,
    Expm1,
    Log,
    Log2,
    Log10,
    Log1p,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Tanh,
    Asinh,
    Acosh,
    Atanh,
    Erf,
    Sigmoid,
    LogSigmoid,
    Softplus,
    Relu,
    /// Slope 0.01.
    LeakyRelu,
    /// Alpha 1.
    Elu,
    Silu,
    Gelu,
    GeluTanh,
    Hardswish,
    Mish,
    Ceil,
    Floor,
    Round,
    Trunc,
    IsNan,
    IsInf,
    IsFinite,
    LogicalNot,
    BitwiseNot,
    // Two operands, with broadcasting.
    Add,
    /// Plus the number one.
    AddScalar,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Rem,
    Pow,
    Minimum,
    Maximum,
    Atan2,
    Hypot,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    ShiftLeft,
    ShiftRight,
    // Three.
    /// `condition, a, b`.
    Where,
    /// Between -0.5 and 0.5.
    Clamp,
    /// `a * b + c`.
    MulAdd,
    /// `a + t * (b - a)` of `a, b, t`.
    Lerp,
    Cast,
    // Over an axis, or over everything.
    Sum,
    Mean,
    Prod,
    Min,
    Max,
    Any,
    All,
    Var,
    Std,
    Logsumexp,
    /// The 2-norm.
    Norm,
    Argmin,
    Argmax,
    Cumsum,
    Cumprod,
    Cummax,
    Sort,
    /// Compared by the elements it points at: ties are free.
    Argsort,
    /// The `k` largest; compared by their values.
    Topk,
    // Linear algebra.
    Matmul,
    /// `a @ b.T`, the transpose being a view.
    MatmulTransposed,
    /// The right-hand side may be rearranged beforehand.
    MatmulPacked,
    Matvec,
    Dot,
    Outer,
    Einsum,
    /// `alpha * a @ b + beta * c`.
    Gemm,
    // Neural networks.
    Softmax,
    LogSoftmax,
    RmsNorm,
    LayerNorm,
    GroupNorm,
    /// `x, mean, variance, weight, bias`, channels on axis 1.
    BatchNorm,
    /// `x[batch, head, position, width], cos, sin [position, width / 2]`, halves rotate.
    Rope,
    /// As `Rope`, neighbours rotate.
    RopeInterleaved,
    /// `q, k, v [batch, head, position, width]`, scaled by `1 / sqrt(width)`; `causal` is a number of the case.
    Attention,
    /// `silu(gate) * up`.
    Swiglu,
    /// `gelu_tanh(gate) * up`.
    Geglu,
    /// Mean over the rows of `logits, targets`.
    CrossEntropy,
    Mse,
    Conv1d,
    Conv2d,
    /// Windows of `size`, side by side.
    MaxPool2d,
    AvgPool2d,
    UpsampleNearest,
    Embedding,
    // Indices and copies.
    Gather,
    /// Whole rows.
    Take,
    Scatter,
    ScatterAdd,
    MaskedSelect,
    /// A block in the middle.
    SliceUpdate,
    Concat,
    Stack,
    /// In four; the last is compared.
    Split,
    /// Every row twice.
    Repeat,
    Tile,
    /// One on every side.
    Pad,
    Roll,
    Flip,
    Tril,
    Triu,
    /// A transpose made contiguous.
    TransposeCopy,
    /// Every second column made contiguous.
    StridedCopy,
    Copy,
    // More than one op.
    /// `sqrt(abs((x * y + x) * 0.5 - y) + 1) * x`: eight ops.
    Chain,
    /// `x / (1 + exp(-(x * y + x))) + y` with a reciprocal and a product for the division: eight ops.
    ChainExp,
    // Language models: the logits after the last token are what is compared.
    /// The prompt, from an empty sequence.
    Prefill,
    /// The tokens after the prompt, one by one, each with its logits.
    Decode,
}

impl Op {
    /// The name in snake case.
    pub fn name(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|v| v.as_str().map(str::to_owned))
            .expect("a variant without data is a string")
    }
}
