//! Replays of traced functions on Metal: launches are prepared once and recorded by every call.
//!
//! Launches are built by the same code as those of single ops. Scratch memory and captured tensors are bound for good.
//! Arguments, outputs and fault records change from call to call: launches are built with stand-ins for them, which a
//! call replaces without validating the launches again. All calls share the scratch memory: the launches of a call are
//! recorded without those of another thread in between, and the device runs them in that order.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use bessemer_hal::{self as hal, BufferSlice};

use super::block::Block;
use super::fault::{self, Fault};
use super::input::{Input, Output};
use super::record::{PlannedFault, PlannedScratch, Recorder};
use super::{MatrixLibrary, Metal, captured_inputs, custom};
use crate::compile::{
    AllocationOwner, BoundArgument, Executable, Obstacle, PlannedOp, ValueSource,
};
use crate::custom::CustomOp;
use crate::ops::Op;
use crate::storage::Storage;
use crate::{Error, Result};

/// The op in errors of a replay.
const OP: &str = "compile";

/// An executable for a Metal device.
pub(crate) struct MetalReplay {
    metal: Arc<Metal>,
    executable: Executable,
    launches: Vec<PreparedLaunch>,
    /// Memory of values, then of single ops.
    scratch: Vec<Block>,
    faults: Vec<PlannedFault>,
    captured: Vec<Storage>,
    /// By allocation: where an error in its value may come from.
    fault_origins: Vec<Vec<FaultOrigin>>,
}

/// A launch, and the buffers that a call replaces.
struct PreparedLaunch {
    launch: hal::Launch,
    /// Work in bytes moved, or their equivalent.
    work: u64,
    replacements: Vec<Replacement>,
}

/// A bound range of memory that changes from call to call.
struct Replacement {
    /// Its position among the buffers of the launch.
    position: usize,
    memory: CallMemory,
    /// First byte, and number of bytes.
    offset: usize,
    length: usize,
}

/// Memory that a call provides.
#[derive(Clone, Copy)]
enum CallMemory {
    Argument(usize),
    /// An allocation that belongs to the caller.
    Allocation(usize),
    Fault(usize),
}

/// Where an error in a value may come from: a bad index that a kernel of the replay finds, or one that was found before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FaultOrigin {
    Argument(usize),
    Captured(usize),
    Fault(usize),
}

/// The launches of an executable while they are prepared.
struct Preparation<'a> {
    metal: &'a Arc<Metal>,
    /// Stand-ins for the arguments.
    arguments: Vec<Block>,
    allocations: Vec<Block>,
    /// What each stand-in stands for, by the id of the buffer.
    stand_ins: HashMap<u64, CallMemory>,
    scratch: PlannedScratch,
    captured: Vec<Storage>,
    launches: Vec<PreparedLaunch>,
    fault_origins: Vec<Vec<FaultOrigin>>,
}

impl MetalReplay {
    pub(crate) fn new(metal: Arc<Metal>, executable: Executable) -> Result<Result<Self, Obstacle>> {
        let is_matmul = |op: &PlannedOp| matches!(op.op, Op::Matmul(_) | Op::PackedMatmul(_));
        if metal.matrix_library() == MatrixLibrary::Mps && executable.ops.iter().any(is_matmul) {
            return Ok(Err(Obstacle(
                "the device's own library multiplies matrices".to_owned(),
            )));
        }
        let blocks = executable.scratch_bytes.iter();
        let blocks = blocks.map(|&bytes| Block::new(&metal, OP, bytes));
        let mut scratch: Vec<_> = blocks.collect::<Result<_>>()?;
        let mut preparation = Preparation::new(&metal, &executable, &scratch);
        for op in &executable.ops {
            if let Some(obstacle) = preparation.add(op)? {
                return Ok(Err(obstacle));
            }
        }
        let Preparation {
            launches,
            scratch: of_ops,
            captured,
            fault_origins,
            ..
        } = preparation;
        let (blocks, faults) = of_ops.into_parts();
        scratch.extend(blocks);
        Ok(Ok(Self {
            metal,
            executable,
            launches,
            scratch,
            faults,
            captured,
            fault_origins,
        }))
    }

    pub(crate) fn executable(&self) -> &Executable {
        &self.executable
    }

    pub(crate) fn launches(&self) -> usize {
        self.launches.len()
    }

    pub(crate) fn scratch_bytes(&self) -> usize {
        self.scratch.iter().map(Block::len).sum()
    }

