//! Rows along one axis of an input of any layout.

use super::input::{Input, Output, Span};
use super::kernel::Kernel;
use super::msl_struct::msl_struct;
use super::record::{LaunchBuilder, Recorder};
use super::view::{self, ViewStrides, Walk};
use crate::{Layout, Result};

/// Maximum threads of a threadgroup on any device.
const MAX_THREADS: usize = 1024;

/// Begins a launch of `in_registers`, which keeps whole rows in the registers of `threads` threads, or of `looped`,
/// which loops over rows with any number of threads. A pipeline may allow fewer threads than a device does.
///
/// The input and the output of such kernels may be the same memory (`Output::aliases_input`): a threadgroup reads only its own row,
/// and an element that is read again after a write of the row is read by the thread that writes it. Metal assumes nothing
/// about buffers that alias, unless they are `restrict` or `constant`.
pub(super) fn launch(
    recorder: &mut Recorder<'_>,
    [in_registers, looped]: [Kernel; 2],
    threads: usize,
) -> Result<(LaunchBuilder, usize)> {
    if threads <= MAX_THREADS {
        let launch = recorder.launch(&in_registers)?;
        if threads <= launch.max_threads() {
            return Ok((launch, threads));
        }
    }
    let launch = recorder.launch(&looped)?;
    let threads = launch.max_threads().min(MAX_THREADS);
    Ok((launch, threads))
}

msl_struct! {
    /// Rows along one axis of an input of any layout.
    pub(crate) struct AxisRows {
        /// The other axes, and the input's strides along them.
        walk: Walk,
        view: ViewStrides,
        /// Stride along the axis, in elements.
        stride: i64,
        /// Elements of a row.
        pub(crate) len: u32,
        /// Stride along the axis in a row-major result.
        pub(crate) inner: u32,
        /// Number of rows.
        pub(crate) count: u32,
        padding: u32,
    }
}

impl AxisRows {
    /// Splits an input into rows along an axis; returns them and the range to bind.
    pub(crate) fn new(input: &Input<'_>, axis: usize, output: &Output) -> (Self, Span) {
        let span = input.span(output);
        let layout: Layout = input.layout;
        let shape = layout.shape();
        let others = Input {
            layout: layout.without(axis),
            ..*input
        };
        let (walk, views) = view::walk(others.layout.shape(), &[(&others, span.offset)]);
        let rows = Self {
            walk,
            view: views[0],
            stride: layout.strides()[axis] as i64,
            len: shape[axis] as u32,
            inner: shape[axis + 1..].iter().product::<usize>() as u32,
            count: others.layout.count() as u32,
            padding: 0,
        };
        (rows, span)
    }

    /// Whether rows are contiguous and begin at multiples of `count` elements.
    pub(crate) fn is_aligned(&self, count: usize) -> bool {
        let multiple = |&s: &i64| s % count as i64 == 0;
        (self.stride == 1 || self.len == 1)
            && multiple(&self.view.offset)
            && self.view.strides[..self.walk.rank as usize]
                .iter()
                .all(multiple)
    }
}
