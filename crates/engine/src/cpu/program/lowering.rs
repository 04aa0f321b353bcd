//! Lowers a program to operations on columns of lanes.
//!
//! A column holds a register of one size, or a predicate, of all lanes: a lane may hold an `f32` where another holds a `u8`
//! in the same register. The kernels are those of tensors.

use std::collections::HashMap;

use crate::DType;
use crate::cpu::map::{ElementwiseKernel, map};
use crate::cpu::{binary, cast, ternary, unary};
use crate::ops::binary::Binary;
use crate::ops::ternary::Ternary;
use crate::ops::unary::Unary;
use crate::program::{
    Address, Condition, Instruction, Operand, Predicate, Program, Register, atlas,
};

/// Number of a column.
pub(super) type ColumnId = u16;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Contents {
    Register(Register),
    Predicate(Predicate),
    /// Results that are not written yet: a column for each size.
    Scratch,
    /// Intermediate results of one instruction.
    Temporary(u8),
}

/// A column as an argument or a result: its elements have `size` bytes, none if there is no argument.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Argument {
    pub(super) column: ColumnId,
    pub(super) size: u8,
}

/// A kernel call on the lanes of a mask.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelCall {
    pub(super) kernel: ElementwiseKernel,
    pub(super) args: [Argument; 3],
    pub(super) to: Argument,
    /// The result is used by the same instruction only, so lanes outside the mask may be overwritten.
    pub(super) is_temporary: bool,
}

/// What memory an access reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemorySpace {
    Buffer,
    Pool,
    /// The shared memory of the block, which has no handle.
    Shared,
}

/// The handle of an access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum HandleSource {
    Constant(u64),
    /// The value that a register has at the start, and keeps.
    Initial(Register),
    Column(ColumnId),
}

/// The offset of an access in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum OffsetSource {
    Constant(u64),
    Column(ColumnId),
}

/// A load or store.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryAccess {
    pub(super) space: MemorySpace,
    pub(super) dtype: DType,
    pub(super) handle: HandleSource,
    pub(super) offset: OffsetSource,
    pub(super) is_store: bool,
    /// The column that is loaded or stored.
    pub(super) column: ColumnId,
}

/// A function that may fault, on the bits of its arguments.
#[derive(Clone, Copy, Debug)]
pub(super) enum FaultingFunction {
    Mirror,
    Degree,
    Neighbour(u8),
    BoundaryOffset,
}

/// An operation on the lanes of a mask.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    Call(KernelCall),
    /// A constant, as bits.
    Fill {
        to: Argument,
        bits: u64,
    },
    Access(MemoryAccess),
    /// Integer division.
    Divide {
        dtype: DType,
        args: [ColumnId; 2],
        to: ColumnId,
    },
    Faulting {
        function: FaultingFunction,
        args: [Argument; 3],
        to: Argument,
    },
    /// Class of the block.
    Class {
        to: ColumnId,
    },
    /// Whether the class of the block is a unity class.
    IsUnity {
        to: ColumnId,
    },
    Accumulate {
        class: ColumnId,
        value: ColumnId,
    },
    PhaseGet {
        to: ColumnId,
    },
    PhaseAdvance {
        delta: u16,
    },
}

/// A value that a column has when lanes start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum InitialValue {
    Bits(u64),
    /// The initial value of a register.
    Register(Register),
    /// A register that holds the position of the lane.
    Position(Register),
}

/// A column that has a value when lanes start.
#[derive(Clone, Copy, Debug)]
pub(super) struct InitialColumn {
    pub(super) column: ColumnId,
    pub(super) value: InitialValue,
    /// Nothing else is ever written to the column.
    pub(super) is_constant: bool,
}

/// Lowered instructions.
#[derive(Debug, Default)]
pub(super) struct Operations {
    pub(super) all: Vec<Operation>,
    /// Index of the first operation of each instruction, and the number of operations.
    pub(super) starts: Vec<usize>,
    /// Bytes of an element of each column.
    pub(super) sizes: Vec<u8>,
    pub(super) initial: Vec<InitialColumn>,
    ids: HashMap<(Contents, u8), ColumnId>,
}

