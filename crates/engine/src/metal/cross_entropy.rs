//! `cross_entropy` on Metal.

use super::input::{Input, Output};
use super::kernel::Kernel;
use super::msl_struct::msl_struct;
use super::record::Recorder;
use super::rows::AxisRows;
use super::view::{self, ViewStrides, Walk};
use crate::Result;
use crate::ops::cross_entropy::CrossEntropy;

msl_struct! {
    /// Layout of the target indices of a cross entropy.
    pub(super) struct TargetView {
        walk: Walk,
        view: ViewStrides,
    }
}

pub(crate) fn record(
    _op: &CrossEntropy,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let (x, targets) = (&inputs[0], &inputs[1]);
    let (rows, span) = AxisRows::new(x, x.layout.shape().rank() - 1, output);
    let target = targets.span(output);
    let (walk, views) = view::walk(targets.layout.shape(), &[(targets, target.offset)]);
    let classes = rows.len as usize;
    let fault = recorder.fault(classes)?;
    let count = rows.count as usize;
    // A few elements a thread; one SIMD-group for short rows.
    let threads = classes.div_ceil(8).next_multiple_of(32).clamp(32, 1024);
    let kernel = Kernel::new("cross_entropy", "cross_entropy")
        .with_type("T", x.dtype)
        .with_type("I", targets.dtype)
        .flag("ROW_PER_SIMD_GROUP", threads == 32);
    let launch = recorder.launch(&kernel)?;
    let (groups, threads) = match threads {
        32 => (count.div_ceil(8.min(count)), 32 * 8.min(count)),
        _ => (count, threads.min(launch.max_threads())),
    };
    let launch = match classes {
        0 => launch.value(&0_u64),
        _ => launch.read(span),
    };
    launch
        .read(target)
        .write(&output.slice)
        .value(&rows)
        .value(&TargetView {
            walk,
            view: views[0],
        })
        .update(fault)
        .groups(recorder, groups, threads);
    Ok(())
}
