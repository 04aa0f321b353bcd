//! `matmul_packed` on Metal: the kernels of `matmul`.

use super::input::{Input, Output};
use super::matmul::{self, Epilogue};
use super::record::Recorder;
use crate::ops::packed_matmul::PackedMatmul;
use crate::{Result, Shape};

/// The inputs are the left factor and, unless it was packed for the CPU, the right one.
pub(crate) fn record(
    _op: &PackedMatmul,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let &[left, right] = inputs else {
        // It is packed for the CPU.
        recorder.no_kernel = true;
        return Ok(());
    };
    if left.layout.shape().rank() > 1 {
        return matmul::multiply(recorder, [left, right], &Epilogue::NONE, output);
    }
    let layout = left.layout.with_axis("matmul_packed", 0, 1, 0)?;
    let output = Output {
        slice: output.slice.clone(),
        shape: Shape::new("matmul_packed", &[1, output.shape[0]])?,
        ..*output
    };
    let left = Input { layout, ..left };
    matmul::multiply(recorder, [left, right], &Epilogue::NONE, &output)
}