impl Operations {
    /// Lowers the instructions that `is_reachable` accepts.
    pub(super) fn of(
        program: &Program,
        initial_registers: &[Register],
        is_reachable: impl Fn(usize) -> bool,
    ) -> Self {
        let mut lowering = Lowering {
            operations: Self::default(),
            writers: Writers::of(program, initial_registers),
        };
        for size in [1, 2, 4, 8] {
            lowering.column(Contents::Scratch, size);
        }
        for (index, instruction) in program.instructions.iter().enumerate() {
            let start = lowering.operations.all.len();
            lowering.operations.starts.push(start);
            if is_reachable(index) {
                lowering.lower(instruction);
            }
        }
        let mut operations = lowering.operations;
        operations.starts.push(operations.all.len());
        operations.add_initial(&lowering.writers, initial_registers);
        operations
    }

    /// The column for results of a size.
    pub(super) const fn scratch(size: u8) -> ColumnId {
        size.trailing_zeros() as ColumnId
    }

    /// The column of a `u64` register, if the program uses it as such.
    pub(super) fn word_column(&self, register: Register) -> Option<ColumnId> {
        self.ids.get(&(Contents::Register(register), 8)).copied()
    }

    /// The column of a `u32` register, if the program uses it as such.
    pub(super) fn counter_column(&self, register: Register) -> Option<ColumnId> {
        self.ids.get(&(Contents::Register(register), 4)).copied()
    }

    /// The column of a predicate, if the program writes it.
    pub(super) fn predicate_column(&self, predicate: Predicate) -> Option<ColumnId> {
        self.ids.get(&(Contents::Predicate(predicate), 1)).copied()
    }

    fn add_initial(&mut self, writers: &Writers, initial_registers: &[Register]) {
        let mut initial = Vec::new();
        for (&(contents, size), &column) in &self.ids {
            let Contents::Register(register) = contents else {
                continue;
            };
            let count = writers.count(register, size);
            let is_special = Register::SPECIAL
                .iter()
                .any(|(r, _, dtype)| *r == register && dtype.size() == usize::from(size));
            let value = if is_special {
                Some(InitialValue::Position(register))
            } else if size == 8 && initial_registers.contains(&register) {
                Some(InitialValue::Register(register))
            } else {
                writers.constant(register, size).map(InitialValue::Bits)
            };
            if let Some(value) = value {
                let is_constant = matches!(value, InitialValue::Bits(_))
                    || (count == 0 && !is_special)
                    || (count == 0 && register == Register::BLOCK_DIM_X);
                initial.push(InitialColumn {
                    column,
                    value,
                    is_constant,
                });
            }
        }
        initial.sort_by_key(|i| i.column);
        self.initial = initial;
    }
}

/// The instructions that write each register, by size.
struct Writers {
    /// Number of writers, and the bits if the last is `mov_imm`.
    all: HashMap<(Register, u8), (usize, Option<u64>)>,
    /// Registers that have a value at the start.
    initial: Vec<Register>,
}

impl Writers {
    fn of(program: &Program, initial_registers: &[Register]) -> Self {
        let mut all = HashMap::new();
        for instruction in &program.instructions {
            instruction.for_each_operand(|_, operand| {
                if let Operand::Write(register, dtype) | Operand::Update(register, dtype) = operand
                {
                    let entry = all
                        .entry((register, dtype.size() as u8))
                        .or_insert((0, None));
                    entry.0 += 1;
                    entry.1 = match instruction {
                        Instruction::MovImm { value, .. } => Some(*value),
                        _ => None,
                    };
                }
            });
        }
        let special = Register::SPECIAL.iter().map(|(r, ..)| *r);
        Self {
            all,
            initial: initial_registers.iter().copied().chain(special).collect(),
        }
    }

    fn count(&self, register: Register, size: u8) -> usize {
        self.all
            .get(&(register, size))
            .map_or(0, |(count, _)| *count)
    }

    /// The only value that a register of a size is ever given. A verified program reads it only after that.
    fn constant(&self, register: Register, size: u8) -> Option<u64> {
        match self.all.get(&(register, size)) {
            Some((1, bits)) if !self.initial.contains(&register) => *bits,
            _ => None,
        }
    }
}

struct Lowering {
    operations: Operations,
    writers: Writers,
}

