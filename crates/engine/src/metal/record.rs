//! Recording the launches of one op.

use std::sync::Arc;

use bessemer_hal::{self as hal, Access, BufferSlice, Commands, Pipeline, PreparedProduct, Size};
use bytemuck::NoUninit;

use super::band::{self, Band};
use super::block::Block;
use super::fault::{self, Fault};
use super::input::{Input, Output, Span};
use super::kernel::Kernel;
use super::{Metal, copy};
use crate::{DType, Error, Result, Shape};

/// Collects the launches of one op. They join the device's stream together.
pub(crate) struct Recorder<'a> {
    pub(crate) metal: &'a Arc<Metal>,
    /// The op, for errors.
    pub(crate) op: &'static str,
    launches: Vec<Launch>,
    /// Products by the device's own library, after the launches.
    pub(super) products: Vec<PreparedProduct>,
    /// Memory that only these launches use.
    scratch: Vec<Block>,
    faults: Vec<Arc<Fault>>,
    /// There is no kernel for this case: the CPU computes it.
    pub(super) missing: bool,
}

/// A kernel with its arguments and grid.
#[derive(Clone)]
#[must_use = "nothing is recorded until `threads` or `groups` is called"]
pub(crate) struct Launch {
    /// What it is called in GPU tools.
    op: &'static str,
    pipeline: Pipeline,
    buffers: Vec<(BufferSlice, Access, u32)>,
    /// Bytes of bindings that the kernel does not touch: read, and written.
    spared: [u64; 2],
    bytes: Vec<(Box<[u8]>, u32)>,
    next: u32,
    grid: Size,
    group: Size,
    /// Whether the grid counts threadgroups.
    whole: bool,
    /// Bytes of the threadgroup memory that the kernel takes as an argument.
    memory: usize,
    /// Bytes that the launch is worth, where that is more than it moves.
    cost: u64,
    /// Bytes that a band of it may be worth, where it is launched in bands.
    band_cost: Option<u64>,
}

impl Launch {
    /// Arguments are bound in the order of the calls.
    fn bind(mut self, slice: BufferSlice, access: Access) -> Self {
        self.buffers.push((slice, access, self.next));
        self.next += 1;
        self
    }

    /// The next argument: a buffer that is read.
    pub(crate) fn read(self, span: impl Into<BufferSlice>) -> Self {
        self.bind(span.into(), Access::Read)
    }

    /// The next argument: a buffer that is written.
    pub(crate) fn write(self, slice: impl Into<BufferSlice>) -> Self {
        self.bind(slice.into(), Access::Write)
    }

    /// The next argument: a buffer that is read and written.
    pub(crate) fn update(self, slice: impl Into<BufferSlice>) -> Self {
        self.bind(slice.into(), Access::ReadWrite)
    }

    /// The next argument: a buffer of which the kernel reads this many bytes only.
    pub(crate) fn read_part(mut self, slice: impl Into<BufferSlice>, bytes: usize) -> Self {
        let slice = slice.into();
        self.spared[0] += (slice.length() - bytes) as u64;
        self.read(slice)
    }

    /// The next argument: a buffer of which the kernel writes this many bytes only.
    pub(crate) fn write_part(mut self, slice: impl Into<BufferSlice>, bytes: usize) -> Self {
        let slice = slice.into();
        self.spared[1] += (slice.length() - bytes) as u64;
        self.write(slice)
    }

    /// The next argument: a buffer of which the kernel reads and writes this many bytes only.
    pub(crate) fn update_part(
        mut self,
        slice: impl Into<BufferSlice>,
        [read, written]: [usize; 2],
    ) -> Self {
        let slice = slice.into();
        self.spared[0] += (slice.length() - read) as u64;
        self.spared[1] += (slice.length() - written) as u64;
        self.update(slice)
    }

    /// The next argument: none, as the kernel's function constants say.
    pub(crate) fn skip(mut self) -> Self {
        self.next += 1;
        self
    }

    /// The next argument: a value.
    pub(crate) fn value<T: NoUninit>(mut self, value: &T) -> Self {
        self.bytes
            .push((bytemuck::bytes_of(value).into(), self.next));
        self.next += 1;
        self
    }

    /// The next argument: values, up to 4 KB of them.
    pub(crate) fn values<T: NoUninit>(mut self, values: &[T]) -> Self {
        self.bytes
            .push((bytemuck::cast_slice(values).into(), self.next));
        self.next += 1;
        self
    }

