//! The executor of programs on the CPU.
//!
//! Groups of lanes run together, an instruction at a time, and a mask says which of them run (`group.rs`). Threads take
//! groups or blocks of lanes; lanes, faults and sums do not depend on the number of threads. A stretch of lanes that all run
//! the same instructions on consecutive elements is a fused op, and runs as one (`trace.rs`).
//!
//! | file | contents |
//! |---|---|
//! | `lowering.rs` | operations on columns of lanes, from instructions |
//! | `flow.rs` | basic blocks and their order |
//! | `masked.rs` | a lowered program |
//! | `group.rs`, `mask.rs` | lanes that run together |
//! | `access.rs`, `memory.rs` | loads and stores; memory that threads share |
//! | `trace.rs` | programs that are fused ops |

mod access;
mod flow;
mod group;
mod lowering;
mod mask;
mod masked;
mod memory;
mod trace;

use std::sync::{Arc, Mutex, PoisonError};

use self::group::{GroupLaunch, GroupMemory, LaneGroup};
use self::lowering::{HandleSource, MemorySpace};
use self::masked::MaskedProgram;
use self::memory::{AccessTable, MemoryBytes};
use super::pool;
use crate::program::atlas::Resonance;
use crate::program::interpreter::{MAX_FAULTS, STEP_LIMIT};
use crate::program::{
    DeviceMemory, ExecutionParams, Fault, FaultKind, Instruction, Interpreter, Memory, MemoryView,
    Outcome, Program, ProgramError, Register, Result, host,
};

/// Minimum number of lanes of a task: handing out a task costs less than a thousandth of that.
const MIN_TASK_LANES: u64 = 8192;

/// Maximum bytes of the state of all blocks, for programs with instructions that run once per launch.
const MAX_LAUNCH_BYTES: u64 = 1 << 30;

/// Runs a program on the CPU: vectorised, on all threads.
///
/// Integers and moved bits are those of the [`Interpreter`], and so are float arithmetic, conversions, faults and sums of
/// `res_accum`; elementary functions (`exp`, `sin`, …) are those of tensors, within their bounds. Nothing depends on the
/// number of threads, unless the program races: lanes that access the same bytes without a barrier between them, at least one
/// of them writing, read the old or the new bytes, in any order, and the last write may be any. Where a barrier separates
/// them, lanes of a block see each other's writes.
///
/// A program that [`Program::verify`] refuses runs on the interpreter; [`CpuExecutor::refusal`] says why. So does a launch of
/// millions of blocks with instructions that run once.
#[derive(Debug)]
pub struct CpuExecutor {
    program: Program,
    step_limit: u64,
    /// The program for the last set of initial registers.
    lowered: Mutex<Option<Lowered>>,
}

/// A lowered program, or why there is none, for a set of initial registers.
#[derive(Clone, Debug)]
struct Lowered {
    initial_registers: Vec<Register>,
    program: Result<Arc<MaskedProgram>>,
}

impl CpuExecutor {
    /// An executor of a program.
    ///
    /// # Errors
    /// Those of [`Program::validate`].
    pub fn new(program: &Program) -> Result<Self> {
        program.validate()?;
        Ok(Self {
            program: program.clone(),
            step_limit: STEP_LIMIT,
            lowered: Mutex::new(None),
        })
    }

    /// Stops lanes after `limit` instructions; 2^28 unless set.
    #[must_use]
    pub const fn with_step_limit(mut self, limit: u64) -> Self {
        self.step_limit = limit;
        self
    }

    /// The program.
    pub(crate) const fn program(&self) -> &Program {
        &self.program
    }

    /// Why a launch with these initial registers runs on the interpreter. `None` if it does not.
    pub fn refusal(&self, initial_registers: &[Register]) -> Option<ProgramError> {
        self.lower(initial_registers).err()
    }

    /// Runs the program, and fails with the first fault. What lanes wrote before, and what other lanes wrote, stays.
    ///
    /// # Errors
    /// [`ProgramError::Fault`], [`ProgramError::InvalidLaunch`].
    pub fn run(&self, params: &ExecutionParams, memory: &mut dyn Memory) -> Result<Outcome> {
        self.run_to_end(params, memory)?.check()
    }