/// Minimum and maximum of floats as programs define them: a NaN is ignored, and of equal values the first is the result.
fn extremum(is_max: bool, dtype: DType) -> ElementwiseKernel {
    match (dtype, is_max) {
        (DType::F32, false) => {
            map!(f32 => f32, |a, b| if b < a || a.is_nan() { b } else { a })
        }
        (DType::F32, true) => {
            map!(f32 => f32, |a, b| if b > a || a.is_nan() { b } else { a })
        }
        (DType::F64, false) => {
            map!(f64 => f64, |a, b| if b < a || a.is_nan() { b } else { a })
        }
        (DType::F64, true) => {
            map!(f64 => f64, |a, b| if b > a || a.is_nan() { b } else { a })
        }
        (_, false) => binary::kernel(Binary::Minimum, dtype),
        (_, true) => binary::kernel(Binary::Maximum, dtype),
    }
}

/// Shifts by an amount modulo the width: the arguments are amount, value, value.
fn shift(is_left: bool, dtype: DType) -> ElementwiseKernel {
    match (dtype, dtype.size(), is_left) {
        (_, 1, true) => map!(u32, u8, |n, x, _other| x.wrapping_shl(n)),
        (_, 2, true) => map!(u32, u16, |n, x, _other| x.wrapping_shl(n)),
        (_, 4, true) => map!(u32, u32, |n, x, _other| x.wrapping_shl(n)),
        (_, _, true) => map!(u32, u64, |n, x, _other| x.wrapping_shl(n)),
        (DType::I8, ..) => map!(u32, i8, |n, x, _other| x.wrapping_shr(n)),
        (DType::I16, ..) => map!(u32, i16, |n, x, _other| x.wrapping_shr(n)),
        (DType::I32, ..) => map!(u32, i32, |n, x, _other| x.wrapping_shr(n)),
        (DType::I64, ..) => map!(u32, i64, |n, x, _other| x.wrapping_shr(n)),
        (_, 1, _) => map!(u32, u8, |n, x, _other| x.wrapping_shr(n)),
        (_, 2, _) => map!(u32, u16, |n, x, _other| x.wrapping_shr(n)),
        (_, 4, _) => map!(u32, u32, |n, x, _other| x.wrapping_shr(n)),
        _ => map!(u32, u64, |n, x, _other| x.wrapping_shr(n)),
    }
}

const fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// The tensor function of a condition.
pub(super) const fn comparison(condition: Condition) -> Binary {
    match condition {
        Condition::Eq => Binary::Eq,
        Condition::Ne => Binary::Ne,
        Condition::Lt | Condition::Ltu => Binary::Lt,
        Condition::Le | Condition::Leu => Binary::Le,
        Condition::Gt | Condition::Gtu => Binary::Gt,
        Condition::Ge | Condition::Geu => Binary::Ge,
    }
}

/// The tensor function of an instruction on floats, with its type, result and argument.
pub(super) fn elementary(instruction: &Instruction) -> Option<(Unary, DType, Register, Register)> {
    use Instruction as I;
    let (function, &dtype, &dst, &src) = match instruction {
        I::Exp { dtype, dst, src } => (Unary::Exp, dtype, dst, src),
        I::Log { dtype, dst, src } => (Unary::Log, dtype, dst, src),
        I::Log2 { dtype, dst, src } => (Unary::Log2, dtype, dst, src),
        I::Log10 { dtype, dst, src } => (Unary::Log10, dtype, dst, src),
        I::Sqrt { dtype, dst, src } => (Unary::Sqrt, dtype, dst, src),
        I::Rsqrt { dtype, dst, src } => (Unary::Rsqrt, dtype, dst, src),
        I::Sin { dtype, dst, src } => (Unary::Sin, dtype, dst, src),
        I::Cos { dtype, dst, src } => (Unary::Cos, dtype, dst, src),
        I::Tan { dtype, dst, src } => (Unary::Tan, dtype, dst, src),
        I::Tanh { dtype, dst, src } => (Unary::Tanh, dtype, dst, src),
        I::Sigmoid { dtype, dst, src } => (Unary::Sigmoid, dtype, dst, src),
        I::Abs { dtype, dst, src } => (Unary::Abs, dtype, dst, src),
        I::Neg { dtype, dst, src } => (Unary::Neg, dtype, dst, src),
        I::Not { dtype, dst, src } => (Unary::BitwiseNot, dtype, dst, src),
        _ => return None,
    };
    Some((function, dtype, dst, src))
}

