//! Lanes that run together, and the operations on them.
//!
//! Every lane has the number of the block that it runs next. The lanes at the lowest number run, so that lanes meet again
//! behind branches and loops. Pure operations run over the whole range of the mask, and only lanes of the mask keep the
//! results.

use super::flow::{BlockExit, ENDED};
use super::lowering::{
    Argument, ColumnId, FaultingFunction, InitialValue, KernelCall, Operation, Operations,
};
use super::mask::LaneMask;
use super::masked::MaskedProgram;
use super::memory::{AccessTable, MemoryBytes};
use crate::DType;
use crate::cache_line::{CACHE_LINE_BYTES, CacheLine};
use crate::cpu::map::Args;
use crate::dtype::with_type;
use crate::program::interpreter::MAX_CALLS;
use crate::program::{ExecutionParams, Fault, FaultKind, LaunchConfig, Register, atlas};

/// In place of a block's number: the lane waits at the instruction whose index is in the lower bits.
const WAITS: u32 = 1 << 31;

/// What is the same for all groups of a launch.
#[derive(Debug)]
pub(super) struct GroupLaunch<'l> {
    pub(super) program: &'l MaskedProgram,
    pub(super) params: &'l ExecutionParams,
    pub(super) step_limit: u64,
}

/// The memory that a group accesses.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupMemory<'m> {
    pub(super) table: &'m AccessTable<'m>,
    pub(super) shared: MemoryBytes<'m>,
}

/// The values of a register or predicate.
#[derive(Debug, Default)]
pub(super) struct Column(Vec<CacheLine>);

impl Column {
    fn new(lanes: usize, size: u8) -> Self {
        // Columns of the same length would otherwise compete for the same sets of the cache.
        let lines = (lanes * usize::from(size)).div_ceil(CACHE_LINE_BYTES) + 1;
        Self(vec![bytemuck::Zeroable::zeroed(); lines])
    }

    pub(super) fn all<T: bytemuck::Pod>(&self) -> &[T] {
        bytemuck::cast_slice(&self.0)
    }

    pub(super) fn all_mut<T: bytemuck::Pod>(&mut self) -> &mut [T] {
        bytemuck::cast_slice_mut(&mut self.0)
    }

    /// The bits of an element.
    fn bits(&self, lane: usize, size: u8) -> u64 {
        match size {
            1 => self.all::<u8>()[lane].into(),
            2 => self.all::<u16>()[lane].into(),
            4 => self.all::<u32>()[lane].into(),
            _ => self.all::<u64>()[lane],
        }
    }

    /// Fills a range with an element, given as bits.
    pub(super) fn fill(&mut self, range: std::ops::Range<usize>, size: u8, bits: u64) {
        match size {
            1 => self.all_mut::<u8>()[range].fill(bits as u8),
            2 => self.all_mut::<u16>()[range].fill(bits as u16),
            4 => self.all_mut::<u32>()[range].fill(bits as u32),
            _ => self.all_mut::<u64>()[range].fill(bits),
        }
    }
}

/// A value that a lane added to a class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Accumulation {
    lane: usize,
    pub(super) class: u8,
    pub(super) value: f64,
}

/// Consecutive lanes of a launch.
#[derive(Debug)]
pub(super) struct LaneGroup {
    pub(super) columns: Vec<Column>,
    pub(super) mask: LaneMask,
    /// Number of the first lane in the grid.
    first: u64,
    /// Number of the block that each lane runs next, [`WAITS`] or [`ENDED`].
    next: Vec<u32>,
    /// Number of instructions that each lane ran, unless the program has no cycles.
    steps: Vec<u64>,
    phases: Vec<u32>,
    /// Depth of the call stack of each lane, and all stacks, level by level.
    depths: Vec<u16>,
    calls: Vec<u32>,
    /// Faults since they were last taken.
    faults: Vec<Fault>,
    accumulations: Vec<Accumulation>,
}

impl LaneGroup {
    /// A group for at most `capacity` lanes.
    pub(super) fn new(launch: &GroupLaunch<'_>, capacity: usize) -> Self {
        let program = launch.program;
        let operations = &program.operations;
        let sizes = operations.sizes.iter();
        let mut group = Self {
            columns: sizes.map(|&size| Column::new(capacity, size)).collect(),
            mask: LaneMask::with_capacity(capacity),
            first: 0,
            next: Vec::with_capacity(capacity),
            steps: Vec::new(),
            phases: Vec::new(),
            depths: Vec::new(),
            calls: Vec::new(),
            faults: Vec::new(),
            accumulations: Vec::new(),
        };
        for initial in operations.initial.iter().filter(|i| i.is_constant) {
            let size = operations.sizes[usize::from(initial.column)];
            let bits = match initial.value {
                InitialValue::Bits(bits) => bits,
                InitialValue::Register(register) => launch.initial(register),
                InitialValue::Position(_) => launch.params.launch_config.block.x.into(),
            };
            group.columns[usize::from(initial.column)].fill(0..capacity, size, bits);
        }
        group
    }

