//! `rms_norm` on Metal, and the launch of all norms of rows.

use super::input::{Input, Output, Span};
use super::kernel::Kernel;
use super::msl_struct::msl_struct;
use super::record::{LaunchBuilder, Recorder};
use super::rows::{self, AxisRows};
use crate::ops::rms_norm::RmsNorm;
use crate::{DType, Result};

/// Elements of a row that a thread keeps in registers, as in `norm.h`.
const VALUES_PER_THREAD: usize = 4;

/// Rows of a threadgroup, if one SIMD-group suffices for each.
const ROWS_PER_THREADGROUP: usize = 8;

pub(crate) fn record(
    op: &RmsNorm,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let norm = Norm::new(&inputs[0], &[Some(&inputs[1])], output);
    let kernels = norm.kernels("rms_norm", ["rms_norm_row", "rms_norm_loop"]);
    let kernels = kernels.map(|kernel| kernel.with_type("W", inputs[1].dtype));
    let (launch, threads) = norm.start(recorder, kernels)?;
    let launch = norm.read(launch).write(&output.slice).value(&norm.rows);
    let launch = launch
        .value(&norm.parameters[0].1)
        .value(&(op.eps() as f32));
    norm.launch(recorder, launch, threads);
    Ok(())
}

msl_struct! {
    /// Stride and offset of a norm's weight or bias vector, in elements.
    #[derive(Default)]
    pub(super) struct NormParameter {
        stride: i64,
        offset: i64,
    }
}

/// A norm of the rows along the last axis.
pub(super) struct Norm {
    pub(super) rows: AxisRows,
    span: Span,
    dtype: DType,
    /// The bound range of each parameter, if it exists.
    pub(super) parameters: Vec<(Option<Span>, NormParameter)>,
    /// Whether four elements are one load.
    vector: bool,
}

impl Norm {
    /// A norm with parameters as long as the rows.
    pub(super) fn new(x: &Input<'_>, parameters: &[Option<&Input<'_>>], output: &Output) -> Self {
        let mut norm = Self::by_channel(x, parameters, output);
        for (span, parameter) in &norm.parameters {
            norm.vector &= span.is_none() || parameter.stride == 1;
            norm.vector &= parameter.offset % VALUES_PER_THREAD as i64 == 0;
        }
        norm
    }

    /// A norm whose parameters are not read by vector loads.
    pub(super) fn by_channel(
        x: &Input<'_>,
        parameters: &[Option<&Input<'_>>],
        output: &Output,
    ) -> Self {
        let axis = x.layout.shape().rank() - 1;
        let (rows, span) = AxisRows::new(x, axis, output);
        let vector = rows.is_aligned(VALUES_PER_THREAD)
            && (rows.len as usize).is_multiple_of(VALUES_PER_THREAD);
        let parameters = parameters.iter().map(|p| {
            let Some(p) = p else {
                return (None, NormParameter::default());
            };
            let (span, stride) = (p.span(output), p.layout.strides()[0]);
            let parameter = NormParameter {
                stride: stride as i64,
                offset: span.offset as i64,
            };
            (Some(span), parameter)
        });
        let parameters = parameters.collect();
        Self {
            rows,
            span,
            dtype: output.dtype,
            parameters,
            vector,
        }
    }

    /// Threads that share a row.
    fn threads(&self) -> usize {
        (self.rows.len as usize)
            .div_ceil(VALUES_PER_THREAD)
            .next_multiple_of(32)
    }

    /// The kernels: the first entry for rows that fit registers, the second for all others.
    pub(super) fn kernels(&self, file: &'static str, entries: [&'static str; 2]) -> [Kernel; 2] {
        entries.map(|entry| {
            Kernel::new(file, entry)
                .with_type("T", self.dtype)
                .flag("VECTOR", self.vector)
                .flag("ROW_PER_SIMD_GROUP", self.threads() == 32)
        })
    }

    /// Begins a launch of the kernel that the pipelines allow; returns the threads that share a row.
    pub(super) fn start(
        &self,
        recorder: &mut Recorder<'_>,
        kernels: [Kernel; 2],
    ) -> Result<(LaunchBuilder, usize)> {
        rows::launch(recorder, kernels, self.threads())
    }

    /// Binds the rows and the parameters.
    pub(super) fn read(&self, launch: LaunchBuilder) -> LaunchBuilder {
        let launch = launch.read(self.span.clone());
        self.parameters
            .iter()
            .fold(launch, |l, (span, _)| match span {
                Some(span) => l.read(span.clone()),
                // Not read.
                None => l.value(&[0_u64; 4]),
            })
    }

    pub(super) fn launch(
        &self,
        recorder: &mut Recorder<'_>,
        launch: LaunchBuilder,
        threads: usize,
    ) {
        let count = self.rows.count as usize;
        let (groups, threads) = match threads {
            32 => {
                let rows_per_group = ROWS_PER_THREADGROUP.min(count);
                (count.div_ceil(rows_per_group), 32 * rows_per_group)
            }
            threads => (count, threads),
        };
        launch.groups(recorder, groups, threads);
    }
}
