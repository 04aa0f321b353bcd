//! Functions of two elements on Metal.

use super::fused;
use super::input::{Input, Output};
use super::record::Recorder;
use crate::ops::binary::{Binary, BinaryTypes};
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
        (BinaryTypes::Compare, _) => Some(DType::Bool),
        (BinaryTypes::Same, _)
        | (BinaryTypes::Number, Kind::Int | Kind::Float)
        | (BinaryTypes::TrueFloat | BinaryTypes::Float, Kind::Float)
        | (BinaryTypes::Logic, Kind::Bool)
        | (BinaryTypes::Bits, Kind::Int | Kind::Bool)
        | (BinaryTypes::Int, Kind::Int) => Some(dtype),
        _ => None,
    }
}