    /// Places `len` lanes before the first instruction.
    pub(super) fn start(&mut self, launch: &GroupLaunch<'_>, first: u64, len: usize) {
        let program = launch.program;
        self.first = first;
        let entry = program.starts.first().copied().unwrap_or(ENDED);
        let restart = |values: &mut Vec<u32>, value| {
            values.clear();
            values.resize(len, value);
        };
        restart(&mut self.next, entry);
        if program.has_phases {
            restart(&mut self.phases, 0);
        }
        self.steps.clear();
        if program.has_cycles {
            self.steps.resize(len, 0);
            self.depths.clear();
            self.depths.resize(len, 0);
        }
        for initial in program.operations.initial.iter().filter(|i| !i.is_constant) {
            let column = usize::from(initial.column);
            let size = program.operations.sizes[column];
            match initial.value {
                InitialValue::Bits(bits) => self.columns[column].fill(0..len, size, bits),
                InitialValue::Register(register) => {
                    self.columns[column].fill(0..len, size, launch.initial(register));
                }
                InitialValue::Position(register) => {
                    self.columns[column].place(register, &launch.params.launch_config, first, len);
                }
            }
        }
    }

    /// Number of a lane in the grid.
    pub(super) fn number(&self, lane: usize) -> u64 {
        self.first + lane as u64
    }

    /// Lanes that wait, and the instruction they wait at.
    pub(super) fn waiting(&self) -> impl Iterator<Item = (usize, usize)> {
        let lanes = self.next.iter().enumerate();
        lanes
            .filter(|(_, next)| (WAITS..ENDED).contains(next))
            .map(|(lane, next)| (lane, (next - WAITS) as usize))
    }

    /// Lets all lanes that wait go on behind their instruction.
    pub(super) fn release(&mut self, program: &MaskedProgram) {
        for next in &mut self.next {
            if (WAITS..ENDED).contains(next) {
                *next = program.starts[(*next - WAITS) as usize + 1];
            }
        }
    }

    /// Ends all lanes that wait; each has the fault, if there is one.
    pub(super) fn end_waiting(&mut self, fault: Option<&FaultKind>) {
        let waiting: Vec<_> = self.waiting().collect();
        for (lane, index) in waiting {
            self.next[lane] = ENDED;
            if let Some(kind) = fault {
                let lane = self.number(lane);
                self.faults.push(Fault {
                    kind: kind.clone(),
                    index,
                    lane,
                });
            }
        }
    }

    /// The value of a `u64` register of a lane.
    pub(super) fn word(&self, program: &MaskedProgram, register: Register, lane: usize) -> u64 {
        let column = program.operations.word_column(register).unwrap_or_default();
        self.columns[usize::from(column)].all()[lane]
    }

    /// Sets a `u64` register of the lanes that wait.
    pub(super) fn set_word(&mut self, program: &MaskedProgram, register: Register, value: u64) {
        let Some(column) = program.operations.word_column(register) else {
            return;
        };
        let waiting: Vec<_> = self.waiting().map(|(lane, _)| lane).collect();
        for lane in waiting {
            self.columns[usize::from(column)].all_mut()[lane] = value;
        }
    }

    /// Faults since the last call, by lane.
    pub(super) fn take_faults(&mut self) -> Vec<Fault> {
        self.faults.sort_by_key(|fault| fault.lane);
        std::mem::take(&mut self.faults)
    }

    /// Accumulated values since the last call: by lane, and those of a lane in order.
    pub(super) fn take_accumulations(&mut self) -> Vec<Accumulation> {
        self.accumulations.sort_by_key(|a| a.lane);
        std::mem::take(&mut self.accumulations)
    }

    /// Runs lanes until each has ended or waits.
    pub(super) fn run(&mut self, launch: &GroupLaunch<'_>, memory: GroupMemory<'_>) {
        while let Some(&number) = self.next.iter().min()
            && number < WAITS
        {
            self.mask.select(&self.next, number);
            self.run_block(launch, memory, number);
        }
    }

