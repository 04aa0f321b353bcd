//! Recording the launches of one op.

use std::sync::Arc;

use bessemer_hal::{self as hal, Access, BufferSlice, Commands, Pipeline, PreparedProduct, Size};
use bytemuck::NoUninit;

use super::band;
use super::block::Block;
use super::fault::{self, Fault};
use super::input::{Input, Output, Span};
use super::kernel::Kernel;
use super::{Metal, copy};
use crate::{DType, Error, Result, Shape};

/// Collects the launches of one op, which are added to the device's stream together.
pub(crate) struct Recorder<'a> {
    pub(crate) metal: &'a Arc<Metal>,
    /// The op, for errors.
    pub(crate) op: &'static str,
    launches: Vec<Launch>,
    /// Why a launch is invalid.
    invalid: Option<hal::Error>,
    /// MPS products, after the launches.
    pub(super) products: Vec<PreparedProduct>,
    /// Memory that only these launches use.
    scratch: Vec<Block>,
    /// The memory of launches that are recorded again and again, instead of `scratch` and `faults`.
    planned: Option<&'a mut PlannedScratch>,
    faults: Vec<Arc<Fault>>,
    /// There is no kernel for this case: the CPU computes it.
    pub(super) no_kernel: bool,
}

/// Validated launches of one kernel, with their costs.
#[derive(Clone)]
pub(crate) struct Launch {
    /// The launch, or its bands.
    bands: Vec<hal::Launch>,
    traffic: [u64; 2],
    work: u64,
}

impl Launch {
    /// Bytes that it reads and writes.
    pub(crate) fn traffic(&self) -> [u64; 2] {
        self.traffic
    }

    /// Work in bytes moved, or their equivalent.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// The launch, or its bands.
    pub(super) fn bands(&self) -> &[hal::Launch] {
        &self.bands
    }

    /// Records it into a command list.
    pub(crate) fn record(&self, commands: &mut Commands) -> hal::Result<()> {
        self.bands.iter().try_for_each(|band| commands.record(band))
    }
}

/// Scratch memory of launches that are recorded again and again: one op after the other uses it.
pub(super) struct PlannedScratch {
    metal: Arc<Metal>,
    /// Whether the launches are recorded. If they are only counted, stand-ins will do.
    has_memory: bool,
    blocks: Vec<Block>,
    /// Blocks that the current op does not use, the one that was used last at the end.
    free: Vec<usize>,
    taken: Vec<usize>,
    pub(super) faults: Vec<PlannedFault>,
}

/// A fault record that every call provides.
pub(super) struct PlannedFault {
    pub(super) op: &'static str,
    /// The length of the axis.
    pub(super) len: usize,
    /// What launches are built with.
    pub(super) stand_in: hal::Buffer,
}

