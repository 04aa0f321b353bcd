//! `sort` on Metal, and the order of elements for `argsort` and `topk`.
//!
//! Blocks of a row are sorted in threadgroup memory and merged in passes over device memory. To select the first few
//! elements, blocks keep no more than those, and are sorted again until one is left.

use bessemer_hal::BufferSlice;

use super::input::{Input, Output, Span};
use super::kernel::Kernel;
use super::msl_struct::msl_struct;
use super::record::{LaunchBuilder, Recorder};
use super::reduce::kind;
use super::rows::AxisRows;
use crate::ops::sort::Sort;
use crate::{DType, Error, Result};

/// Elements that a threadgroup sorts, and that a thread merges, as in `sort.metal`.
const SORT_BLOCK_LEN: usize = 1024;
const ITEMS_PER_THREAD: usize = 8;

/// Maximum elements of a selection: a pass over blocks leaves a quarter at most.
const MAX_SELECT_LEN: usize = SORT_BLOCK_LEN / 4;

msl_struct! {
    /// Arguments of the sort kernels.
    pub(super) struct SortArgs {
        rows: AxisRows,
        /// Keys of an input row.
        len: u32,
        /// Keys that a block keeps.
        keep: u32,
        /// Keys of an output row.
        next: u32,
        /// Elements of a row of the result.
        result: u32,
        blocks: u32,
        /// Keys of a run that is already sorted.
        width: u32,
    }
}

/// The requested part of the sorted elements.
#[derive(Clone, Copy)]
pub(super) struct SortRequest {
    pub(super) axis: usize,
    /// Number of elements of a row, from the first on.
    pub(super) count: usize,
    /// Whether their indices are returned, not the elements.
    pub(super) indices: bool,
    /// Whether the greatest comes first.
    pub(super) descending: bool,
}

pub(crate) fn record(
    op: &Sort,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let request = SortRequest {
        axis: op.axis,
        count: output.shape[op.axis],
        indices: false,
        descending: false,
    };
    order(recorder, &inputs[0], output, request)
}

/// Writes the first elements, or their indices, of each row in order.
pub(super) fn order(
    recorder: &mut Recorder<'_>,
    input: &Input<'_>,
    output: &Output,
    request: SortRequest,
) -> Result<()> {
    let len = input.layout.shape()[request.axis];
    if u32::try_from(len).is_err() {
        return Err(Error::Invalid {
            op: recorder.op,
            reason: format!("an axis of {len} elements is longer than {}", u32::MAX),
        });
    }
    let (rows, span) = AxisRows::new(input, request.axis, output);
    order_rows(recorder, rows, span, input.dtype, output, request)
}

/// [`order`] for rows whose bound range is known.
pub(super) fn order_rows(
    recorder: &mut Recorder<'_>,
    rows: AxisRows,
    span: Span,
    dtype: DType,
    output: &Output,
    request: SortRequest,
) -> Result<()> {
    let len = rows.len as usize;
    let sorter = Sorter {
        rows,
        span,
        dtype,
        request,
    };
    if request.count <= MAX_SELECT_LEN {
        return sorter.select(recorder, output, len);
    }
    let pairs = sorter.blocks(recorder, output, None, len, SORT_BLOCK_LEN)?;
    sorter.merge(recorder, output, pairs, len)
}

struct Sorter {
    rows: AxisRows,
    span: Span,
    dtype: DType,
    request: SortRequest,
}

impl Sorter {
    fn kernel(&self, entry: &'static str, first: bool, last: bool) -> Kernel {
        let key = if self.dtype.size() == 8 {
            DType::U64
        } else {
            DType::U32
        };
        Kernel::new("sort", entry)
            .with_type("T", key)
            .flag("FIRST", first)
            .flag("LAST", last)
            .flag("INDICES", self.request.indices)
            .flag("DESCENDING", self.request.descending)
            .constant("SIZE", self.dtype.size() as u32)
            .constant("KIND", kind(self.dtype))
    }