    fn run_block(&mut self, launch: &GroupLaunch<'_>, memory: GroupMemory<'_>, number: u32) {
        let program = launch.program;
        let block = &program.blocks[number as usize];
        let starts = &program.operations.starts;
        let len = (block.end - block.first) as u64;
        let is_limited = if program.has_cycles {
            self.count_steps(len, launch.step_limit)
        } else {
            launch.step_limit < program.starts.len() as u64
        };
        if is_limited {
            // Some lane is stopped in this block, or may be.
            for index in block.first..block.end {
                self.step(launch, index);
                self.run_operations(launch, memory, index..index + 1);
            }
        } else if starts[block.first] < starts[block.end] {
            self.run_operations(launch, memory, block.first..block.end);
        }
        self.leave(block.exit, block.end - 1);
    }

    /// Counts `len` instructions of every lane, unless one of them would exceed the limit: then it returns `true`.
    fn count_steps(&mut self, len: u64, limit: u64) -> bool {
        let steps = &mut self.steps[self.mask.range()];
        let mask = self.mask.lanes();
        let active = steps.iter().zip(mask).filter(|(_, m)| **m != 0);
        if active.map(|(s, _)| *s).max().unwrap_or(0) + len > limit {
            return true;
        }
        for (steps, &mask) in steps.iter_mut().zip(mask) {
            *steps += if mask != 0 { len } else { 0 };
        }
        false
    }

    /// Counts one instruction, and stops lanes that exceed the limit.
    fn step(&mut self, launch: &GroupLaunch<'_>, index: usize) {
        let limit = launch.step_limit;
        // Programs without cycles do not count otherwise.
        self.steps.resize(self.next.len(), 0);
        for lane in self.mask.range() {
            if self.mask.contains(lane) {
                self.steps[lane] += 1;
                if self.steps[lane] > limit {
                    self.fault(lane, index, FaultKind::StepLimit(limit));
                }
            }
        }
    }

    /// Ends a lane with a fault.
    pub(super) fn fault(&mut self, lane: usize, index: usize, kind: FaultKind) {
        self.mask.remove(lane);
        self.next[lane] = ENDED;
        let lane = self.number(lane);
        self.faults.push(Fault { kind, index, lane });
    }

    fn run_operations(
        &mut self,
        launch: &GroupLaunch<'_>,
        memory: GroupMemory<'_>,
        instructions: std::ops::Range<usize>,
    ) {
        let operations = &launch.program.operations;
        for index in instructions {
            for operation in &operations.all[operations.starts[index]..operations.starts[index + 1]]
            {
                if self.mask.count() == 0 {
                    return;
                }
                self.operate(launch, memory, index, operation);
            }
        }
    }

    fn operate(
        &mut self,
        launch: &GroupLaunch<'_>,
        memory: GroupMemory<'_>,
        index: usize,
        operation: &Operation,
    ) {
        match *operation {
            Operation::Call(ref call) => self.call(call),
            Operation::Fill { to, bits } => self.fill(to, bits),
            Operation::Access(access) => self.access(launch, memory, index, &access),
            Operation::Divide { dtype, args, to } => self.divide(index, dtype, args, to),
            Operation::Faulting { function, args, to } => {
                self.call_faulting(index, function, args, to);
            }
            Operation::Class { to } => {
                let lanes = launch.params.launch_config.block_lanes();
                for lane in self.mask.range() {
                    if self.mask.contains(lane) {
                        let class = class_of(self.number(lane), lanes);
                        self.columns[usize::from(to)].all_mut::<u8>()[lane] = class;
                    }
                }
            }
            Operation::IsUnity { to } => {
                let lanes = launch.params.launch_config.block_lanes();
                for lane in self.mask.range() {
                    if self.mask.contains(lane) {
                        let class = class_of(self.number(lane), lanes);
                        self.columns[usize::from(to)].all_mut::<u8>()[lane] =
                            u8::from(atlas::is_unity(class));
                    }
                }
            }
            Operation::Accumulate { class, value } => self.accumulate(index, class, value),
            Operation::PhaseGet { to } => {
                let range = self.mask.range();
                let phases = &self.phases[range.clone()];
                let to = &mut self.columns[usize::from(to)].all_mut::<u32>()[range];
                self.mask.blend(phases, to);
            }
            Operation::PhaseAdvance { delta } => {
                for lane in self.mask.range() {
                    if self.mask.contains(lane) {
                        let phase = self.phases[lane] + u32::from(delta);
                        self.phases[lane] = phase % atlas::PHASES;
                    }
                }
            }
        }
    }

    /// Takes the column that results of a size are computed in.
    pub(super) fn take_scratch(&mut self, size: u8) -> Column {
        std::mem::take(&mut self.columns[usize::from(Operations::scratch(size))])
    }