    /// Says what the launch costs, as bytes that could be moved meanwhile, where that is more than it moves. Without
    /// it, all that is bound counts, even where only parts of it are touched.
    pub(crate) fn cost(mut self, bytes: u64) -> Self {
        self.cost = bytes;
        self
    }

    /// Gives the kernel its `[[threadgroup(0)]]` argument: so many bytes, a multiple of 16.
    pub(crate) fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self
    }

    /// Launches as many threads, in groups of the size that suits the kernel.
    pub(crate) fn threads(self, recorder: &mut Recorder<'_>, grid: impl Into<Size>) {
        let grid = grid.into();
        let group = if grid.height == 1 && grid.depth == 1 {
            self.pipeline.optimal_thread_group_size()
        } else {
            self.pipeline.optimal_thread_group_size_2d()
        };
        self.threads_of(recorder, grid, group);
    }

    /// Launches as many threads, in groups of this size.
    pub(crate) fn threads_of(
        mut self,
        recorder: &mut Recorder<'_>,
        grid: impl Into<Size>,
        group: impl Into<Size>,
    ) {
        (self.grid, self.group) = (grid.into(), group.into());
        recorder.launches.push(self);
    }

    /// Launches as many whole threadgroups of this size.
    pub(crate) fn groups(
        mut self,
        recorder: &mut Recorder<'_>,
        grid: impl Into<Size>,
        group: impl Into<Size>,
    ) {
        self.whole = true;
        self.threads_of(recorder, grid, group);
    }

    /// Most threads that a group of this kernel may have.
    pub(crate) fn max_threads(&self) -> usize {
        self.pipeline.max_total_threads_per_threadgroup()
    }

    /// Bytes that it reads and writes.
    pub(crate) fn traffic(&self) -> [u64; 2] {
        let bound = |of: fn(Access) -> bool| {
            let used = self
                .buffers
                .iter()
                .filter(move |(_, access, _)| of(*access));
            used.map(|(slice, ..)| slice.length() as u64).sum::<u64>()
        };
        let inline: usize = self.bytes.iter().map(|(bytes, _)| bytes.len()).sum();
        [
            bound(Access::reads) + inline as u64 - self.spared[0],
            bound(Access::writes) - self.spared[1],
        ]
    }

    /// Bytes that it moves, or is worth.
    pub(crate) fn work(&self) -> u64 {
        let bytes: usize = self.buffers.iter().map(|(slice, ..)| slice.length()).sum();
        let spared: u64 = self.spared.iter().sum();
        match self.cost {
            // How much of a binding is touched may not be known yet.
            0 => bytes as u64,
            cost => cost.max((bytes as u64).saturating_sub(spared)),
        }
    }

    /// Adds it to commands, band by band where it has several.
    pub(crate) fn record(&self, commands: &mut Commands) -> hal::Result<()> {
        let Some(limit) = self.band_cost else {
            return self.record_grid(commands, self.grid, None, 1);
        };
        let group = if self.whole {
            Size::new(1, 1, 1)
        } else {
            self.group
        };
        let bands = band::bands(self.grid, group, self.cost.div_ceil(limit.max(1)));
        let Some(bands) = bands else {
            // The front says why not.
            return self.record_grid(commands, self.grid, None, 1);
        };
        let count = bands.len() as u64;
        bands
            .iter()
            .try_for_each(|(band, grid)| self.record_grid(commands, *grid, Some(band), count))
    }

    /// Adds a grid of the launch to commands, one of `count` of the same size.
    fn record_grid(
        &self,
        commands: &mut Commands,
        grid: Size,
        band: Option<&Band>,
        count: u64,
    ) -> hal::Result<()> {
        let dispatch = commands.dispatch(&self.pipeline).label(self.op);
        let mut dispatch = dispatch.work(self.cost / count);
        for (slice, access, index) in &self.buffers {
            dispatch = dispatch.bind(*index, slice, *access);
        }
        for (bytes, index) in &self.bytes {
            dispatch = dispatch.set_bytes(*index, bytes);
        }
        if let Some(band) = band {
            dispatch = dispatch.bytes(band::BUFFER, band);
        }
        if self.memory > 0 {
            dispatch = dispatch.threadgroup_memory(0, self.memory);
        }
        match self.whole {
            true => dispatch.threadgroups(grid, self.group),
            false => dispatch.threads(grid, self.group),
        }
    }
}

impl From<Span> for BufferSlice {
    fn from(span: Span) -> Self {
        span.slice
    }
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(metal: &'a Arc<Metal>, op: &'static str) -> Self {
        Self {
            metal,
            op,
            launches: Vec::new(),
            products: Vec::new(),
            scratch: Vec::new(),
            faults: Vec::new(),
            missing: false,
        }
    }