    /// Scratch memory for `len` keys of each row, then as many indices.
    fn pairs(&self, recorder: &mut Recorder<'_>, len: usize) -> Result<BufferSlice> {
        let key = if self.dtype.size() == 8 { 8 } else { 4 };
        recorder.scratch(self.rows.count as usize * len * (key + 4))
    }

    /// Binds the input, if it is read, then the pairs that are read and the output.
    fn bind(
        &self,
        launch: LaunchBuilder,
        reads: bool,
        from: Option<&BufferSlice>,
        to: &BufferSlice,
    ) -> LaunchBuilder {
        // Unused arguments are not read.
        let launch = if reads {
            launch.read(self.span.clone())
        } else {
            launch.value(&0_u64)
        };
        let launch = match from {
            Some(pairs) => launch.read(pairs),
            None => launch.value(&0_u64),
        };
        launch.write(to)
    }

    /// Sorts the blocks of rows of `len` elements and keeps `keep` of each. Returns nothing if a row is one block,
    /// which is the result.
    fn blocks(
        &self,
        recorder: &mut Recorder<'_>,
        output: &Output,
        from: Option<&BufferSlice>,
        len: usize,
        keep: usize,
    ) -> Result<Option<BufferSlice>> {
        let blocks = len.div_ceil(SORT_BLOCK_LEN);
        let last = blocks == 1;
        let next = (blocks - 1) * keep + keep.min(len - (blocks - 1) * SORT_BLOCK_LEN);
        let to = if last {
            None
        } else {
            Some(self.pairs(recorder, next)?)
        };
        let kernel = self.kernel("sort_block", from.is_none(), last);
        let launch = recorder.launch(&kernel)?;
        let reads = from.is_none() || (last && !self.request.indices);
        let threads = len.min(SORT_BLOCK_LEN).next_power_of_two().max(2) / 2;
        self.bind(launch, reads, from, to.as_ref().unwrap_or(&output.slice))
            .value(&SortArgs {
                rows: self.rows,
                len: len as u32,
                keep: if last {
                    self.request.count.min(len) as u32
                } else {
                    keep as u32
                },
                next: next as u32,
                result: self.request.count as u32,
                blocks: blocks as u32,
                width: 0,
            })
            .groups(recorder, self.rows.count as usize * blocks, threads);
        Ok(to)
    }

    /// Sorts blocks that keep the requested elements, until a row is one block.
    fn select(&self, recorder: &mut Recorder<'_>, output: &Output, len: usize) -> Result<()> {
        let keep = self.request.count;
        let mut len = len;
        let mut pairs = self.blocks(recorder, output, None, len, keep)?;
        while let Some(from) = pairs {
            let blocks = len.div_ceil(SORT_BLOCK_LEN);
            len = (blocks - 1) * keep + keep.min(len - (blocks - 1) * SORT_BLOCK_LEN);
            pairs = self.blocks(recorder, output, Some(&from), len, keep)?;
        }
        Ok(())
    }

    /// Merges sorted blocks.
    fn merge(
        &self,
        recorder: &mut Recorder<'_>,
        output: &Output,
        pairs: Option<BufferSlice>,
        len: usize,
    ) -> Result<()> {
        let Some(mut from) = pairs else {
            return Ok(());
        };
        let mut spare = if len > 2 * SORT_BLOCK_LEN {
            Some(self.pairs(recorder, len)?)
        } else {
            None
        };
        let mut width = SORT_BLOCK_LEN;
        while width < len {
            let last = 2 * width >= len;
            let to = if last { None } else { spare.take() };
            let launch = recorder.launch(&self.kernel("sort_merge", false, last))?;
            let reads = last && !self.request.indices;
            self.bind(
                launch,
                reads,
                Some(&from),
                to.as_ref().unwrap_or(&output.slice),
            )
            .value(&SortArgs {
                rows: self.rows,
                len: len as u32,
                keep: 0,
                next: len as u32,
                result: self.request.count as u32,
                blocks: 0,
                width: width as u32,
            })
            .threads(
                recorder,
                (len.div_ceil(ITEMS_PER_THREAD), self.rows.count as usize),
            );
            if let Some(to) = to {
                spare = Some(std::mem::replace(&mut from, to));
            }
            width *= 2;
        }
        Ok(())
    }
}