/// A function of two values that does not fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairFunction {
    /// A function of tensors.
    Tensor(Binary),
    /// Minimum or maximum, which differ from those of tensors for NaN.
    Extremum { is_max: bool },
}

impl PairFunction {
    fn kernel(self, dtype: DType) -> ElementwiseKernel {
        match self {
            Self::Tensor(function) => binary::kernel(function, dtype),
            Self::Extremum { is_max } => extremum(is_max, dtype),
        }
    }

    const MIN: Self = Self::Extremum { is_max: false };
    const MAX: Self = Self::Extremum { is_max: true };
}

/// The function of an instruction on two values, with its type, result and arguments; `None` for integer division.
pub(super) fn pair(
    instruction: &Instruction,
) -> Option<(PairFunction, DType, Register, [Register; 2])> {
    use Instruction as I;
    use PairFunction::Tensor;
    let (function, &dtype, &dst, src) = match instruction {
        I::Add {
            dtype,
            dst,
            src1,
            src2,
        } => (Tensor(Binary::Add), dtype, dst, [src1, src2]),
        I::Sub {
            dtype,
            dst,
            src1,
            src2,
        } => (Tensor(Binary::Sub), dtype, dst, [src1, src2]),
        I::Mul {
            dtype,
            dst,
            src1,
            src2,
        } => (Tensor(Binary::Mul), dtype, dst, [src1, src2]),
        I::Div {
            dtype,
            dst,
            src1,
            src2,
        } if dtype.is_float() => (Tensor(Binary::Div), dtype, dst, [src1, src2]),
        I::Min {
            dtype,
            dst,
            src1,
            src2,
        } => (PairFunction::MIN, dtype, dst, [src1, src2]),
        I::Max {
            dtype,
            dst,
            src1,
            src2,
        } => (PairFunction::MAX, dtype, dst, [src1, src2]),
        I::And {
            dtype,
            dst,
            src1,
            src2,
        } => (Tensor(Binary::BitwiseAnd), dtype, dst, [src1, src2]),
        I::Or {
            dtype,
            dst,
            src1,
            src2,
        } => (Tensor(Binary::BitwiseOr), dtype, dst, [src1, src2]),
        I::Xor {
            dtype,
            dst,
            src1,
            src2,
        } => (Tensor(Binary::BitwiseXor), dtype, dst, [src1, src2]),
        I::Pow {
            dtype,
            dst,
            src1,
            src2,
        } => (Tensor(Binary::Pow), dtype, dst, [src1, src2]),
        _ => return None,
    };
    Some((function, dtype, dst, src.map(|r| *r)))
}

/// The function that a reduction over registers repeats, with its type, result and registers.
pub(super) fn reduction(
    instruction: &Instruction,
) -> Option<(PairFunction, DType, Register, crate::program::RegisterSpan)> {
    use Instruction as I;
    use PairFunction::Tensor;
    let (function, &dtype, &dst, &src) = match instruction {
        I::ReduceAdd { dtype, dst, src } => (Tensor(Binary::Add), dtype, dst, src),
        I::ReduceMul { dtype, dst, src } => (Tensor(Binary::Mul), dtype, dst, src),
        I::ReduceMin { dtype, dst, src } => (PairFunction::MIN, dtype, dst, src),
        I::ReduceMax { dtype, dst, src } => (PairFunction::MAX, dtype, dst, src),
        _ => return None,
    };
    Some((function, dtype, dst, src))
}

impl Lowering {
    fn column(&mut self, contents: Contents, size: usize) -> Argument {
        let size = size as u8;
        let sizes = &mut self.operations.sizes;
        let column = *self
            .operations
            .ids
            .entry((contents, size))
            .or_insert_with(|| {
                sizes.push(size);
                (sizes.len() - 1) as ColumnId
            });
        Argument { column, size }
    }

    fn register(&mut self, register: Register, dtype: DType) -> Argument {
        self.column(Contents::Register(register), dtype.size())
    }

