//! Functions of one element on Metal.

use super::fused;
use super::input::{Input, Output};
use super::record::Recorder;
use crate::ops::fused::Action;
use crate::ops::unary::{Unary, UnaryResult};
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

/// The type of the result for elements of a type, if there is such a function of them.
pub(super) fn result(op: Unary, dtype: DType) -> Option<DType> {
    let kind = dtype.kind();
    match op.result() {
        _ if matches!(op, Unary::BitwiseNot) && kind == Kind::Float => None,
        UnaryResult::Float if kind != Kind::Float => None,
        UnaryResult::Number if kind == Kind::Bool => None,
        UnaryResult::Bool => Some(DType::Bool),
        _ => Some(dtype),
    }
}
