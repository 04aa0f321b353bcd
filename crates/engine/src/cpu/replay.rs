//! Replays of traced functions on the CPU: the kernels are called one after the other, on memory that was planned.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::fused::{self, LoweredProgram};
use crate::compile::{
    AllocationOwner, BoundArgument, Executable, PlannedInput, PlannedOp, ValueSource,
};
use crate::dispatch::{Input, Output};
use crate::ops::Op;
use crate::storage::Storage;
use crate::{Result, cpu};

/// The op in errors of a replay.
const OP: &str = "compile";

/// An executable for the CPU.
pub(crate) struct CpuReplay {
    executable: Executable,
    /// The lowered program of each fused op.
    programs: Vec<OnceLock<LoweredProgram>>,
    /// Scratch memory that no call uses now.
    scratch: Mutex<Vec<ScratchMemory>>,
}

/// The scratch memory of a call; an op takes its output out while it writes it.
type ScratchMemory = Vec<Option<Storage>>;

/// The memory of a call.
struct CallMemory<'a> {
    executable: &'a Executable,
    arguments: &'a mut [BoundArgument],
    /// By allocation: the memory that belongs to the caller.
    held: Vec<Option<Storage>>,
    scratch: ScratchMemory,
}

impl CpuReplay {
    pub(crate) fn new(executable: Executable) -> Result<Self> {
        for input in executable.ops.iter().flat_map(|op| &op.inputs) {
            if let ValueSource::Captured(storage) = &input.source {
                storage.ready(OP)?;
            }
        }
        let programs = executable.ops.iter().map(|_| OnceLock::new()).collect();
        Ok(Self {
            executable,
            programs,
            scratch: Mutex::default(),
        })
    }

    pub(crate) fn executable(&self) -> &Executable {
        &self.executable
    }

    fn idle_scratch(&self) -> MutexGuard<'_, Vec<ScratchMemory>> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the ops: see [`Replay::run`](crate::dispatch::replay::Replay::run).
    pub(crate) fn run(&self, arguments: &mut [BoundArgument]) -> Result<Vec<Option<Storage>>> {
        // Without ops, nothing is read here.
        let read = arguments.iter().filter(|_| !self.executable.ops.is_empty());
        for argument in read {
            if let Some(storage) = &argument.storage {
                storage.ready(OP)?;
            }
        }
        // Calls at the same time have their own scratch memory; there is as much as there were such calls.
        let idle = self.idle_scratch().pop();
        let scratch = match idle {
            Some(scratch) => scratch,
            None => {
                let new = |&bytes: &usize| Storage::new(OP, bytes).map(Some);
                let sizes = self.executable.scratch_bytes.iter();
                sizes.map(new).collect::<Result<_>>()?
            }
        };
        let mut memory = CallMemory {
            executable: &self.executable,
            arguments,
            held: Vec::with_capacity(self.executable.allocations.len()),
            scratch,
        };
        let outcome = self.run_ops(&mut memory);
        let CallMemory { held, scratch, .. } = memory;
        self.idle_scratch().push(scratch);
        outcome.map(|()| held)
    }

    fn run_ops(&self, memory: &mut CallMemory<'_>) -> Result<()> {
        memory.allocate()?;
        for (at, (op, program)) in self.executable.ops.iter().zip(&self.programs).enumerate() {
            if let Err(error) = memory.run(op, program) {
                memory.give_back(at);
                return Err(error);
            }
        }
        Ok(())
    }
}

impl CallMemory<'_> {
    /// Allocates the outputs, then takes the donated arguments.
    fn allocate(&mut self) -> Result<()> {
        for allocation in &self.executable.allocations {
            self.held.push(match allocation.owner {
                AllocationOwner::Output => Some(Storage::new(OP, allocation.bytes)?),
                AllocationOwner::Scratch(_) | AllocationOwner::Argument(_) => None,
            });
        }
        for (allocation, held) in self.executable.allocations.iter().zip(&mut self.held) {
            if let AllocationOwner::Argument(i) = allocation.owner {
                *held = self.arguments[i].storage.take();
            }
        }
        Ok(())
    }

    /// Gives the donated arguments back that no op before this one has overwritten.
    fn give_back(&mut self, failed: usize) {
        for (allocation, held) in self.executable.allocations.iter().zip(&mut self.held) {
            let is_intact = allocation.first_overwrite.is_none_or(|at| at >= failed);
            if let AllocationOwner::Argument(i) = allocation.owner
                && is_intact
            {
                self.arguments[i].storage = held.take();
            }
        }
    }

    /// The memory of an allocation.
    fn slot(&mut self, allocation: usize) -> &mut Option<Storage> {
        match self.executable.allocations[allocation].owner {
            AllocationOwner::Scratch(slot) => &mut self.scratch[slot],
            AllocationOwner::Output | AllocationOwner::Argument(_) => &mut self.held[allocation],
        }
    }

    fn run(&mut self, op: &PlannedOp, program: &OnceLock<LoweredProgram>) -> Result<()> {
        let count = op.shape.count();
        if count == 0 {
            return Ok(());
        }
        let mut storage = self.slot(op.output).take();
        let bytes = storage.as_mut().and_then(Storage::bytes_mut);
        let output = Output {
            bytes: &mut bytes.expect("planned, and not shared")[..count * op.dtype.size()],
            dtype: op.dtype,
            shape: op.shape,
            aliases_input: op.aliases_input,
        };
        // As for single ops: most have at most three inputs.
        let outcome = match &op.inputs[..] {
            [] => call(&op.op, program, &[], output),
            [a] => call(&op.op, program, &[self.input(a)], output),
            [a, b] => call(&op.op, program, &[self.input(a), self.input(b)], output),
            all => {
                let inputs: Vec<_> = all.iter().map(|input| self.input(input)).collect();
                call(&op.op, program, &inputs, output)
            }
        };
        *self.slot(op.output) = storage;
        outcome
    }

    fn input<'i>(&'i self, input: &'i PlannedInput) -> Input<'i> {
        let bytes = match &input.source {
            ValueSource::Argument(i) => {
                let BoundArgument { storage, start } = &self.arguments[*i];
                let bytes = storage.as_ref().map_or(&[][..], Storage::bytes);
                bytes.get(*start..).unwrap_or_default()
            }
            ValueSource::Allocation(i) => {
                let allocation = &self.executable.allocations[*i];
                let storage = match allocation.owner {
                    AllocationOwner::Scratch(slot) => &self.scratch[slot],
                    AllocationOwner::Output | AllocationOwner::Argument(_) => &self.held[*i],
                };
                // None while it is the output.
                let bytes = storage.as_ref().map(Storage::bytes);
                bytes.map_or(&[][..], |bytes| &bytes[..allocation.bytes])
            }
            ValueSource::Captured(storage) => storage.bytes(),
            ValueSource::Immediate => &[],
        };
        Input {
            bytes,
            dtype: input.dtype,
            layout: input.layout,
            constant: input.constant,
        }
    }
}

/// Calls the kernel of an op.
fn call(
    op: &Op,
    program: &OnceLock<LoweredProgram>,
    inputs: &[Input<'_>],
    output: Output<'_>,
) -> Result<()> {
    if let Op::Fused(fused) = op {
        fused::run_lowered(fused, program, inputs, output);
        return Ok(());
    }
    cpu::run(op, inputs, output)
}
