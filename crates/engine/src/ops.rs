//! The ops: what they mean.
//!
//! Op X is `ops/x.rs`: its parameters, its rule for shapes and types, the `Tensor` method that makes it,
//! and, for ops that others make faster, the formula in terms of simpler ones. How it runs is `cpu/x.rs`.
//! What needs no kernel of its own is written here in terms of ops that have one.

use crate::backends::array::ArrayOp;
use crate::{DType, Result, Shape, Tensor};

/// What an op makes of its inputs.
pub(crate) type Meta = (DType, Shape);

/// The meaning of an op.
pub(crate) trait Rule: Into<Op> {
    /// The name that errors and plans give it.
    fn name(&self) -> &'static str;

    /// The type and shape of the result, or why there is none. `inputs` are as many as the method that
    /// makes the op passes.
    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta>;

    /// The row of the dispatch table that says where it runs, if it is measured.
    fn measured_as(&self) -> Option<ArrayOp> {
        None
    }
}

/// Declares [`Op`] with a variant for each op with a kernel. Large parameters are `boxed`: nodes have room for the largest
/// variant, and small ops show how long it takes to write one.
macro_rules! ops {
    ($($(#[$doc:meta])* $module:ident::$name:ident $($boxed:ident)?),* $(,)?) => {
        /// An op of the graph: a kernel with its parameters.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Op {
            $($(#[$doc])* $name(ops!(@type $module::$name $($boxed)?)),)*
        }

        $(impl From<$module::$name> for Op {
            fn from(op: $module::$name) -> Self {
                Self::$name(op.into())
            }
        })*

        impl Op {
            /// The name that errors and plans give it.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(op) => op.name(),)*
                }
            }
        }
    };
    (@type $module:ident::$name:ident) => { $module::$name };
    (@type $module:ident::$name:ident boxed) => { Box<$module::$name> };
}

pub(crate) mod alias;
pub(crate) mod arange;
pub(crate) mod arg_reduce;
pub(crate) mod arg_sort;
pub(crate) mod attention;
mod batch_norm;
pub(crate) mod binary;
pub(crate) mod cast;
pub(crate) mod concat;
pub(crate) mod conv;
pub(crate) mod copy;
pub(crate) mod cross_entropy;
mod dot;
mod einsum;
mod embedding;
pub(crate) mod full;
pub(crate) mod fused;
pub(crate) mod gather;
pub(crate) mod group_norm;
pub(crate) mod layer_norm;
mod logsumexp;
pub(crate) mod matmul;
mod matvec;
mod mse;
mod norm;
mod outer;
pub(crate) mod packed_matmul;
pub(crate) mod pad;
pub(crate) mod pooling;
pub(crate) mod quant_matmul;
pub(crate) mod random;
pub(crate) mod reduce;
mod repeat;
pub(crate) mod rms_norm;
pub(crate) mod rope;
pub(crate) mod scan;
pub(crate) mod scatter;
pub(crate) mod slice_update;
pub(crate) mod softmax;
pub(crate) mod sort;
mod swiglu;
pub(crate) mod take;
pub(crate) mod ternary;
pub(crate) mod top_k;
pub(crate) mod triangle;
pub(crate) mod unary;
mod upsample_nearest;
mod var;

ops! {
    /// The value of another node, found to be the same.
    alias::Alias,
    /// Numbers at equal distances.
    arange::Arange boxed,
    /// Where the least or greatest element is.
    arg_reduce::ArgReduce,
    /// The order that sorts.
    arg_sort::ArgSort,
    /// Softmax of scaled dot products of queries and keys, times values.
    attention::Attention,
    /// `f(a, b)`, element by element.
    binary::Binary,
    /// Conversion to another type.
    cast::Cast,
    /// Tensors one after the other.
    concat::Concat,
    /// Weighted windows of images.
    conv::Conv boxed,
    /// The elements of any layout, one after the other.
    copy::Copy,
    /// How improbable the target of each row is.
    cross_entropy::CrossEntropy,
    /// One number.
    full::Full,
    /// Several elementwise ops in one pass over memory.
    fused::Fused boxed,
    /// An element along an axis for each index.
    gather::Gather,
    /// Groups of channels shifted and scaled to mean 0 and variance 1.
    group_norm::GroupNorm,
    /// Rows shifted and scaled to mean 0 and variance 1.
    layer_norm::LayerNorm,
    /// Products of matrices.
    matmul::Matmul boxed,
    /// Products with a matrix laid out before.
    packed_matmul::PackedMatmul,
    /// Products with quantised weights.
    quant_matmul::QuantMatmul,
    /// A border of one number.
    pad::Pad boxed,
    /// Windows of images reduced to one number.
    pooling::Pooling,
    /// Numbers that are a function of a key.
    random::Random boxed,
    /// Many elements made one.
    reduce::Reduce,
    /// Rows divided by their root mean square.
    rms_norm::RmsNorm,
    /// Pairs turned by an angle that grows with the position.
    rope::Rope,
    /// Results so far along an axis.
    scan::Scan,
    /// Elements put where indices say.
    scatter::Scatter,
    /// A block of a tensor replaced.
    slice_update::SliceUpdate boxed,
    /// Exponentials that add up to 1.
    softmax::Softmax,
    /// Elements in order.
    sort::Sort,
    /// Elements of an axis by index.
    take::Take,
    /// `f(a, b, c)`, element by element.
    ternary::Ternary,
    /// Where the few greatest or least elements are.
    top_k::TopK,
    /// Matrices with nothing on one side of a diagonal.
    triangle::Triangle,
    /// `f(a)`, element by element.
    unary::Unary,
}

// What is larger is boxed.
const _: () = assert!(size_of::<Op>() <= 64);

impl Op {
    /// Whether it works element by element: those ops join others, take numbers of the program as they
    /// are, and may write over an input.
    pub(crate) const fn is_pointwise(&self) -> bool {
        matches!(
            self,
            Self::Unary(_) | Self::Binary(_) | Self::Ternary(_) | Self::Cast(_) | Self::Fused(_)
        )
    }

    /// Whether its result begins as a copy of its first input, which it need not make where that input's
    /// memory becomes the result's.
    pub(crate) const fn updates_first(&self) -> bool {
        matches!(self, Self::Scatter(_) | Self::SliceUpdate(_))
    }
}