impl PlannedScratch {
    pub(super) fn new(metal: &Arc<Metal>) -> Self {
        Self {
            metal: Arc::clone(metal),
            has_memory: true,
            blocks: Vec::new(),
            free: Vec::new(),
            taken: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// For launches that are not recorded.
    pub(super) fn without_memory(metal: &Arc<Metal>) -> Self {
        Self {
            has_memory: false,
            ..Self::new(metal)
        }
    }

    fn take(&mut self, op: &'static str, bytes: usize) -> Result<BufferSlice> {
        if !self.has_memory {
            return Ok((&self.metal.device.stand_in(bytes)).into());
        }
        // Not much larger than needed.
        let fits = |&slot: &usize| (bytes..=2 * bytes).contains(&self.blocks[slot].len());
        let slot = match self.free.iter().rposition(fits) {
            Some(at) => self.free.remove(at),
            None => {
                self.blocks.push(Block::new(&self.metal, op, bytes)?);
                self.blocks.len() - 1
            }
        };
        self.taken.push(slot);
        Ok(self.blocks[slot].slice(0..bytes))
    }

    /// Frees the memory of the last op for the next one.
    pub(super) fn release(&mut self) {
        self.free.append(&mut self.taken);
    }

    fn fault(&mut self, op: &'static str, len: usize) -> BufferSlice {
        let stand_in = self.metal.device.stand_in(fault::RECORD_BYTES);
        let slice = BufferSlice::from(&stand_in);
        self.faults.push(PlannedFault { op, len, stand_in });
        slice
    }

    /// The memory and the fault records.
    pub(super) fn into_parts(self) -> (Vec<Block>, Vec<PlannedFault>) {
        (self.blocks, self.faults)
    }
}

/// Builder of a [`Launch`]: a kernel and its arguments, in the order of the calls.
#[must_use = "nothing is recorded until `threads` or `groups` is called"]
pub(crate) struct LaunchBuilder {
    launch: hal::LaunchBuilder,
    /// Index of the next argument.
    next: u32,
    /// Bytes of the bound buffers, and how many of these the kernel does not touch.
    bound: u64,
    untouched: u64,
    /// Bytes that the kernel reads and writes.
    traffic: [u64; 2],
    /// Cost of the launch in bytes, if that exceeds the bytes it moves.
    cost: u64,
    /// Maximum cost of a band, if it is launched in bands.
    band_cost: Option<u64>,
}

/// A grid and its threadgroups.
#[derive(Clone, Copy)]
struct Grid {
    size: Size,
    threadgroup: Size,
    /// Whether the size counts threadgroups.
    counts_threadgroups: bool,
}

impl LaunchBuilder {
    /// Binds a buffer of which the kernel reads and writes these numbers of bytes.
    fn bind(mut self, slice: BufferSlice, access: Access, [read, written]: [usize; 2]) -> Self {
        let length = slice.length() as u64;
        self.bound += length;
        let same_size_uint = [
            (access.reads(), read as u64),
            (access.writes(), written as u64),
        ];
        for (total, (used, bytes)) in self.traffic.iter_mut().zip(same_size_uint) {
            if used {
                *total += bytes;
                self.untouched += length - bytes;
            }
        }
        self.launch = self.launch.bind(self.next, slice, access);
        self.next += 1;
        self
    }

    fn bind_all(self, slice: BufferSlice, access: Access) -> Self {
        let bytes = [slice.length(); 2];
        self.bind(slice, access, bytes)
    }

    /// The next argument: a buffer that is read.
    pub(crate) fn read(self, span: impl Into<BufferSlice>) -> Self {
        self.bind_all(span.into(), Access::Read)
    }

    /// The next argument: a buffer that is written.
    pub(crate) fn write(self, slice: impl Into<BufferSlice>) -> Self {
        self.bind_all(slice.into(), Access::Write)
    }

    /// The next argument: a buffer that is read and written.
    pub(crate) fn update(self, slice: impl Into<BufferSlice>) -> Self {
        self.bind_all(slice.into(), Access::ReadWrite)
    }

    /// The next argument: a buffer of which the kernel reads this many bytes only.
    pub(crate) fn read_part(self, slice: impl Into<BufferSlice>, bytes: usize) -> Self {
        self.bind(slice.into(), Access::Read, [bytes, 0])
    }

    /// The next argument: a buffer of which the kernel writes this many bytes only.
    pub(crate) fn write_part(self, slice: impl Into<BufferSlice>, bytes: usize) -> Self {
        self.bind(slice.into(), Access::Write, [0, bytes])
    }

    /// The next argument: a buffer of which the kernel reads and writes this many bytes only.
    pub(crate) fn update_part(
        self,
        slice: impl Into<BufferSlice>,
        [read, written]: [usize; 2],
    ) -> Self {
        self.bind(slice.into(), Access::ReadWrite, [read, written])
    }

    /// The next argument: none, as the kernel's function constants disable it.
    pub(crate) fn skip(mut self) -> Self {
        self.next += 1;
        self
    }

    /// The next argument: a value.
    pub(crate) fn value<T: NoUninit>(self, value: &T) -> Self {
        self.values(std::slice::from_ref(value))
    }

    /// The next argument: values, up to 4 KB of them.
    pub(crate) fn values<T: NoUninit>(mut self, values: &[T]) -> Self {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        self.traffic[0] += bytes.len() as u64;
        self.launch = self.launch.set_bytes(self.next, bytes);
        self.next += 1;
        self
    }

    /// Sets the cost of the launch, as bytes that could be moved meanwhile, if that exceeds what it moves. Without it,
    /// all that is bound counts, even if only parts of it are touched.
    pub(crate) fn cost(mut self, bytes: u64) -> Self {
        self.cost = bytes;
        self
    }

    /// Sets the size of the kernel's `[[threadgroup(0)]]` argument in bytes, a multiple of 16.
    pub(crate) fn memory(mut self, bytes: usize) -> Self {
        if bytes > 0 {
            self.launch = self.launch.threadgroup_memory(0, bytes);
        }
        self
    }

    /// Launches a grid of threads, in threadgroups of the size that suits the kernel.
    pub(crate) fn threads(self, recorder: &mut Recorder<'_>, grid: impl Into<Size>) {
        let grid = grid.into();
        let pipeline = self.launch.pipeline();
        let group = if grid.height == 1 && grid.depth == 1 {
            pipeline.optimal_thread_group_size()
        } else {
            pipeline.optimal_thread_group_size_2d()
        };
        self.threads_grouped(recorder, grid, group);
    }

    /// Launches a grid of threads, in threadgroups of this size.
    pub(crate) fn threads_grouped(
        self,
        recorder: &mut Recorder<'_>,
        grid: impl Into<Size>,
        group: impl Into<Size>,
    ) {
        recorder.push(self.build(Grid {
            size: grid.into(),
            threadgroup: group.into(),
            counts_threadgroups: false,
        }));
    }

    /// Launches a grid of whole threadgroups of this size.
    pub(crate) fn groups(
        self,
        recorder: &mut Recorder<'_>,
        grid: impl Into<Size>,
        group: impl Into<Size>,
    ) {
        recorder.push(self.build(Grid {
            size: grid.into(),
            threadgroup: group.into(),
            counts_threadgroups: true,
        }));
    }

    /// Maximum threads of a threadgroup of this kernel.
    pub(crate) fn max_threads(&self) -> usize {
        self.launch.pipeline().max_total_threads_per_threadgroup()
    }

    /// Work in bytes moved, or their equivalent.
    fn work(&self) -> u64 {
        match self.cost {
            // How much of a binding is touched may not be known yet.
            0 => self.bound,
            cost => cost.max(self.bound.saturating_sub(self.untouched)),
        }
    }

    fn build(self, grid: Grid) -> hal::Result<Launch> {
        let (traffic, work) = (self.traffic, self.work());
        Ok(Launch {
            bands: self.bands(grid)?,
            traffic,
            work,
        })
    }

    /// The launch, or one for each band.
    fn bands(self, grid: Grid) -> hal::Result<Vec<hal::Launch>> {
        let group = if grid.counts_threadgroups {
            Size::new(1, 1, 1)
        } else {
            grid.threadgroup
        };
        let bands = self
            .band_cost
            .and_then(|limit| band::bands(grid.size, group, self.cost.div_ceil(limit.max(1))));
        let Some(bands) = bands else {
            // A grid that exceeds 32 bits has no bands: hal reports the error.
            return Ok(vec![grid.launch(self.launch.work(self.cost))?]);
        };
        let launch = self.launch.work(self.cost / bands.len().max(1) as u64);
        bands
            .iter()
            .map(|(band, size)| {
                let grid = Grid {
                    size: *size,
                    ..grid
                };
                grid.launch(launch.clone().bytes(band::BUFFER_INDEX, band))
            })
            .collect()
    }
}

impl Grid {
    fn launch(self, launch: hal::LaunchBuilder) -> hal::Result<hal::Launch> {
        if self.counts_threadgroups {
            launch.threadgroups(self.size, self.threadgroup)
        } else {
            launch.threads(self.size, self.threadgroup)
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
            invalid: None,
            products: Vec::new(),
            scratch: Vec::new(),
            planned: None,
            faults: Vec::new(),
            no_kernel: false,
        }
    }

    /// A recorder of launches that are recorded again and again, with the memory that they keep.
    pub(super) fn planned(
        metal: &'a Arc<Metal>,
        op: &'static str,
        scratch: &'a mut PlannedScratch,
    ) -> Self {
        Self {
            planned: Some(scratch),
            ..Self::new(metal, op)
        }
    }

    /// Begins a launch: arguments follow, then the grid.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a kernel that needs what the device lacks; an op that returns it is computed by
    /// the CPU.
    pub(crate) fn launch(&self, kernel: &Kernel) -> Result<LaunchBuilder> {
        let pipeline = self.metal.kernels.pipeline(self.op, kernel)?;
        Ok(self.launch_pipeline(&pipeline))
    }

    /// Begins a launch of a compiled kernel.
    pub(crate) fn launch_pipeline(&self, pipeline: &Pipeline) -> LaunchBuilder {
        LaunchBuilder {
            launch: pipeline.launch().label(self.op),
            next: 0,
            bound: 0,
            untouched: 0,
            traffic: [0; 2],
            cost: 0,
            band_cost: None,
        }
    }

    /// Begins a launch as [`Recorder::launch`] does, with its cost in bytes that could be moved meanwhile. A kernel
    /// that includes `band.h` is launched in bands if that takes too long.
    pub(crate) fn launch_in_bands(&self, kernel: Kernel, cost: u64) -> Result<LaunchBuilder> {
        let limit = self.metal.stream.launch_work();
        let banded = cost > limit;
        let launch = self.launch(&kernel.flag("BANDED", banded))?;
        Ok(LaunchBuilder {
            cost,
            band_cost: banded.then_some(limit),
            ..launch
        })
    }

    /// Scratch memory that one launch writes and the next reads; its contents are arbitrary.
    pub(crate) fn scratch(&mut self, bytes: usize) -> Result<BufferSlice> {
        if let Some(planned) = &mut self.planned {
            return planned.take(self.op, bytes);
        }
        let block = Block::new(self.metal, self.op, bytes)?;
        let slice = block.slice(0..bytes);
        self.scratch.push(block);
        Ok(slice)
    }

    /// Scratch memory in the form of an output.
    pub(crate) fn scratch_output(&mut self, dtype: DType, shape: Shape) -> Result<Output> {
        Ok(Output {
            slice: self.scratch(shape.count() * dtype.size())?,
            dtype,
            shape,
            aliases_input: None,
        })
    }

    /// The range of an input if it is contiguous, otherwise of a contiguous copy.
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

    /// A buffer in which kernels leave an index outside an axis of this length, by the function of `msl/fault.h`.
    /// Reading the result returns it as an error.
    pub(crate) fn fault(&mut self, len: usize) -> Result<BufferSlice> {
        if let Some(planned) = &mut self.planned {
            return Ok(planned.fault(self.op, len));
        }
        let record = Block::copy_of(self.metal, self.op, &[0; fault::RECORD_BYTES])?;
        let fault = Fault::new(self.op, len, record);
        let slice = fault.slice();
        self.faults.push(fault);
        Ok(slice)
    }

    /// Adds a launch. The first invalid one is an error when the op is finished.
    fn push(&mut self, launch: hal::Result<Launch>) {
        match launch {
            Ok(launch) => self.launches.push(launch),
            Err(error) => {
                self.invalid.get_or_insert(error);
            }
        }
    }

    /// The kernel of the first launch.
    pub(super) fn first_pipeline(&self) -> Option<Pipeline> {
        let launch = self.launches.first()?.bands.first()?;
        Some(launch.pipeline().clone())
    }

    /// The launches, for a caller that records them itself; without scratch memory and faults.
    ///
    /// # Errors
    /// [`Error::Device`] for an invalid launch.
    pub(crate) fn into_launches(self) -> Result<Vec<Launch>> {
        match self.invalid {
            Some(error) => Err(Error::device(self.op, error)),
            None => Ok(self.launches),
        }
    }

    /// Adds the launch of a custom kernel, which reads and writes these numbers of bytes.
    pub(super) fn push_custom(&mut self, launch: hal::Result<hal::Launch>, traffic: [u64; 2]) {
        self.push(launch.map(|launch| Launch {
            bands: vec![launch],
            traffic,
            work: traffic.iter().sum(),
        }));
    }

    /// Adds the launches to the stream; they write this block and read these inputs.
    pub(crate) fn finish(self, output: &Block, inputs: &[Input<'_>]) -> Result<()> {
        self.finish_all(&[output], inputs)
    }

    /// As [`Recorder::finish`], for launches that write several blocks.
    pub(super) fn finish_all(self, outputs: &[&Block], inputs: &[Input<'_>]) -> Result<()> {
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
        // The previous contents of one that takes the memory of an input.
        for output in outputs {
            let origin = output.origin();
            batches.extend(origin.batch.clone());
            faults.extend(origin.faults.iter().cloned());
        }
        if let Some(error) = self.invalid {
            return Err(Error::device(self.op, error));
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
        for output in outputs {
            output.written_by(Arc::clone(&batch), faults.clone());
        }
        outcome.map_err(|e| Error::device(self.op, e))
    }
}
