//! The reference executor: one lane and one instruction at a time, with every check at run time. It defines what a program
//! means; the other executors are compared with it.
//!
//! The lanes of a block run one after the other, each until it ends or waits. Blocks follow each other, except in programs with
//! instructions that run once per launch (tensor instructions, `pool_alloc`, `pool_free`): there all blocks are kept, and such
//! an instruction runs when every lane that has not ended has reached it, with equal operands.

mod step;

use self::step::{Context, Step};
use super::atlas::Resonance;
use super::error::{Fault, FaultKind, ProgramError, Result};
use super::instruction::Instruction;
use super::launch::{ExecutionParams, LaunchConfig};
use super::memory::Memory;
use super::operand::{Operand, Predicate, Register};
use super::value::Value;
use super::{CLASSES, Program, host};
use crate::DType;

/// What a launch leaves besides the memory it wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Sums of `res_accum` by class: those of each block, added in the order of blocks.
    pub resonance: Vec<f64>,
    /// Faults, in the order in which they happened; the first thousand.
    pub faults: Vec<Fault>,
}

impl Outcome {
    pub(crate) fn new() -> Self {
        Self {
            resonance: vec![0.0; usize::from(CLASSES)],
            faults: Vec::new(),
        }
    }

    /// Fails with the first fault.
    pub(crate) fn check(self) -> Result<Self> {
        match self.faults.first() {
            Some(fault) => Err(fault.clone().into()),
            None => Ok(self),
        }
    }
}

/// Maximum number of faults that an [`Outcome`] keeps.
pub(crate) const MAX_FAULTS: usize = 1000;

/// Maximum depth of calls.
pub(crate) const MAX_CALLS: usize = 256;

/// Runs a program one instruction at a time.
#[derive(Clone, Debug)]
pub struct Interpreter<'p> {
    program: &'p Program,
    /// Index of the instruction that each instruction's label stands for.
    targets: Vec<usize>,
    /// Where a lane keeps each register: programs use few of the 256.
    slots: [Option<u8>; 256],
    slot_count: usize,
    runs_once_per_launch: bool,
    step_limit: u64,
}

/// Number of instructions of a lane after which it is stopped.
pub(crate) const STEP_LIMIT: u64 = 1 << 28;

/// Maximum size of the registers of all lanes that are kept at a time, in bytes.
const MAX_LANE_BYTES: u64 = 1 << 30;

impl<'p> Interpreter<'p> {
    /// An interpreter of a program.
    ///
    /// # Errors
    /// Those of [`Program::validate`].
    pub fn new(program: &'p Program) -> Result<Self> {
        program.validate()?;
        let label = |i: &Instruction| {
            i.label()
                .and_then(|l| program.resolve_label(l))
                .unwrap_or(0)
        };
        let mut used = [false; 256];
        for (register, ..) in Register::SPECIAL {
            used[usize::from(register.0)] = true;
        }
        for instruction in &program.instructions {
            instruction.for_each_operand(|_, operand| {
                let mut mark = |register: Register| used[usize::from(register.0)] = true;
                match operand {
                    Operand::Read(r, _) | Operand::Write(r, _) | Operand::Update(r, _) => mark(r),
                    Operand::Span(span, _) => span.registers().for_each(mark),
                    Operand::Address(address) => address.registers().for_each(mark),
                    _ => {}
                }
            });
        }
        let mut slots = [None; 256];
        let mut slot_count = 0;
        for (slot, _) in slots.iter_mut().zip(used).filter(|(_, used)| *used) {
            *slot = Some(slot_count as u8);
            slot_count += 1;
        }
        Ok(Self {
            program,
            targets: program.instructions.iter().map(label).collect(),
            slots,
            slot_count,
            runs_once_per_launch: program.instructions.iter().any(host::runs_once),
            step_limit: STEP_LIMIT,
        })
    }

    /// Stops lanes after `limit` instructions; 2^28 unless set.
    #[must_use]
    pub const fn with_step_limit(mut self, limit: u64) -> Self {
        self.step_limit = limit;
        self
    }

    /// Checks whether a launch can run.
    ///
    /// # Errors
    /// [`ProgramError::InvalidLaunch`].
    pub(crate) fn check(&self, config: &LaunchConfig) -> Result<()> {
        config.validate()?;
        let lanes = config.blocks() * config.block_lanes();
        let bytes = lanes.saturating_mul((self.slot_count * size_of::<Option<Value>>()) as u64);
        if self.runs_once_per_launch && bytes > MAX_LANE_BYTES {
            return Err(ProgramError::InvalidLaunch(format!(
                "{lanes} lanes are too many for a program with instructions that run once per launch"
            )));
        }
        Ok(())
    }

