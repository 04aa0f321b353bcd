//! Elementwise ops on the CPU.

use crate::dispatch::{Input, Output};
use crate::ops::Op;
use crate::ops::fused::Step;

/// Runs one op.
pub(crate) fn run_one(_op: &Op, _inputs: &[Input<'_>], _output: Output<'_>) {}

/// Runs a program.
pub(crate) fn run(_steps: &[Step], _inputs: &[Input<'_>], _output: Output<'_>) {}
