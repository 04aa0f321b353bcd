//! Conversions on Metal.

use super::fused;
use super::input::{Input, Output};
use super::record::Recorder;
use crate::ops::cast::Cast;
use crate::ops::fused::Action;
use crate::{DType, Result};

/// Records the op.
pub(super) fn record(
    _op: &Cast,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    fused::record_one(Action::Cast, recorder, inputs, output)
}

/// Whether there is such a conversion: Metal has no `f64`, and no type is converted to itself.
pub(super) fn exists(from: DType, to: DType) -> bool {
    from != to && to != DType::F64
}
