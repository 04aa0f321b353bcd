//! Functions of one element on Metal: where `msl/` has them.

use super::fused;
use super::input::{Input, Output};
use super::record::Recorder;
use crate::ops::fused::Action;
use crate::ops::unary::{Answer, Unary};
use crate::{DType, Kind, Result};

/// Records the op.
pub(super) fn record(
    op: &Unary,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    fused::record_one(Action::Unary(*op), recorder, inputs, output)
}

/// The file that has the function.
pub(super) const fn file(op: Unary) -> &'static str {
    match op {
        Unary::Exp | Unary::Exp2 | Unary::Expm1 => "exp.h",
        Unary::Log | Unary::Log2 | Unary::Log10 | Unary::Log1p => "log.h",
        Unary::Sin | Unary::Cos | Unary::Tan => "trig.h",
        Unary::Asin | Unary::Acos | Unary::Atan => "inverse_trig.h",
        Unary::Sinh | Unary::Cosh | Unary::Tanh | Unary::Asinh | Unary::Acosh | Unary::Atanh => {
            "hyperbolic.h"
        }
        Unary::Erf | Unary::Gelu => "erf.h",
        Unary::Sigmoid
        | Unary::LogSigmoid
        | Unary::Softplus
        | Unary::Silu
        | Unary::GeluTanh
        | Unary::Mish
        | Unary::Elu(_) => "activation.h",
        Unary::Cbrt => "power.h",
        _ => "unary.metal",
    }
}

/// The type of the result for elements of a type, where there is such a function of them.
pub(super) fn result(op: Unary, dtype: DType) -> Option<DType> {
    let kind = dtype.kind();
    match op.result() {
        _ if matches!(op, Unary::BitwiseNot) && kind == Kind::Float => None,
        Answer::Float if kind != Kind::Float => None,
        Answer::Number if kind == Kind::Bool => None,
        Answer::Bool => Some(DType::Bool),
        _ => Some(dtype),
    }
}

/// Whether it has a parameter.
pub(super) const fn has_parameter(op: Unary) -> bool {
    matches!(op, Unary::LeakyRelu(_) | Unary::Elu(_))
}

/// The function without its parameter, which kernels get as an argument.
pub(super) const fn bare(op: Unary) -> Unary {
    match op {
        Unary::LeakyRelu(_) => Unary::LeakyRelu(0.0),
        Unary::Elu(_) => Unary::Elu(0.0),
        other => other,
    }
}
