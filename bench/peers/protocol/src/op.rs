//! The ops that are measured.

use serde::{Deserialize, Serialize};

/// The measured functions of one and two elements, one row each: the op, the engine's method, the dtype and range of
/// each operand, and the dtype of the result.
///
/// `for_each_function!(m)` expands to `m! { … }` with all rows. They declare the variants of [`Op`] here, and the cases
/// and the engine's calls in `bessemer-bench`; the peers list what they support in their own files.
#[macro_export]
macro_rules! for_each_function {
    ($callback:ident) => {
        $callback! {
            unary {
                Neg neg F32 [-1.0, 1.0] F32;
                Abs abs F32 [-1.0, 1.0] F32;
                Sign sign F32 [-1.0, 1.0] F32;
                Square square F32 [-1.0, 1.0] F32;
                Sqrt sqrt F32 [0.1, 4.0] F32;
                Rsqrt rsqrt F32 [0.1, 4.0] F32;
                Reciprocal reciprocal F32 [0.5, 2.0] F32;
                Cbrt cbrt F32 [-4.0, 4.0] F32;
                Exp exp F32 [-4.0, 4.0] F32;
                Exp2 exp2 F32 [-4.0, 4.0] F32;
                Expm1 expm1 F32 [-2.0, 2.0] F32;
                Log log F32 [0.1, 10.0] F32;
                Log2 log2 F32 [0.1, 10.0] F32;
                Log10 log10 F32 [0.1, 10.0] F32;
                Log1p log1p F32 [-0.5, 10.0] F32;
                Logit logit F32 [0.01, 0.99] F32;
                Sin sin F32 [-10.0, 10.0] F32;
                Cos cos F32 [-10.0, 10.0] F32;
                Tan tan F32 [-1.2, 1.2] F32;
                Asin asin F32 [-0.99, 0.99] F32;
                Acos acos F32 [-0.99, 0.99] F32;
                Atan atan F32 [-4.0, 4.0] F32;
                Sinh sinh F32 [-3.0, 3.0] F32;
                Cosh cosh F32 [-3.0, 3.0] F32;
                Tanh tanh F32 [-4.0, 4.0] F32;
                Asinh asinh F32 [-10.0, 10.0] F32;
                Acosh acosh F32 [1.1, 10.0] F32;
                Atanh atanh F32 [-0.9, 0.9] F32;
                Erf erf F32 [-3.0, 3.0] F32;
                Sigmoid sigmoid F32 [-6.0, 6.0] F32;
                LogSigmoid log_sigmoid F32 [-6.0, 6.0] F32;
                Softplus softplus F32 [-6.0, 6.0] F32;
                Relu relu F32 [-1.0, 1.0] F32;
                /// Slope 0.01.
                LeakyRelu leaky_relu(0.01) F32 [-1.0, 1.0] F32;
                /// Alpha 1.
                Elu elu(1.0) F32 [-3.0, 3.0] F32;
                Silu silu F32 [-6.0, 6.0] F32;
                Gelu gelu F32 [-4.0, 4.0] F32;
                GeluTanh gelu_tanh F32 [-4.0, 4.0] F32;
                Hardswish hardswish F32 [-4.0, 4.0] F32;
                Mish mish F32 [-6.0, 6.0] F32;
                Ceil ceil F32 [-10.0, 10.0] F32;
                Floor floor F32 [-10.0, 10.0] F32;
                Round round F32 [-10.0, 10.0] F32;
                Trunc trunc F32 [-10.0, 10.0] F32;
                IsNan is_nan F32 [-1.0, 1.0] Bool;
                IsInf is_inf F32 [-1.0, 1.0] Bool;
                IsFinite is_finite F32 [-1.0, 1.0] Bool;
                LogicalNot logical_not Bool [0.0, 1.0] Bool;
                BitwiseNot bitwise_not I32 [-1000.0, 1000.0] I32;
            }
            binary {
                Add add F32 [-1.0, 1.0] [-1.0, 1.0] F32;
                Sub sub F32 [-1.0, 1.0] [-1.0, 1.0] F32;
                Mul mul F32 [-1.0, 1.0] [-1.0, 1.0] F32;
                Div div F32 [-1.0, 1.0] [0.5, 2.0] F32;
                FloorDiv floor_div F32 [-10.0, 10.0] [0.5, 3.0] F32;
                Rem rem F32 [-10.0, 10.0] [0.5, 3.0] F32;
                Pow pow F32 [0.1, 4.0] [-2.0, 2.0] F32;
                Minimum minimum F32 [-1.0, 1.0] [-1.0, 1.0] F32;
                Maximum maximum F32 [-1.0, 1.0] [-1.0, 1.0] F32;
                Atan2 atan2 F32 [-1.0, 1.0] [-1.0, 1.0] F32;
                Hypot hypot F32 [-1.0, 1.0] [-1.0, 1.0] F32;
                Eq eq F32 [-1.0, 1.0] [-1.0, 1.0] Bool;
                Ne ne F32 [-1.0, 1.0] [-1.0, 1.0] Bool;
                Lt lt F32 [-1.0, 1.0] [-1.0, 1.0] Bool;
                Le le F32 [-1.0, 1.0] [-1.0, 1.0] Bool;
                Gt gt F32 [-1.0, 1.0] [-1.0, 1.0] Bool;
                Ge ge F32 [-1.0, 1.0] [-1.0, 1.0] Bool;
                LogicalAnd logical_and Bool [0.0, 1.0] [0.0, 1.0] Bool;
                LogicalOr logical_or Bool [0.0, 1.0] [0.0, 1.0] Bool;
                LogicalXor logical_xor Bool [0.0, 1.0] [0.0, 1.0] Bool;
                BitwiseAnd bitwise_and I32 [-1000.0, 1000.0] [-1000.0, 1000.0] I32;
                BitwiseOr bitwise_or I32 [-1000.0, 1000.0] [-1000.0, 1000.0] I32;
                BitwiseXor bitwise_xor I32 [-1000.0, 1000.0] [-1000.0, 1000.0] I32;
                ShiftLeft shift_left I32 [-1000.0, 1000.0] [0.0, 8.0] I32;
                ShiftRight shift_right I32 [-1000.0, 1000.0] [0.0, 8.0] I32;
            }
        }
    };
}