    /// Moves results to their column, for lanes of the mask, and returns the scratch column.
    pub(super) fn keep(&mut self, mut results: Column, to: Argument, is_temporary: bool) {
        let range = self.mask.range();
        let column = &mut self.columns[usize::from(to.column)];
        if (is_temporary || self.mask.is_dense()) && range == (0..self.next.len()) {
            std::mem::swap(column, &mut results);
        } else if is_temporary || self.mask.is_dense() {
            let size = usize::from(to.size);
            let range = range.start * size..range.end * size;
            column.all_mut::<u8>()[range.clone()].copy_from_slice(&results.all::<u8>()[range]);
        } else {
            macro_rules! blend {
                ($type:ident) => {
                    self.mask.blend(
                        &results.all::<$type>()[range.clone()],
                        &mut column.all_mut::<$type>()[range],
                    )
                };
            }
            match to.size {
                1 => blend!(u8),
                2 => blend!(u16),
                4 => blend!(u32),
                _ => blend!(u64),
            }
        }
        self.columns[usize::from(Operations::scratch(to.size))] = results;
    }

    fn call(&mut self, call: &KernelCall) {
        let range = self.mask.range();
        let bytes = |size: u8| {
            let size = usize::from(size);
            range.start * size..range.end * size
        };
        let is_argument = call
            .args
            .iter()
            .any(|a| a.size > 0 && a.column == call.to.column);
        // Results are written in place if no other lane keeps its value, and no argument is overwritten.
        let is_direct = !is_argument && (call.is_temporary || self.mask.is_dense());
        let mut out = if is_direct {
            std::mem::take(&mut self.columns[usize::from(call.to.column)])
        } else {
            self.take_scratch(call.to.size)
        };
        let [a, b, c] = call.args.map(|arg| match arg.size {
            0 => &[][..],
            size => &self.columns[usize::from(arg.column)].all::<u8>()[bytes(size)],
        });
        let args = Args {
            a,
            b,
            c,
            parameter: 0.0,
        };
        (call.kernel)(&args, &mut out.all_mut::<u8>()[bytes(call.to.size)]);
        if is_direct {
            self.columns[usize::from(call.to.column)] = out;
        } else {
            self.keep(out, call.to, call.is_temporary);
        }
    }

    fn fill(&mut self, to: Argument, bits: u64) {
        let range = self.mask.range();
        if self.mask.is_dense() {
            self.columns[usize::from(to.column)].fill(range, to.size, bits);
        } else {
            let mut out = self.take_scratch(to.size);
            out.fill(range, to.size, bits);
            self.keep(out, to, false);
        }
    }

    fn divide(&mut self, index: usize, dtype: DType, args: [ColumnId; 2], to: ColumnId) {
        let size = dtype.size() as u8;
        let mut out = self.take_scratch(size);
        let mut failed = Vec::new();
        with_type!(ints dtype, T => {
            let [a, b] = args.map(|c| self.columns[usize::from(c)].all::<T>());
            let results = out.all_mut::<T>();
            for lane in self.mask.range() {
                if self.mask.contains(lane) {
                    if b[lane] == 0 {
                        failed.push(lane);
                    } else {
                        results[lane] = a[lane].wrapping_div(b[lane]);
                    }
                }
            }
        }, else {});
        for lane in failed {
            self.fault(lane, index, FaultKind::DivisionByZero);
        }
        self.keep(out, Argument { column: to, size }, false);
    }

    fn call_faulting(
        &mut self,
        index: usize,
        function: FaultingFunction,
        args: [Argument; 3],
        to: Argument,
    ) {
        for lane in self.mask.range() {
            if !self.mask.contains(lane) {
                continue;
            }
            let [a, b, c] = args.map(|arg| match arg.size {
                0 => 0,
                size => self.columns[usize::from(arg.column)].bits(lane, size) as u8,
            });
            let result = match function {
                FaultingFunction::Mirror => atlas::mirror(a).map(u64::from),
                FaultingFunction::Degree => atlas::degree(a).map(u64::from),
                FaultingFunction::Neighbour(index) => atlas::neighbour(a, index).map(u64::from),
                FaultingFunction::BoundaryOffset => atlas::boundary_offset(a, b, c),
            };
            match result {
                Ok(bits) => {
                    self.columns[usize::from(to.column)].fill(lane..lane + 1, to.size, bits);
                }
                Err(kind) => self.fault(lane, index, kind),
            }
        }
    }