    /// Runs the program, and fails with the first fault. What lanes wrote before, and what other lanes wrote, stays.
    ///
    /// # Errors
    /// [`ProgramError::Fault`], [`ProgramError::InvalidLaunch`].
    pub fn run(&self, params: &ExecutionParams, memory: &mut dyn Memory) -> Result<Outcome> {
        self.run_to_end(params, memory)?.check()
    }

    /// Runs the program and reports faults in the outcome: a lane that faults ends, and the others continue.
    ///
    /// # Errors
    /// [`ProgramError::InvalidLaunch`].
    pub fn run_to_end(&self, params: &ExecutionParams, memory: &mut dyn Memory) -> Result<Outcome> {
        let config = &params.launch_config;
        self.check(config)?;
        let mut launch = Launch {
            interpreter: self,
            memory,
            outcome: Outcome::new(),
        };
        if self.runs_once_per_launch {
            let mut blocks: Vec<_> = (0..config.blocks())
                .map(|number| BlockState::new(self, params, number))
                .collect();
            loop {
                for block in &mut blocks {
                    launch.run_block(block);
                }
                if !launch.run_once(&mut blocks) {
                    break;
                }
            }
            for block in &blocks {
                block.resonance.add_to(&mut launch.outcome.resonance);
            }
        } else {
            for number in 0..config.blocks() {
                let mut block = BlockState::new(self, params, number);
                launch.run_block(&mut block);
                block.resonance.add_to(&mut launch.outcome.resonance);
            }
        }
        Ok(launch.outcome)
    }
}

/// What a lane is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Running,
    /// Waits at a barrier with this id.
    AtBarrier(u8),
    /// Waits for the launch, at an instruction that runs once.
    AtLaunch,
    Ended,
}

struct Lane {
    /// Number in the grid.
    number: u64,
    registers: Box<[Option<Value>]>,
    predicates: [Option<bool>; Predicate::COUNT],
    calls: Vec<usize>,
    next: usize,
    phase: u32,
    steps: u64,
    status: Status,
}

struct BlockState {
    number: u64,
    lanes: Vec<Lane>,
    shared: Vec<u8>,
    resonance: Resonance,
}

impl BlockState {
    fn new(interpreter: &Interpreter<'_>, params: &ExecutionParams, number: u64) -> Self {
        let config = &params.launch_config;
        let block_x = (number % u64::from(config.grid.x)) as u32;
        let lane = |index: u64| {
            let mut lane = Lane {
                number: number * config.block_lanes() + index,
                registers: vec![None; interpreter.slot_count].into(),
                predicates: [None; Predicate::COUNT],
                calls: Vec::new(),
                next: 0,
                phase: 0,
                steps: 0,
                status: Status::Running,
            };
            let mut set = |register: Register, value| {
                if let Some(slot) = interpreter.slots[usize::from(register.0)] {
                    lane.registers[usize::from(slot)] = Some(value);
                }
            };
            for (&register, &value) in &params.initial_registers {
                set(register, Value::u64(value));
            }
            let lane_x = (index % u64::from(config.block.x)) as u32;
            set(Register::LANE_IDX_X, Value::u32(lane_x));
            set(Register::BLOCK_IDX_X, Value::u32(block_x));
            set(Register::BLOCK_DIM_X, Value::u32(config.block.x));
            set(
                Register::GLOBAL_LANE_ID,
                Value::u64(number * config.block_lanes() + index),
            );
            lane
        };
        Self {
            number,
            lanes: (0..config.block_lanes()).map(lane).collect(),
            shared: vec![0; config.shared_memory.size_bytes],
            resonance: Resonance::default(),
        }
    }
}

/// A launch that is running.
struct Launch<'l> {
    interpreter: &'l Interpreter<'l>,
    memory: &'l mut dyn Memory,
    outcome: Outcome,
}

