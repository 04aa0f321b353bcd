//! `group_norm` on Metal.

use bytemuck::{Pod, Zeroable};

use super::input::{Input, Output};
use super::record::Recorder;
use super::rms_norm::{Norm, Parameter};
use crate::Result;
use crate::ops::group_norm::GroupNorm;

/// As `group_norm.metal` has it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Parameters {
    weight: Parameter,
    bias: Parameter,
    eps: f32,
    groups: u32,
    channels: u32,
    spatial: u32,
}

pub(crate) fn record(
    op: &GroupNorm,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let mut rest = inputs[1..].iter();
    let weight = if op.weight { rest.next() } else { None };
    let bias = if op.bias { rest.next() } else { None };
    let norm = Norm::by_channel(&inputs[0], &[weight, bias], output);
    let [w, b] = [weight, bias].map(|p| p.map_or(output.dtype, |p| p.dtype));
    let kernels = norm.kernels("group_norm", ["group_norm_row", "group_norm_loop"]);
    let kernels = kernels.map(|kernel| {
        let kernel = kernel.of("W", w).of("B", b);
        kernel.flag(2, op.weight).flag(3, op.bias)
    });
    let (launch, threads) = norm.start(recorder, kernels)?;
    let launch = norm.read(launch).write(&output.slice).value(&norm.rows);
    let launch = launch.value(&Parameters {
        weight: norm.parameters[0].1,
        bias: norm.parameters[1].1,
        eps: op.eps() as f32,
        groups: op.groups as u32,
        channels: (norm.rows.len as usize / op.spatial) as u32,
        spatial: op.spatial as u32,
    });
    norm.launch(recorder, launch, threads);
    Ok(())
}