    fn predicate(&mut self, predicate: Predicate) -> Argument {
        self.column(Contents::Predicate(predicate), 1)
    }

    fn temporary(&mut self, number: u8, dtype: DType) -> Argument {
        self.column(Contents::Temporary(number), dtype.size())
    }

    fn push(&mut self, operation: Operation) {
        self.operations.all.push(operation);
    }

    fn call(&mut self, kernel: ElementwiseKernel, arguments: &[Argument], to: Argument) {
        let mut args = [Argument::default(); 3];
        args[..arguments.len()].copy_from_slice(arguments);
        let is_temporary =
            self.operations.ids.iter().any(|(key, column)| {
                *column == to.column && matches!(key.0, Contents::Temporary(_))
            });
        self.push(Operation::Call(KernelCall {
            kernel,
            args,
            to,
            is_temporary,
        }));
    }

    /// Calls a kernel on values of a type, through `f32` for half precision; the result is of the same type.
    fn apply(
        &mut self,
        kernel: impl Fn(DType) -> ElementwiseKernel,
        dtype: DType,
        args: &[Argument],
        to: Argument,
    ) {
        if !is_half(dtype) {
            self.call(kernel(dtype), args, to);
            return;
        }
        let wide = self.widened(dtype, args);
        let result = self.temporary(3, DType::F32);
        self.call(kernel(DType::F32), &wide[..args.len()], result);
        self.call(cast::narrow(dtype), &[result], to);
    }

    fn widened(&mut self, dtype: DType, args: &[Argument]) -> [Argument; 3] {
        let mut wide = [Argument::default(); 3];
        for (i, &arg) in args.iter().enumerate() {
            wide[i] = self.temporary(i as u8, DType::F32);
            self.call(cast::widen(dtype), &[arg], wide[i]);
        }
        wide
    }

    fn convert(&mut self, from: DType, to: DType, source: Argument, target: Argument) {
        if from == to {
            return self.call(cast::copy, &[source], target);
        }
        let (mut source, mut from) = (source, from);
        if is_half(from) {
            [source, ..] = self.widened(from, &[source]);
            from = DType::F32;
        }
        if !is_half(to) {
            return self.call(cast::kernel(from, to), &[source], target);
        }
        if from != DType::F32 {
            // A double is rounded once; an integer is converted to `f32` first.
            let kernel = match from {
                DType::F64 => cast::narrowing(from),
                _ => cast::kernel(from, DType::F32),
            };
            let wide = self.temporary(3, DType::F32);
            self.call(kernel, &[source], wide);
            source = wide;
        }
        self.call(cast::narrow(to), &[source], target);
    }

    fn reduce(&mut self, instruction: &Instruction) -> Option<()> {
        let (function, dtype, dst, src) = reduction(instruction)?;
        let all: Vec<_> = src.registers().collect();
        let (first, rest) = all.split_first()?;
        let mut sum = self.register(*first, dtype);
        for (i, register) in rest.iter().enumerate() {
            let next = self.register(*register, dtype);
            // The result may be one of the registers, so only the last step writes it.
            let to = if i + 1 == rest.len() {
                self.register(dst, dtype)
            } else {
                self.temporary(4, dtype)
            };
            self.apply(|d| function.kernel(d), dtype, &[sum, next], to);
            sum = to;
        }
        if rest.is_empty() {
            let to = self.register(dst, dtype);
            self.call(cast::copy, &[sum], to);
        }
        Some(())
    }

    fn handle(&mut self, register: Register) -> HandleSource {
        if let Some(bits) = self.writers.constant(register, 8) {
            return HandleSource::Constant(bits);
        }
        let is_position = register == Register::GLOBAL_LANE_ID;
        if self.writers.count(register, 8) == 0 && !is_position {
            return HandleSource::Initial(register);
        }
        HandleSource::Column(self.register(register, DType::U64).column)
    }

    fn offset(&mut self, register: Register) -> OffsetSource {
        match self.writers.constant(register, 8) {
            Some(bits) => OffsetSource::Constant(bits),
            None => OffsetSource::Column(self.register(register, DType::U64).column),
        }
    }