macro_rules! declare {
    (
        unary {$(
            $(#[$doc:meta])*
            $unary:ident $name:ident $(($parameter:literal))? $of:ident [$low:literal, $high:literal] $to:ident;
        )*}
        binary {$(
            $binary:ident $method:ident $type:ident [$($a:literal),*] [$($b:literal),*] $result:ident;
        )*}
    ) => {
        /// An op of the benchmark. Its JSON name is the variant's in snake case.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[expect(
            missing_docs,
            reason = "named after the functions; the peculiar ones are explained"
        )]
        pub enum Op {
            // One operand.
            $($(#[$doc])* $unary,)*
            // Two operands, with broadcasting.
            $($binary,)*
            /// Plus the number one.
            AddScalar,
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
            /// Compared by the selected elements, since the order of ties is unspecified.
            Argsort,
            /// The `k` largest; compared by their values.
            Topk,
            // Linear algebra.
            Matmul,
            /// `a @ b.T`, the transpose being a view.
            MatmulTransposed,
            /// The right-hand side may be repacked beforehand.
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
            /// `x[batch, head, position, width], cos, sin [position, width / 2]`, half-split pairs.
            Rope,
            /// As `Rope`, with interleaved pairs.
            RopeInterleaved,
            /// `q, k, v [batch, head, position, width]`, scaled by `1 / sqrt(width)`; `causal` is a parameter of the
            /// case.
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
            /// Adjacent windows of `size`.
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
            /// A slice in the middle.
            SliceUpdate,
            Concat,
            Stack,
            /// Into four sections, of which the last is compared.
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
            // Language models: the logits after the last token are compared.
            /// The prompt, from an empty sequence.
            Prefill,
            /// The tokens after the prompt, one by one, each with its logits.
            Decode,
        }
    };
}

for_each_function!(declare);

impl Op {
    /// The name in snake case.
    pub fn name(self) -> String {
        serde_json::to_value(self)
            .ok()
            .and_then(|v| v.as_str().map(str::to_owned))
            .expect("a variant without data is a string")
    }
}