    fn accumulate(&mut self, index: usize, class: ColumnId, value: ColumnId) {
        for lane in self.mask.range() {
            if !self.mask.contains(lane) {
                continue;
            }
            let class = self.columns[usize::from(class)].all::<u8>()[lane];
            let value = self.columns[usize::from(value)].all::<f64>()[lane];
            if class < crate::program::CLASSES {
                self.accumulations.push(Accumulation { lane, class, value });
            } else {
                self.fault(lane, index, FaultKind::InvalidClassIndex(class));
            }
        }
    }

    /// Sets where the lanes of the mask go on after the last instruction of a block.
    fn leave(&mut self, exit: BlockExit, index: usize) {
        let range = self.mask.range();
        match exit {
            BlockExit::Jump(to) => {
                let mask = self.mask.lanes();
                for (next, &mask) in self.next[range].iter_mut().zip(mask) {
                    *next = if mask != 0 { to } else { *next };
                }
            }
            BlockExit::Branch {
                predicate,
                then,
                otherwise,
            } => {
                let predicate = &self.columns[usize::from(predicate)].all::<u8>()[range.clone()];
                let conditions = predicate.iter().zip(self.mask.lanes());
                for (next, (&holds, &mask)) in self.next[range].iter_mut().zip(conditions) {
                    let to = if holds != 0 { then } else { otherwise };
                    *next = if mask != 0 { to } else { *next };
                }
            }
            BlockExit::Loop {
                counter,
                body,
                after,
            } => {
                let counters =
                    &mut self.columns[usize::from(counter)].all_mut::<u32>()[range.clone()];
                let lanes = self.next[range].iter_mut().zip(self.mask.lanes());
                for ((next, &mask), counter) in lanes.zip(counters) {
                    let to = if *counter > 0 { body } else { after };
                    *next = if mask != 0 { to } else { *next };
                    *counter -= u32::from(mask != 0 && *counter > 0);
                }
            }
            BlockExit::Call { target, back } => self.enter(index, target, back),
            BlockExit::Return => {
                let lanes = self.next.len();
                for lane in range {
                    if !self.mask.contains(lane) {
                        continue;
                    }
                    // A program without calls has no stacks.
                    match self.depths.get(lane).and_then(|d| d.checked_sub(1)) {
                        Some(depth) => {
                            self.depths[lane] = depth;
                            self.next[lane] = self.calls[usize::from(depth) * lanes + lane];
                        }
                        None => self.fault(lane, index, FaultKind::CallStackUnderflow),
                    }
                }
            }
            BlockExit::Wait => {
                for lane in range {
                    if self.mask.contains(lane) {
                        self.next[lane] = WAITS | index as u32;
                    }
                }
            }
        }
    }

    fn enter(&mut self, index: usize, target: u32, back: u32) {
        let lanes = self.next.len();
        for lane in self.mask.range() {
            if !self.mask.contains(lane) {
                continue;
            }
            let depth = usize::from(self.depths[lane]);
            if depth == MAX_CALLS {
                self.fault(lane, index, FaultKind::CallStackOverflow(MAX_CALLS));
                continue;
            }
            let level = (depth + 1) * lanes;
            if self.calls.len() < level {
                self.calls.resize(level, ENDED);
            }
            self.calls[depth * lanes + lane] = back;
            self.depths[lane] += 1;
            self.next[lane] = target;
        }
    }
}

impl GroupLaunch<'_> {
    /// The value of a register at the start.
    pub(super) fn initial(&self, register: Register) -> u64 {
        let registers = &self.params.initial_registers;
        registers.get(&register).copied().unwrap_or_default()
    }
}

/// Class of the block of a lane.
fn class_of(lane: u64, block_lanes: u64) -> u8 {
    (lane / block_lanes % u64::from(crate::program::CLASSES)) as u8
}

impl Column {
    /// Fills the column of a register that holds the position of lanes, from lane number `first` of the grid on.
    fn place(&mut self, register: Register, config: &LaunchConfig, first: u64, len: usize) {
        if register == Register::GLOBAL_LANE_ID {
            for (value, number) in self.all_mut::<u64>()[..len].iter_mut().zip(first..) {
                *value = number;
            }
            return;
        }
        let lanes = config.block_lanes();
        let (mut block, mut lane) = (first / lanes, first % lanes);
        let mut x = (lane % u64::from(config.block.x)) as u32;
        for value in &mut self.all_mut::<u32>()[..len] {
            *value = match register {
                Register::LANE_IDX_X => x,
                Register::BLOCK_IDX_X => (block % u64::from(config.grid.x)) as u32,
                _ => config.block.x,
            };
            lane += 1;
            x += 1;
            if x == config.block.x {
                x = 0;
            }
            if lane == lanes {
                (block, lane, x) = (block + 1, 0, 0);
            }
        }
    }
}
