//! `layer_norm` on Metal.

use super::input::{Input, Output};
use super::msl_struct::msl_struct;
use super::record::Recorder;
use super::rms_norm::{Norm, NormParameter};
use crate::Result;
use crate::ops::layer_norm::LayerNorm;

msl_struct! {
    /// Arguments of the layer norm kernels.
    pub(super) struct LayerNormArgs {
        weight: NormParameter,
        bias: NormParameter,
        eps: f32,
        padding: u32,
    }
}

pub(crate) fn record(
    op: &LayerNorm,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let mut rest = inputs[1..].iter();
    let weight = if op.weight { rest.next() } else { None };
    let bias = if op.bias { rest.next() } else { None };
    let norm = Norm::new(&inputs[0], &[weight, bias], output);
    let [w, b] = [weight, bias].map(|p| p.map_or(output.dtype, |p| p.dtype));
    let kernels = norm.kernels("layer_norm", ["layer_norm_row", "layer_norm_loop"]);
    let kernels = kernels.map(|kernel| {
        let kernel = kernel.with_type("W", w).with_type("B", b);
        kernel.flag("WEIGHT", op.weight).flag("BIAS", op.bias)
    });
    let (launch, threads) = norm.start(recorder, kernels)?;
    let launch = norm.read(launch).write(&output.slice).value(&norm.rows);
    let launch = launch.value(&LayerNormArgs {
        weight: norm.parameters[0].1,
        bias: norm.parameters[1].1,
        eps: op.eps() as f32,
        padding: 0,
    });
    norm.launch(recorder, launch, threads);
    Ok(())
}
