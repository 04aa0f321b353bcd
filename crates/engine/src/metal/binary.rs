//! Functions of two elements on Metal.

use super::fused;
use super::input::{Input, Output};
use super::record::Recorder;
use crate::ops::binary::{Binary, Types};
use crate::ops::fused::Action;
use crate::{DType, Kind, Result};

/// Records the op.
pub(super) fn record(
    op: &Binary,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    fused::record_one(Action::Binary(*op), recorder, inputs, output)
}

/// The type of the result for elements of a type, if there is such a function of them.
pub(super) fn result(op: Binary, dtype: DType) -> Option<DType> {
    match (op.types(), dtype.kind()) {
        (Types::Compare, _) => Some(DType::Bool),
        (Types::Same, _)
        | (Types::Number, Kind::Int | Kind::Float)
        | (Types::TrueFloat | Types::Float, Kind::Float)
        | (Types::Logic, Kind::Bool)
        | (Types::Bits, Kind::Int | Kind::Bool)
        | (Types::Int, Kind::Int) => Some(dtype),
        _ => None,
    }
}
