//! `take` on the CPU: rows copied.

use std::sync::OnceLock;

use bytemuck::Pod;

use super::axis_split::AxisSplit;
use super::index::{self, SOME};
use super::pool;
use crate::dispatch::{Dense, Input, Output};
use crate::ops::Rule;
use crate::ops::take::Take;
use crate::{DType, Error, Result};

/// Copies the rows that the indices name.
pub(crate) fn run(op: &Take, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let around = AxisSplit::new(inputs[0].layout.shape(), op.axis);
    let job = Job {
        data: Dense::new(op.name(), inputs[0])?,
        around,
        indices: Dense::new(op.name(), inputs[1])?,
        dtype: inputs[1].dtype,
        count: inputs[1].layout.count(),
        error: OnceLock::new(),
    };
    match inputs[0].dtype.size() {
        1 => job.run::<u8>(output.all()),
        2 => job.run::<u16>(output.all()),
        4 => job.run::<u32>(output.all()),
        _ => job.run::<u64>(output.all()),
    }
    job.error.into_inner().map_or(Ok(()), Err)
}

struct Job<'a> {
    data: Dense<'a>,
    around: AxisSplit,
    indices: Dense<'a>,
    dtype: DType,
    /// Indices.
    count: usize,
    /// The first that a thread met: the result is thrown away.
    error: OnceLock<Error>,
}

impl Job<'_> {
    /// Copies rows of elements of any type of the right size.
    fn run<T: Pod + Send + Sync>(&self, out: &mut [T]) {
        let data = self.data.all::<T>();
        let AxisSplit {
            len, inner: width, ..
        } = self.around;
        let step = pool::grain(2 * width * size_of::<T>());
        pool::for_each_chunk(out, step * width, |i, out| {
            let mut places = [0; SOME];
            let (first, end) = (i * step, i * step + out.len() / width);
            let mut at = first;
            while at < end {
                // As many rows as belong to one block of the data.
                let (block, from) = (at / self.count, at % self.count);
                let now = SOME.min(self.count - from).min(end - at);
                let places = &mut places[..now];
                if let Err(error) =
                    index::places("take", &self.indices, self.dtype, (from, len), places)
                {
                    let _ = self.error.set(error);
                    return;
                }
                let data = &data[block * len * width..][..len * width];
                let out = &mut out[(at - first) * width..][..now * width];
                if width == 1 {
                    for (to, &place) in out.iter_mut().zip(&*places) {
                        *to = data[place];
                    }
                } else {
                    for (to, &place) in out.chunks_exact_mut(width).zip(&*places) {
                        to.copy_from_slice(&data[place * width..][..width]);
                    }
                }
                at += now;
            }
        });
    }
}