    /// Begins a launch: arguments follow, then the grid.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a kernel that needs what the device lacks; an op that returns it is computed by
    /// the CPU.
    pub(crate) fn launch(&self, kernel: &Kernel) -> Result<Launch> {
        Ok(Launch {
            op: self.op,
            pipeline: self.metal.kernels.pipeline(self.op, kernel)?,
            buffers: Vec::new(),
            spared: [0; 2],
            bytes: Vec::new(),
            next: 0,
            grid: Size::x(0),
            group: Size::x(1),
            whole: false,
            memory: 0,
            cost: 0,
            band_cost: None,
        })
    }

    /// Begins a launch as [`Recorder::launch`] does, which costs as many bytes as could be moved meanwhile. A kernel that
    /// includes `band.h` is launched in bands where that takes too long.
    pub(crate) fn launch_in_bands(&self, kernel: Kernel, cost: u64) -> Result<Launch> {
        let limit = self.metal.stream.launch_work();
        let banded = cost > limit;
        let launch = self.launch(&kernel.flag("BANDED", banded))?;
        Ok(Launch {
            cost,
            band_cost: banded.then_some(limit),
            ..launch
        })
    }

    /// Memory for what one launch leaves to the next; its contents are arbitrary.
    pub(crate) fn scratch(&mut self, bytes: usize) -> Result<BufferSlice> {
        let block = Block::new(self.metal, self.op, bytes)?;
        let slice = block.slice(0..bytes);
        self.scratch.push(block);
        Ok(slice)
    }

    /// Scratch memory that is written like a result.
    pub(crate) fn scratch_output(&mut self, dtype: DType, shape: Shape) -> Result<Output> {
        Ok(Output {
            slice: self.scratch(shape.count() * dtype.size())?,
            dtype,
            shape,
            holds: None,
        })
    }

    /// An input as it is where its elements lie in row-major order, otherwise a copy of it that does; and
    /// the range that holds it.
    pub(crate) fn dense(&mut self, input: &Input<'_>, output: &Output) -> Result<Span> {
        if input.is_dense() {
            return Ok(input.span(output));
        }
        let copy = self.scratch_output(input.dtype, *input.layout.shape())?;
        copy::record_copy(self, input, &copy)?;
        Ok(Span {
            slice: copy.slice,
            offset: 0,
        })
    }

    /// A place where kernels leave an index that lies outside an axis of this length; `msl/fault.h` has the
    /// function that does. Whoever reads the result gets it as an error.
    pub(crate) fn fault(&mut self, len: usize) -> Result<BufferSlice> {
        let record = Block::copy_of(self.metal, self.op, &[0; fault::BYTES])?;
        let fault = Fault::new(self.op, len, record);
        let slice = fault.slice();
        self.faults.push(fault);
        Ok(slice)
    }

    /// The kernel of the first launch.
    pub(super) fn first_pipeline(&self) -> Option<Pipeline> {
        self.launches.first().map(|launch| launch.pipeline.clone())
    }

    /// The launches, for whoever records them himself; scratch memory and faults are none of them.
    pub(crate) fn into_launches(self) -> Vec<Launch> {
        self.launches
    }

    /// Hands the launches to the stream; they write this block and read these.
    pub(crate) fn finish(self, output: &Block, inputs: &[Input<'_>]) -> Result<()> {
        let mut faults = self.faults;
        let mut batches = Vec::new();
        for block in inputs.iter().filter_map(|i| i.block) {
            let origin = block.origin();
            batches.extend(origin.batch.clone());
            for fault in &origin.faults {
                if !faults.iter().any(|f| Arc::ptr_eq(f, fault)) {
                    faults.push(Arc::clone(fault));
                }
            }
        }
        // What it held before, where it takes the memory of an input.
        {
            let origin = output.origin();
            batches.extend(origin.batch.clone());
            faults.extend(origin.faults.iter().cloned());
        }
        let stream = &self.metal.stream;
        let (batch, outcome) = stream.add(self.launches, &self.products, batches.iter());
        for block in inputs.iter().filter_map(|i| i.block) {
            block.read_by(&batch);
        }
        for block in &self.scratch {
            block.read_by(&batch);
        }
        for fault in &faults {
            fault.used_by(&batch);
        }
        output.written_by(batch, faults);
        outcome.map_err(|e| Error::device(self.op, e))
    }
}