    fn address(&mut self, address: Address) -> (HandleSource, OffsetSource) {
        match address {
            Address::BufferOffset { handle, offset } => (
                HandleSource::Constant(handle),
                OffsetSource::Constant(offset),
            ),
            Address::BufferRegister { handle, offset } => {
                (HandleSource::Constant(handle), self.offset(offset))
            }
            Address::PhiCoordinate { class, page, byte } => {
                // The program was validated.
                let offset = atlas::boundary_offset(class, page, byte).unwrap_or(u64::MAX);
                (HandleSource::Constant(0), OffsetSource::Constant(offset))
            }
            Address::RegisterIndirect { base, offset } => (
                self.handle(base),
                OffsetSource::Constant(i64::from(offset).cast_unsigned()),
            ),
            Address::RegisterIndirectComputed {
                handle_reg,
                offset_reg,
            } => (self.handle(handle_reg), self.offset(offset_reg)),
        }
    }

    fn access(&mut self, instruction: &Instruction) -> Option<()> {
        use Instruction as I;
        use MemorySpace::{Buffer, Pool, Shared};
        let (space, &dtype, address, register, is_store) = match instruction {
            I::Ldg {
                dtype,
                dst,
                address,
            } => (Buffer, dtype, Some(*address), *dst, false),
            I::Stg {
                dtype,
                address,
                src,
            } => (Buffer, dtype, Some(*address), *src, true),
            I::Lds {
                dtype,
                dst,
                address,
            } => (Shared, dtype, Some(*address), *dst, false),
            I::Sts {
                dtype,
                address,
                src,
            } => (Shared, dtype, Some(*address), *src, true),
            I::PoolLoad { dtype, dst, .. } => (Pool, dtype, None, *dst, false),
            I::PoolStore { dtype, src, .. } => (Pool, dtype, None, *src, true),
            _ => return None,
        };
        let (handle, offset) = match (address, instruction) {
            (Some(address), _) => self.address(address),
            (None, I::PoolLoad { pool, offset, .. } | I::PoolStore { pool, offset, .. }) => {
                (self.handle(*pool), self.offset(*offset))
            }
            _ => return None,
        };
        let column = self.register(register, dtype).column;
        self.push(Operation::Access(MemoryAccess {
            space,
            dtype,
            handle,
            offset,
            is_store,
            column,
        }));
        Some(())
    }