    /// Runs the program in memory of a device, with another step limit.
    pub(crate) fn run_on_device(
        &self,
        params: &ExecutionParams,
        memory: &mut DeviceMemory,
        step_limit: Option<u64>,
    ) -> Result<()> {
        let limit = step_limit.unwrap_or(self.step_limit);
        self.run_limited(params, memory, limit)?.check().map(drop)
    }

    /// Runs the program and reports faults in the outcome: a lane that faults ends, and the others continue.
    ///
    /// # Errors
    /// [`ProgramError::InvalidLaunch`].
    pub fn run_to_end(&self, params: &ExecutionParams, memory: &mut dyn Memory) -> Result<Outcome> {
        self.run_limited(params, memory, self.step_limit)
    }

    fn run_limited(
        &self,
        params: &ExecutionParams,
        memory: &mut dyn Memory,
        step_limit: u64,
    ) -> Result<Outcome> {
        let config = &params.launch_config;
        config.validate()?;
        let registers: Vec<_> = params.initial_registers.keys().copied().collect();
        let Ok(program) = self.lower(&registers) else {
            let interpreter = Interpreter::new(&self.program)?;
            let interpreter = interpreter.with_step_limit(step_limit);
            return interpreter.run_to_end(params, memory);
        };
        let launch = GroupLaunch {
            program: &program,
            params,
            step_limit,
        };
        if program.runs_once {
            let interpreter = Interpreter::new(&self.program)?;
            interpreter.check(config)?;
            // Many blocks of few lanes are less memory there.
            if program.launch_bytes(config) > MAX_LAUNCH_BYTES {
                let interpreter = interpreter.with_step_limit(step_limit);
                return interpreter.run_to_end(params, memory);
            }
            return self.run_with_host(&launch, memory);
        }
        let mut view = launch.view(memory)?;
        if trace::run(&self.program, params, step_limit, &mut view) {
            return Ok(Outcome::new());
        }
        Ok(run_groups(&launch, &self.program, view))
    }

    /// The program for a set of initial registers.
    fn lower(&self, initial_registers: &[Register]) -> Result<Arc<MaskedProgram>> {
        let mut last = self.lowered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lowered) = &*last
            && lowered.initial_registers == initial_registers
        {
            return lowered.program.clone();
        }
        let program = MaskedProgram::new(&self.program, initial_registers).map(Arc::new);
        *last = Some(Lowered {
            initial_registers: initial_registers.to_vec(),
            program: program.clone(),
        });
        program
    }

    /// Runs a program with instructions that run once per launch: all blocks run until each of their lanes has ended or
    /// waits, then the host runs the instruction.
    fn run_with_host(&self, launch: &GroupLaunch<'_>, memory: &mut dyn Memory) -> Result<Outcome> {
        let config = &launch.params.launch_config;
        let lanes = config.block_lanes();
        let mut blocks: Vec<_> = (0..config.blocks())
            .map(|block| {
                let mut group = LaneGroup::new(launch, lanes as usize);
                group.start(launch, block * lanes, lanes as usize);
                WaitingBlock {
                    group,
                    shared: vec![0; config.shared_memory.size_bytes],
                    resonance: Resonance::default(),
                    faults: Vec::new(),
                }
            })
            .collect();
        let mut outcome = Outcome::new();
        loop {
            {
                let is_parallel = blocks.len() > 1 && pool::threads() > 1;
                let table = access_table(launch, launch.view(memory)?, is_parallel);
                let run = |block: &mut WaitingBlock| block.run(launch, &self.program, &table);
                if is_parallel {
                    pool::for_each_chunk(&mut blocks, 1, |_, block| block.iter_mut().for_each(run));
                } else {
                    blocks.iter_mut().for_each(run);
                }
            }
            for block in &mut blocks {
                add_faults(&mut outcome.faults, std::mem::take(&mut block.faults));
            }
            if !self.run_once(launch, memory, &mut blocks, &mut outcome) {
                break;
            }
        }
        for block in &blocks {
            block.resonance.add_to(&mut outcome.resonance);
        }
        Ok(outcome)
    }

    /// Runs the instruction that all lanes wait at. Returns `false` if none waits.
    fn run_once(
        &self,
        launch: &GroupLaunch<'_>,
        memory: &mut dyn Memory,
        blocks: &mut [WaitingBlock],
        outcome: &mut Outcome,
    ) -> bool {
        let program = launch.program;
        let waiting = || {
            blocks.iter().flat_map(|block| {
                let lanes = block.group.waiting();
                lanes.map(|(lane, index)| (&block.group, lane, index))
            })
        };
        let Some((group, lane, index)) = waiting().next() else {
            return false;
        };
        let number = group.number(lane);
        let instruction = &self.program.instructions[index];
        let registers = host::handle_registers(instruction);
        let handles = |group: &LaneGroup, lane: usize| -> Vec<u64> {
            let registers = registers.iter();
            registers.map(|&r| group.word(program, r, lane)).collect()
        };
        let first = handles(group, lane);
        let agrees = |(group, lane, at)| at == index && handles(group, lane) == first;
        let result = if waiting().all(agrees) {
            host::execute(memory, instruction, &first)
        } else {
            Err(FaultKind::DivergentLaunch)
        };
        for block in &mut *blocks {
            match (&result, instruction) {
                (Ok(handle), _) => {
                    if let (Some(handle), Instruction::PoolAlloc { dst, .. }) =
                        (handle, instruction)
                    {
                        block.group.set_word(program, *dst, *handle);
                    }
                    block.group.release(program);
                }
                (Err(_), _) => block.group.end_waiting(None),
            }
        }
        if let Err(kind) = result {
            let lane = number;
            add_faults(&mut outcome.faults, vec![Fault { kind, index, lane }]);
        }
        true
    }
}

