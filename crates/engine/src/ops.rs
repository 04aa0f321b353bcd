//! Definitions of the ops.
//!
//! Op X is `ops/x.rs`: its parameters, its shape and dtype rule, the `Tensor` method that makes it and, for fused ops,
//! the formula in simpler ones. It runs in `cpu/x.rs` and in `metal/x.rs` with `metal/msl/x.metal`. [`for_each_op!`] lists
//! the ops that have a kernel; all others are formulas of those.
//!
//! [`for_each_op!`]: crate::for_each_op

use crate::custom::{CustomOp, CustomOutput};
use crate::dispatch_table::OpClass;
use crate::{DType, Result, Shape, Tensor};

/// The dtype and shape of a result.
pub(crate) type Meta = (DType, Shape);

/// Shape and dtype inference of an op.
pub(crate) trait Rule: Into<Op> {
    /// The name in errors and plans.
    fn name(&self) -> &'static str;

    /// The dtype and shape of the result, or an error. The number of `inputs` is what the op's method passes.
    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta>;

    /// The row of the dispatch table that decides where the op runs, if it is measured.
    fn measured_as(&self) -> Option<OpClass> {
        None
    }
}

/// The ops that have a kernel, a line each.
///
/// `for_each_op!(m)` expands to `m! { … }` with all lines, and so declares the modules in `ops.rs`, `cpu.rs` and
/// `metal.rs`, [`Op`], the dispatch on the CPU and on Metal, the list of MSL files and the test modules. A line is
/// `module::Params`; `boxed` keeps large parameters out of line, since every node has the size of the largest [`Op`];
/// `=> other` says that the op launches the kernels of `metal/msl/other.metal` instead of its own file.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_op {
    ($callback:ident) => {
        $callback! {
            /// Evenly spaced values.
            arange::Arange boxed,
            /// Index of the minimum or maximum.
            arg_reduce::ArgReduce => reduce,
            /// Indices that sort an axis.
            arg_sort::ArgSort => sort,
            /// Scaled dot-product attention.
            attention::Attention,
            /// Elementwise `f(a, b)`.
            binary::Binary,
            /// Conversion to another dtype.
            cast::Cast,
            /// Concatenation along an axis.
            concat::Concat,
            /// Convolution.
            conv::Conv boxed,
            /// Contiguous copy of a strided tensor.
            copy::Copy,
            /// Cross-entropy of logits and target indices.
            cross_entropy::CrossEntropy,
            /// A constant.
            full::Full,
            /// Several elementwise ops in one pass over memory.
            fused::Fused boxed => unary,
            /// One element along an axis for each index.
            gather::Gather,
            /// Group normalization.
            group_norm::GroupNorm,
            /// Layer normalization.
            layer_norm::LayerNorm,
            /// Matrix multiplication.
            matmul::Matmul boxed,
            /// Matrix multiplication by a packed matrix.
            packed_matmul::PackedMatmul => matmul,
            /// Matrix multiplication by quantized weights.
            quant_matmul::QuantMatmul,
            /// Constant padding.
            pad::Pad boxed,
            /// Max and average pooling.
            pooling::Pooling,
            /// Counter-based random values.
            random::Random boxed,
            /// Reduction over axes.
            reduce::Reduce,
            /// RMS normalization.
            rms_norm::RmsNorm,
            /// Rotary position embedding.
            rope::Rope,
            /// Cumulative sum, product or maximum.
            scan::Scan,
            /// Elements written or added at indices.
            scatter::Scatter,
            /// A slice replaced.
            slice_update::SliceUpdate boxed,
            /// Softmax or its logarithm.
            softmax::Softmax,
            /// Sorted elements of an axis.
            sort::Sort,
            /// Slices of an axis by index.
            take::Take,
            /// Elementwise `f(a, b, c)`.
            ternary::Ternary,
            /// Indices of the k largest or smallest elements.
            top_k::TopK => sort,
            /// Upper or lower triangle.
            triangle::Triangle,
            /// Elementwise `f(a)`.
            unary::Unary,
        }
    };
}

/// Declares the module of every op with a kernel, and [`Op`].
macro_rules! declare {
    ($($(#[$doc:meta])* $module:ident::$name:ident $($boxed:ident)? $(=> $msl:ident)?,)*) => {
        $(pub(crate) mod $module;)*

        /// An op of the graph: a kernel with its parameters.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Op {
            /// The value of an equal node, found by common subexpression elimination: it has no kernel.
            Alias(alias::Alias),
            /// An argument of a function that is being traced: it has no kernel and no value.
            Argument(argument::Argument),
            /// A launch of a custom kernel.
            Custom(CustomOp),
            /// One of several results of a custom kernel.
            CustomOutput(CustomOutput),
            $($(#[$doc])* $name(declare!(@params $module::$name $($boxed)?)),)*
        }

        $(impl From<$module::$name> for Op {
            fn from(op: $module::$name) -> Self {
                Self::$name(op.into())
            }
        })*

        impl Op {
            /// The name in errors and plans.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    Self::Alias(op) => op.name(),
                    Self::Argument(_) => "argument",
                    Self::Custom(op) => op.name(),
                    Self::CustomOutput(op) => op.launch.name,
                    $(Self::$name(op) => op.name(),)*
                }
            }
        }
    };
    (@params $module:ident::$name:ident) => { $module::$name };
    (@params $module:ident::$name:ident boxed) => { Box<$module::$name> };
}

crate::for_each_op!(declare);

pub(crate) mod alias;
pub(crate) mod argument;

// Formulas of other ops.
mod batch_norm;
mod dot;
mod einsum;
mod embedding;
mod logsumexp;
mod matvec;
mod mse;
mod norm;
mod outer;
mod repeat;
mod swiglu;
mod upsample_nearest;
mod var;

impl From<alias::Alias> for Op {
    fn from(op: alias::Alias) -> Self {
        Self::Alias(op)
    }
}

// Box larger parameters.
const _: () = assert!(size_of::<Op>() <= 64);

impl Op {
    /// Returns `true` for elementwise ops: they are fused, take scalar constants as they are, and may run in place.
    pub(crate) const fn is_pointwise(&self) -> bool {
        matches!(
            self,
            Self::Unary(_) | Self::Binary(_) | Self::Ternary(_) | Self::Cast(_) | Self::Fused(_)
        )
    }

    /// Returns `true` if the result starts as a copy of the first input, which is not needed if that input is donated.
    pub(crate) const fn updates_first(&self) -> bool {
        matches!(self, Self::Scatter(_) | Self::SliceUpdate(_))
    }

    /// The axis of the rows, if a row of the result depends on that row of the first input and on no other of it: each
    /// row is read before it is written, so that the op may run in place.
    pub(crate) fn row_axis(&self, shape: &Shape) -> Option<usize> {
        match self {
            Self::Softmax(op) => Some(op.axis),
            Self::LayerNorm(_) | Self::RmsNorm(_) | Self::Rope(_) => shape.rank().checked_sub(1),
            _ => None,
        }
    }
}