impl Launch<'_> {
    fn fault(&mut self, kind: FaultKind, index: usize, lane: u64) {
        if self.outcome.faults.len() < MAX_FAULTS {
            self.outcome.faults.push(Fault { kind, index, lane });
        }
    }

    /// Runs the lanes of a block until each has ended or waits for the launch.
    fn run_block(&mut self, block: &mut BlockState) {
        loop {
            for index in 0..block.lanes.len() {
                self.run_lane(block, index);
            }
            let statuses = || {
                block
                    .lanes
                    .iter()
                    .map(|l| l.status)
                    .filter(|s| *s != Status::Ended)
            };
            let Some(Status::AtBarrier(id)) =
                statuses().find(|s| matches!(s, Status::AtBarrier(_)))
            else {
                return;
            };
            if statuses().all(|s| s == Status::AtBarrier(id)) {
                for lane in block.lanes.iter_mut().filter(|l| l.status != Status::Ended) {
                    lane.status = Status::Running;
                }
            } else {
                let kind = FaultKind::DivergentBarrier {
                    block: block.number,
                };
                for lane in block.lanes.iter_mut().filter(|l| l.status != Status::Ended) {
                    lane.status = Status::Ended;
                    self.fault(kind.clone(), lane.next.saturating_sub(1), lane.number);
                }
            }
        }
    }

    fn run_lane(&mut self, block: &mut BlockState, index: usize) {
        let program = self.interpreter.program;
        let class = (block.number % u64::from(CLASSES)) as u8;
        let lane = &mut block.lanes[index];
        while lane.status == Status::Running {
            let at = lane.next;
            let Some(instruction) = program.instructions.get(at) else {
                lane.status = Status::Ended;
                return;
            };
            let mut context = Context {
                launch: self,
                lane,
                shared: &mut block.shared,
                resonance: &mut block.resonance,
                class,
            };
            match context.step(at, instruction) {
                Ok(Step::Next) => lane.next = at + 1,
                Ok(Step::Jump(target)) => lane.next = target,
                Ok(Step::Wait(status)) => {
                    lane.next = at + 1;
                    lane.status = status;
                }
                Ok(Step::End) => lane.status = Status::Ended,
                Err(kind) => {
                    lane.status = Status::Ended;
                    let number = lane.number;
                    self.fault(kind, at, number);
                }
            }
        }
    }

    /// Runs the instruction that all lanes wait at. Returns `false` if none waits.
    fn run_once(&mut self, blocks: &mut [BlockState]) -> bool {
        let mut lanes: Vec<_> = blocks
            .iter_mut()
            .flat_map(|b| &mut b.lanes)
            .filter(|l| l.status == Status::AtLaunch)
            .collect();
        let Some(first) = lanes.first() else {
            return false;
        };
        let (index, number) = (first.next - 1, first.number);
        let instruction = &self.interpreter.program.instructions[index];
        let operands = |lane: &Lane| self.interpreter.handles(lane, instruction);
        let outcome = operands(first).and_then(|handles| {
            for lane in &lanes {
                if lane.next - 1 != index || operands(lane)? != handles {
                    return Err(FaultKind::DivergentLaunch);
                }
            }
            host::execute(self.memory, instruction, &handles)
        });
        match outcome {
            Ok(result) => {
                for lane in &mut lanes {
                    if let (Instruction::PoolAlloc { dst, .. }, Some(handle)) =
                        (instruction, result)
                    {
                        self.interpreter.write(lane, *dst, Value::u64(handle));
                    }
                    lane.status = Status::Running;
                }
            }
            Err(kind) => {
                for lane in &mut lanes {
                    lane.status = Status::Ended;
                }
                self.fault(kind, index, number);
            }
        }
        true
    }
}

impl Interpreter<'_> {
    fn slot(&self, register: Register) -> usize {
        let slot = self.slots[usize::from(register.0)];
        usize::from(slot.expect("every register that an instruction names has a slot"))
    }

    fn read(&self, lane: &Lane, register: Register, expected: DType) -> Result<Value, FaultKind> {
        let value = lane.registers[self.slot(register)];
        let value = value.ok_or(FaultKind::UninitializedRegister(register))?;
        if value.dtype() == expected {
            Ok(value)
        } else {
            Err(FaultKind::TypeMismatch {
                register,
                expected,
                actual: value.dtype(),
            })
        }
    }

    fn write(&self, lane: &mut Lane, register: Register, value: Value) {
        lane.registers[self.slot(register)] = Some(value);
    }

    /// Handles that an instruction reads when it runs once: inputs, then the output.
    fn handles(&self, lane: &Lane, instruction: &Instruction) -> Result<Vec<u64>, FaultKind> {
        let handle = |register| Ok(self.read(lane, register, DType::U64)?.bits());
        host::handle_registers(instruction)
            .into_iter()
            .map(handle)
            .collect()
    }
}

#[cfg(test)]
mod tests;
