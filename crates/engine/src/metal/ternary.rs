//! Functions of three elements on Metal.

use super::fused;
use super::input::{Input, Output};
use super::record::Recorder;
use crate::ops::fused::Action;
use crate::ops::ternary::{Ternary, TernaryTypes};
use crate::{DType, Kind, Result};

/// Records the op.
pub(super) fn record(
    op: &Ternary,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    fused::record_one(Action::Ternary(*op), recorder, inputs, output)
}

/// Whether there is such a function of three elements of a type; `select` takes a boolean first.
pub(super) fn is_of_one_type(op: Ternary, dtype: DType) -> bool {
    match op.types() {
        TernaryTypes::Condition => false,
        TernaryTypes::Same => true,
        TernaryTypes::Number => dtype.kind() != Kind::Bool,
        TernaryTypes::Float => dtype.is_float(),
    }
}