impl GroupLaunch<'_> {
    /// The value of a handle, if it is the same for all lanes.
    fn handle(&self, source: HandleSource) -> Option<u64> {
        match source {
            HandleSource::Constant(handle) => Some(handle),
            HandleSource::Initial(register) => Some(self.initial(register)),
            HandleSource::Column(_) => None,
        }
    }

    /// The memory of the launch; what it may write is borrowed exclusively.
    fn view<'m>(&self, memory: &'m mut dyn Memory) -> Result<MemoryView<'m>> {
        memory.view(&|handle| {
            let stores = self.program.accesses.iter().filter(|a| a.is_store);
            let mut handles = stores
                .filter(|a| a.space == MemorySpace::Buffer)
                .map(|a| self.handle(a.handle));
            handles.any(|h| h.is_none_or(|h| h == handle))
        })
    }
}

/// The buffers and pools of a launch.
fn access_table<'m>(
    launch: &GroupLaunch<'_>,
    view: MemoryView<'m>,
    is_parallel: bool,
) -> AccessTable<'m> {
    let accesses = &launch.program.accesses;
    AccessTable::new(view, accesses, |source| launch.handle(source), is_parallel)
}

fn add_faults(all: &mut Vec<Fault>, more: Vec<Fault>) {
    let left = MAX_FAULTS.saturating_sub(all.len());
    all.extend(more.into_iter().take(left));
}

/// A block that waits for the launch.
struct WaitingBlock {
    group: LaneGroup,
    shared: Vec<u8>,
    resonance: Resonance,
    faults: Vec<Fault>,
}

impl WaitingBlock {
    /// Runs the lanes until each has ended or waits for the launch.
    fn run(&mut self, launch: &GroupLaunch<'_>, program: &Program, table: &AccessTable<'_>) {
        let shared = MemoryBytes::exclusive(&mut self.shared);
        let memory = GroupMemory { table, shared };
        let (faults, resonance) = (&mut self.faults, &mut self.resonance);
        run_block(launch, program, &mut self.group, memory, faults, resonance);
    }
}

