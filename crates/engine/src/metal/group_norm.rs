//! `group_norm` on Metal.

use super::input::{Input, Output};
use super::msl_struct::msl_struct;
use super::record::Recorder;
use super::rms_norm::{Norm, NormParameter};
use crate::Result;
use crate::ops::group_norm::GroupNorm;

msl_struct! {
    /// Arguments of the group norm kernels.
    pub(super) struct GroupNormArgs {
        weight: NormParameter,
        bias: NormParameter,
        eps: f32,
        /// Groups of an image.
        groups: u32,
        /// Channels of a group.
        channels: u32,
        /// Elements of a channel.
        spatial: u32,
    }
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
        let kernel = kernel.with_type("W", w).with_type("B", b);
        kernel.flag("WEIGHT", op.weight).flag("BIAS", op.bias)
    });
    let (launch, threads) = norm.start(recorder, kernels)?;
    let launch = norm.read(launch).write(&output.slice).value(&norm.rows);
    let launch = launch.value(&GroupNormArgs {
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