    /// Lowers an instruction, except its effect on the flow of control.
    fn lower(&mut self, instruction: &Instruction) {
        use Instruction as I;
        if let Some((function, dtype, dst, src)) = elementary(instruction) {
            let (src, dst) = (self.register(src, dtype), self.register(dst, dtype));
            self.apply(|d| unary::kernel(function, d), dtype, &[src], dst);
            return;
        }
        if let Some((function, dtype, dst, src)) = pair(instruction) {
            let args = src.map(|r| self.register(r, dtype));
            let dst = self.register(dst, dtype);
            self.apply(|d| function.kernel(d), dtype, &args, dst);
            return;
        }
        if self
            .reduce(instruction)
            .or_else(|| self.access(instruction))
            .is_some()
        {
            return;
        }
        match *instruction {
            I::Mov { dtype, dst, src } => {
                let (src, dst) = (self.register(src, dtype), self.register(dst, dtype));
                if src.column != dst.column {
                    self.call(cast::copy, &[src], dst);
                }
            }
            I::MovImm { dtype, dst, value } => {
                let to = self.register(dst, dtype);
                if self.writers.constant(dst, to.size).is_none() {
                    self.push(Operation::Fill { to, bits: value });
                }
            }
            I::Cvt {
                dtype,
                dst_type,
                dst,
                src,
            } => {
                let (src, dst) = (self.register(src, dtype), self.register(dst, dst_type));
                self.convert(dtype, dst_type, src, dst);
            }
            I::Div {
                dtype,
                dst,
                src1,
                src2,
            } => {
                let args = [src1, src2].map(|r| self.register(r, dtype).column);
                let to = self.register(dst, dtype).column;
                self.push(Operation::Divide { dtype, args, to });
            }
            I::Mad {
                dtype,
                dst,
                a,
                b,
                c,
            } => {
                let [a, b, c] = [a, b, c].map(|r| self.register(r, dtype));
                let product = self.temporary(4, dtype);
                self.apply(|d| binary::kernel(Binary::Mul, d), dtype, &[a, b], product);
                let dst = self.register(dst, dtype);
                self.apply(
                    |d| binary::kernel(Binary::Add, d),
                    dtype,
                    &[product, c],
                    dst,
                );
            }
            I::Fma {
                dtype,
                dst,
                a,
                b,
                c,
            } => {
                let args = [a, b, c].map(|r| self.register(r, dtype));
                let dst = self.register(dst, dtype);
                self.apply(|d| ternary::kernel(Ternary::MulAdd, d), dtype, &args, dst);
            }
            I::Shl {
                dtype,
                dst,
                src,
                amount,
            }
            | I::Shr {
                dtype,
                dst,
                src,
                amount,
            } => {
                let is_left = matches!(instruction, I::Shl { .. });
                let amount = self.register(amount, DType::U32);
                let (src, dst) = (self.register(src, dtype), self.register(dst, dtype));
                self.call(shift(is_left, dtype), &[amount, src, src], dst);
            }
            I::SetCc {
                dtype,
                cond,
                dst,
                src1,
                src2,
            } => {
                let mut args = [src1, src2].map(|r| self.register(r, dtype));
                let dst = self.predicate(dst);
                let mut dtype = dtype;
                if is_half(dtype) {
                    let [a, b, _] = self.widened(dtype, &args);
                    (args, dtype) = ([a, b], DType::F32);
                }
                self.call(binary::kernel(comparison(cond), dtype), &args, dst);
            }
            I::Sel {
                dtype,
                dst,
                pred,
                src_true,
                src_false,
            } => {
                let pred = self.predicate(pred);
                let [yes, no] = [src_true, src_false].map(|r| self.register(r, dtype));
                let dst = self.register(dst, dtype);
                self.call(
                    ternary::kernel(Ternary::Select, dtype),
                    &[pred, yes, no],
                    dst,
                );
            }
            I::ClsGet { dst } => {
                let to = self.register(dst, DType::U8).column;
                self.push(Operation::Class { to });
            }
            I::UnityTest { dst, .. } => {
                let to = self.predicate(dst).column;
                self.push(Operation::IsUnity { to });
            }
            I::Mirror { dst, src } => {
                self.faulting(FaultingFunction::Mirror, &[src], (dst, DType::U8))
            }
            I::NbrCount { dst, class } => {
                self.faulting(FaultingFunction::Degree, &[class], (dst, DType::U32));
            }
            I::NbrGet { dst, class, index } => {
                self.faulting(
                    FaultingFunction::Neighbour(index),
                    &[class],
                    (dst, DType::U8),
                );
            }
            I::BoundMap {
                dst,
                class,
                page,
                byte,
            } => self.faulting(
                FaultingFunction::BoundaryOffset,
                &[class, page, byte],
                (dst, DType::U64),
            ),
            I::ResAccum { class, value } => {
                let class = self.register(class, DType::U8).column;
                let value = self.register(value, DType::F64).column;
                self.push(Operation::Accumulate { class, value });
            }
            I::PhaseGet { dst } => {
                let to = self.register(dst, DType::U32).column;
                self.push(Operation::PhaseGet { to });
            }
            I::PhaseAdv { delta } => self.push(Operation::PhaseAdvance { delta }),
            // Flow of control, and instructions that run once: their registers need columns.
            _ => instruction.for_each_operand(|_, operand| match operand {
                Operand::Read(register, dtype)
                | Operand::Write(register, dtype)
                | Operand::Update(register, dtype) => {
                    self.register(register, dtype);
                }
                Operand::Guard(Some(predicate)) => {
                    self.predicate(predicate);
                }
                _ => {}
            }),
        }
    }

    /// A function of `u8` registers.
    fn faulting(&mut self, function: FaultingFunction, src: &[Register], dst: (Register, DType)) {
        let mut args = [Argument::default(); 3];
        for (arg, &register) in args.iter_mut().zip(src) {
            *arg = self.register(register, DType::U8);
        }
        let to = self.register(dst.0, dst.1);
        self.push(Operation::Faulting { function, args, to });
    }
}