/// Runs the lanes of a block, over its barriers.
fn run_block(
    launch: &GroupLaunch<'_>,
    program: &Program,
    group: &mut LaneGroup,
    memory: GroupMemory<'_>,
    faults: &mut Vec<Fault>,
    resonance: &mut Resonance,
) {
    loop {
        group.run(launch, memory);
        collect(group, faults, resonance);
        let barrier = |index: usize| match program.instructions[index] {
            Instruction::BarSync { id } => Some(id),
            _ => None,
        };
        let Some(id) = group.waiting().find_map(|(_, index)| barrier(index)) else {
            return;
        };
        if group.waiting().all(|(_, index)| barrier(index) == Some(id)) {
            group.release(launch.program);
        } else {
            let block = group.number(0) / launch.params.launch_config.block_lanes();
            group.end_waiting(Some(&FaultKind::DivergentBarrier { block }));
            collect(group, faults, resonance);
        }
    }
}

/// Takes what lanes of a block report.
fn collect(group: &mut LaneGroup, faults: &mut Vec<Fault>, resonance: &mut Resonance) {
    add_faults(faults, group.take_faults());
    for sum in group.take_accumulations() {
        // The lane has checked the class.
        let _ = resonance.add(sum.class, sum.value);
    }
}

/// What a task reports.
#[derive(Default)]
struct TaskReport {
    faults: Vec<Fault>,
    /// Sums of blocks, in order.
    resonance: Vec<Resonance>,
}

/// Runs a program without instructions that run once per launch.
fn run_groups(launch: &GroupLaunch<'_>, program: &Program, view: MemoryView<'_>) -> Outcome {
    let config = &launch.params.launch_config;
    let total = config.blocks() * config.block_lanes();
    let unit = if launch.program.needs_blocks {
        config.block_lanes()
    } else {
        launch.program.group_lanes(config) as u64
    };
    let task_lanes = MIN_TASK_LANES.next_multiple_of(unit);
    let tasks = total.div_ceil(task_lanes) as usize;
    let is_parallel = tasks > 1 && pool::threads() > 1;
    let table = access_table(launch, view, is_parallel);
    let groups = Mutex::new(Vec::new());
    let reports = Mutex::new(Vec::new());
    let task = |task: usize| {
        let first = task as u64 * task_lanes;
        let lanes = task_lanes.min(total - first);
        let idle = locked(&groups).pop();
        let capacity = (launch.program.group_lanes(config) as u64).min(total) as usize;
        let mut group = idle.unwrap_or_else(|| LaneGroup::new(launch, capacity));
        let report = run_task(launch, program, &table, &mut group, first..first + lanes);
        locked(&groups).push(group);
        if !report.faults.is_empty() || !report.resonance.is_empty() {
            locked(&reports).push((task, report));
        }
    };
    if is_parallel {
        pool::run(tasks, task);
    } else {
        (0..tasks).for_each(task);
    }
    let mut reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
    reports.sort_by_key(|(task, _)| *task);
    let mut outcome = Outcome::new();
    for (_, report) in reports {
        add_faults(&mut outcome.faults, report.faults);
        for sums in report.resonance {
            sums.add_to(&mut outcome.resonance);
        }
    }
    outcome
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a range of lanes: whole blocks, if the program needs them.
fn run_task(
    launch: &GroupLaunch<'_>,
    program: &Program,
    table: &AccessTable<'_>,
    group: &mut LaneGroup,
    lanes: std::ops::Range<u64>,
) -> TaskReport {
    let config = &launch.params.launch_config;
    let group_lanes = launch.program.group_lanes(config) as u64;
    let block_lanes = if launch.program.needs_blocks {
        config.block_lanes()
    } else {
        lanes.end - lanes.start
    };
    let mut report = TaskReport::default();
    let mut shared = vec![0; config.shared_memory.size_bytes];
    let mut first = lanes.start;
    while first < lanes.end {
        let end = first + block_lanes;
        shared.fill(0);
        let mut resonance = Resonance::default();
        while first < end {
            let len = group_lanes.min(end - first);
            group.start(launch, first, len as usize);
            let shared = MemoryBytes::exclusive(&mut shared);
            let memory = GroupMemory { table, shared };
            let faults = &mut report.faults;
            run_block(launch, program, group, memory, faults, &mut resonance);
            first += len;
        }
        if !resonance.is_empty() {
            report.resonance.push(resonance);
        }
    }
    report
}