    /// Records the launches: see [`Replay::run`](crate::dispatch::replay::Replay::run).
    pub(crate) fn run(&self, arguments: &mut [BoundArgument]) -> Result<Vec<Option<Storage>>> {
        let allocations = &self.executable.allocations;
        let mut held = Vec::with_capacity(allocations.len());
        for allocation in allocations {
            held.push(match allocation.owner {
                AllocationOwner::Output => Some(Storage::on(&self.metal, OP, allocation.bytes)?),
                AllocationOwner::Scratch(_) | AllocationOwner::Argument(_) => None,
            });
        }
        let faults = self.faults.iter().map(|planned| {
            let record = Block::copy_of(&self.metal, OP, &[0; fault::RECORD_BYTES])?;
            Ok(Fault::new(planned.op, planned.len, record))
        });
        let faults: Vec<_> = faults.collect::<Result<_>>()?;
        for (allocation, held) in allocations.iter().zip(&mut held) {
            if let AllocationOwner::Argument(i) = allocation.owner {
                *held = arguments[i].storage.take();
            }
        }
        match self.record(arguments, &held, &faults) {
            Ok(()) => {
                self.metal.stream.flush();
                Ok(held)
            }
            Err(error) => {
                for (allocation, held) in allocations.iter().zip(held) {
                    if let AllocationOwner::Argument(i) = allocation.owner {
                        arguments[i].storage = held;
                    }
                }
                Err(error)
            }
        }
    }

    /// The memory of storages on the device.
    fn blocks<'s>(
        &self,
        storages: impl IntoIterator<Item = &'s Option<Storage>>,
    ) -> Result<Vec<Option<&'s Block>>> {
        let block = |storage: &'s Storage| storage.block_on(&self.metal, OP);
        let storages = storages.into_iter();
        storages
            .map(|s| s.as_ref().map(block).transpose())
            .collect()
    }

    /// Binds the memory of a call to the launches and records them. After an error nothing is recorded.
    fn record(
        &self,
        arguments: &[BoundArgument],
        held: &[Option<Storage>],
        faults: &[Arc<Fault>],
    ) -> Result<()> {
        let argument_blocks = self.blocks(arguments.iter().map(|a| &a.storage))?;
        let held_blocks = self.blocks(held)?;
        let captured = self.captured.iter().map(|s| s.block_on(&self.metal, OP));
        let captured: Vec<_> = captured.collect::<Result<_>>()?;

        let slice = |r: &Replacement| -> Option<BufferSlice> {
            let (block, start) = match r.memory {
                CallMemory::Argument(i) => (argument_blocks[i]?, arguments[i].start),
                CallMemory::Allocation(i) => (held_blocks[i]?, 0),
                CallMemory::Fault(i) => return Some(faults[i].slice()),
            };
            let start = start + r.offset;
            Some(block.slice(start..start + r.length))
        };
        let mut launches = Vec::with_capacity(self.launches.len());
        for prepared in &self.launches {
            let launch = if prepared.replacements.is_empty() {
                Cow::Borrowed(&prepared.launch)
            } else {
                let replacements = prepared.replacements.iter();
                let replacements = replacements.filter_map(|r| Some((r.position, slice(r)?)));
                let bound = prepared.launch.with_buffers(replacements);
                Cow::Owned(bound.map_err(|e| Error::device(OP, e))?)
            };
            launches.push((launch, prepared.work));
        }

        let blocks = || {
            argument_blocks
                .iter()
                .chain(&held_blocks)
                .copied()
                .flatten()
        };
        let read = || blocks().chain(captured.iter().copied());
        let batches: Vec<_> = read().filter_map(|b| b.origin().batch.clone()).collect();
        let donated = |i: usize| {
            let owners = self.executable.allocations.iter();
            let owner = AllocationOwner::Argument(i);
            owners.zip(&held_blocks).find(|(a, _)| a.owner == owner)
        };
        let known = |origin: FaultOrigin| match origin {
            FaultOrigin::Argument(i) => match argument_blocks[i] {
                Some(block) => block.origin().faults.clone(),
                None => donated(i)
                    .and_then(|(_, block)| *block)
                    .map_or_else(Vec::new, |block| block.origin().faults.clone()),
            },
            FaultOrigin::Captured(i) => captured[i].origin().faults.clone(),
            FaultOrigin::Fault(i) => vec![Arc::clone(&faults[i])],
        };
        let faults_of = |allocation: usize| {
            let mut all: Vec<Arc<Fault>> = Vec::new();
            for fault in self.fault_origins[allocation]
                .iter()
                .flat_map(|&o| known(o))
            {
                if !all.iter().any(|f| Arc::ptr_eq(f, &fault)) {
                    all.push(fault);
                }
            }
            all
        };
        let faults_of: Vec<_> = (0..held.len()).map(faults_of).collect();

        let (batch, outcome) = self.metal.stream.replay(&launches, batches.iter());
        for block in read().chain(&self.scratch) {
            block.read_by(&batch);
        }
        for fault in faults.iter().chain(faults_of.iter().flatten()) {
            fault.used_by(&batch);
        }
        for (block, faults) in held_blocks.iter().zip(faults_of) {
            if let Some(block) = block {
                block.written_by(Arc::clone(&batch), faults);
            }
        }
        outcome.map_err(|e| Error::device(OP, e))
    }
}

