//! Functions of three elements on Metal.

use super::fused;
use super::input::{Input, Output};
use super::record::Recorder;
use crate::ops::fused::Action;
use crate::ops::ternary::Ternary;
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

/// All that take three elements of one type; `select` takes a truth value first.
pub(super) const OF_ONE_TYPE: [Ternary; 3] = [Ternary::Clamp, Ternary::MulAdd, Ternary::Lerp];

/// Whether there is such a function of elements of a type.
pub(super) fn exists(op: Ternary, dtype: DType) -> bool {
    match op {
        Ternary::Select | Ternary::Clamp => true,
        Ternary::MulAdd => dtype.kind() != Kind::Bool,
        Ternary::Lerp => dtype.is_float(),
    }
}