impl<'a> Preparation<'a> {
    fn new(metal: &'a Arc<Metal>, executable: &Executable, scratch: &[Block]) -> Self {
        let mut stand_ins = HashMap::new();
        let mut stand_in = |bytes: usize, memory: CallMemory| {
            let buffer = metal.device.stand_in(bytes);
            stand_ins.insert(buffer.id(), memory);
            Block::within(metal, &(&buffer).into(), None)
        };
        let arguments = executable.argument_bytes.iter().enumerate();
        let arguments = arguments.map(|(i, &bytes)| stand_in(bytes, CallMemory::Argument(i)));
        let arguments = arguments.collect();
        let allocations = executable.allocations.iter().enumerate();
        let allocations = allocations.map(|(i, allocation)| match allocation.owner {
            AllocationOwner::Scratch(slot) => {
                let slice = scratch[slot].slice(0..allocation.bytes);
                Block::within(metal, &slice, None)
            }
            AllocationOwner::Output | AllocationOwner::Argument(_) => {
                stand_in(allocation.bytes, CallMemory::Allocation(i))
            }
        });
        let allocations = allocations.collect();
        let mut preparation = Self {
            metal,
            arguments,
            allocations,
            stand_ins,
            scratch: PlannedScratch::new(metal),
            captured: Vec::new(),
            launches: Vec::new(),
            fault_origins: vec![Vec::new(); executable.allocations.len()],
        };
        for (i, allocation) in executable.allocations.iter().enumerate() {
            if let AllocationOwner::Argument(argument) = allocation.owner {
                preparation.fault_origins[i].push(FaultOrigin::Argument(argument));
            }
        }
        preparation
    }

    /// Prepares the launches of an op.
    fn add(&mut self, op: &PlannedOp) -> Result<Option<Obstacle>> {
        if op.shape.count() == 0 {
            return Ok(None);
        }
        let name = op.op.name();
        let mut fault_origins = self.fault_origins[op.output].clone();
        if op.aliases_input.is_none() {
            fault_origins.clear();
        }
        let mut inputs = Vec::with_capacity(op.inputs.len() + 1);
        for (i, input) in op.inputs.iter().enumerate() {
            let (block, origins) = match &input.source {
                ValueSource::Argument(i) => {
                    (Some(&self.arguments[*i]), vec![FaultOrigin::Argument(*i)])
                }
                ValueSource::Allocation(i) => {
                    (Some(&self.allocations[*i]), self.fault_origins[*i].clone())
                }
                ValueSource::Captured(storage) => {
                    let known = self.captured.iter().position(|s| s.is(storage));
                    let at = known.unwrap_or(self.captured.len());
                    if known.is_none() {
                        self.captured.push(storage.clone());
                    }
                    let block = storage.block_on(self.metal, name)?;
                    (Some(block), vec![FaultOrigin::Captured(at)])
                }
                ValueSource::Immediate => (None, Vec::new()),
            };
            for origin in origins {
                if !fault_origins.contains(&origin) {
                    fault_origins.push(origin);
                }
            }
            let block = block.filter(|_| op.aliases_input != Some(i));
            inputs.push(Input::new(block, input.dtype, input.layout, input.constant));
        }
        inputs.extend(captured_inputs(self.metal, &op.op)?);
        let block = &self.allocations[op.output];
        let output = Output::new(block, op.dtype, op.shape, op.aliases_input);
        let known_faults = self.scratch.faults.len();
        let mut recorder = Recorder::planned(self.metal, name, &mut self.scratch);
        let recorded = if let Op::Custom(CustomOp::Metal(launch)) = &op.op {
            let has_value = op.aliases_input.is_some();
            custom::record(&mut recorder, launch, &inputs, &[block], &[has_value])
        } else {
            super::record(&op.op, &mut recorder, &inputs, &output)
        };
        match recorded {
            Ok(()) => {}
            Err(Error::Unsupported { what, .. }) => {
                return Ok(Some(Obstacle(format!("`{name}` has no kernel: {what}"))));
            }
            Err(error) => return Err(error),
        }
        if recorder.no_kernel || !recorder.products.is_empty() {
            let reason = "has no kernel for these sizes";
            return Ok(Some(Obstacle(format!("`{name}` {reason}"))));
        }
        let launches = recorder.into_launches()?;
        self.scratch.release();
        for at in known_faults..self.scratch.faults.len() {
            let id = self.scratch.faults[at].stand_in.id();
            self.stand_ins.insert(id, CallMemory::Fault(at));
            fault_origins.push(FaultOrigin::Fault(at));
        }
        self.fault_origins[op.output] = fault_origins;
        for launch in launches {
            let bands = launch.bands();
            let work = launch.work() / bands.len().max(1) as u64;
            for band in bands {
                let replacements = band.stand_ins().map(|(position, slice)| Replacement {
                    position,
                    memory: self.stand_ins[&slice.buffer().id()],
                    offset: slice.offset(),
                    length: slice.length(),
                });
                self.launches.push(PreparedLaunch {
                    replacements: replacements.collect(),
                    launch: band.clone(),
                    work,
                });
            }
        }
        Ok(None)
    }
}
