//! Programs that are fused ops.
//!
//! A trace follows the program for a range of lanes at once: what depends on the lane's position only is kept as a linear
//! function of it, and everything else as a step of a fused op. A comparison of positions that does not hold for all lanes
//! of the range splits it, so a bound check costs nothing. If all loads and stores are at linear offsets inside their buffers,
//! a store of consecutive elements is the result of a fused op whose inputs are the loads. Anything else is left to the
//! groups of lanes.

mod fuse;
mod linear;

use self::fuse::passes;
use self::linear::{Comparison, LaneRange, Linear};
use super::lowering::{PairFunction, comparison, elementary, pair, reduction};
use crate::DType;
use crate::cpu::fused;
use crate::ops::binary::Binary;
use crate::ops::fused::Action;
use crate::ops::ternary::Ternary;
use crate::ops::unary::Unary;
use crate::program::value::{self, BinaryFunction, UnaryFunction, Value};
use crate::program::{
    Address, BufferBytes, Condition, ExecutionParams, Instruction, MemoryView, Predicate, Program,
    Register, atlas,
};

/// Maximum number of instructions of a trace.
const MAX_TRACE_LEN: u64 = 4096;

/// Maximum number of steps of a fused op.
const MAX_TRACE_STEPS: usize = 256;

/// Maximum number of ranges of lanes with different traces.
const MAX_RANGES: usize = 8;

/// Runs a program as fused ops. Returns `false` if that is impossible; then it has done nothing.
pub(super) fn run(
    program: &Program,
    params: &ExecutionParams,
    step_limit: u64,
    view: &mut MemoryView<'_>,
) -> bool {
    let config = &params.launch_config;
    let Some(all) = LaneRange::of(config) else {
        return true;
    };
    let mut ranges = vec![all];
    let mut stores = Vec::new();
    let mut count = 1;
    while let Some(range) = ranges.pop() {
        let trace = Trace::new(program, params, range, step_limit);
        match trace.follow() {
            Ok(trace) => match passes(&trace, view) {
                Some(passes) => stores.extend(passes),
                None => return false,
            },
            Err(Stop::Split(first)) if count < MAX_RANGES => {
                count += 1;
                let (low, high) = range.split(first);
                ranges.extend([high, low]);
            }
            Err(_) => return false,
        }
    }
    for pass in stores {
        pass.run(view);
    }
    true
}

/// Why a trace ends early.
enum Stop {
    /// The lanes from this one on run other instructions.
    Split(u64),
    /// The program is no fused op.
    Unsupported,
}

type Traced<T> = Result<T, Stop>;

/// What a register holds on every lane of the range.
#[derive(Clone, Copy, Debug)]
enum Symbol {
    /// The same value.
    Known(Value),
    /// An integer that is a linear function of the position. It is in the range of the type.
    Linear(Linear),
    /// The result of a node.
    Data(usize),
}

/// What a predicate holds on every lane of the range.
#[derive(Clone, Copy, Debug)]
enum Truth {
    Known(bool),
    Data(usize),
}

/// A value that is computed for each lane.
#[derive(Clone, Debug, PartialEq)]
enum TraceNode {
    Load(TraceAccess),
    Constant(Value),
    Step {
        action: Action,
        args: Vec<usize>,
        dtype: DType,
    },
}

/// A load or store.
#[derive(Clone, Copy, Debug, PartialEq)]
struct TraceAccess {
    handle: u64,
    /// Offset in bytes.
    offset: Linear,
    dtype: DType,
}

/// Follows a program for a range of lanes.
struct Trace<'p> {
    program: &'p Program,
    range: LaneRange,
    steps_left: u64,
    registers: Vec<Option<Symbol>>,
    predicates: [Option<Truth>; Predicate::COUNT],
    nodes: Vec<TraceNode>,
    stores: Vec<(TraceAccess, usize)>,
}

impl<'p> Trace<'p> {
    fn new(
        program: &'p Program,
        params: &ExecutionParams,
        range: LaneRange,
        step_limit: u64,
    ) -> Self {
        let mut registers = vec![None; 256];
        for (register, value) in &params.initial_registers {
            registers[usize::from(register.0)] = Some(Symbol::Known(Value::u64(*value)));
        }
        let mut set = |register: Register, symbol| registers[usize::from(register.0)] = symbol;
        set(
            Register::BLOCK_DIM_X,
            Some(Symbol::Known(Value::u32(params.launch_config.block.x))),
        );
        set(
            Register::GLOBAL_LANE_ID,
            Some(Symbol::Linear(range.global())),
        );
        let axis = |linear: Option<Linear>| linear.map(Symbol::Linear);
        set(Register::LANE_IDX_X, axis(range.lane_x()));
        set(Register::BLOCK_IDX_X, axis(range.block_x()));
        Self {
            program,
            range,
            steps_left: MAX_TRACE_LEN.min(step_limit),
            registers,
            predicates: [None; Predicate::COUNT],
            nodes: Vec::new(),
            stores: Vec::new(),
        }
    }

    fn follow(mut self) -> Traced<Self> {
        let mut next = 0;
        let mut calls = Vec::new();
        while let Some(instruction) = self.program.instructions.get(next) {
            self.steps_left = self.steps_left.checked_sub(1).ok_or(Stop::Unsupported)?;
            let label = instruction.label();
            let target = label.and_then(|label| self.program.resolve_label(label));
            let target = target.ok_or(Stop::Unsupported);
            next = match *instruction {
                Instruction::Exit {} => return Ok(self),
                Instruction::Bra { pred: None, .. } => target?,
                Instruction::Bra {
                    pred: Some(pred), ..
                } => match self.predicates[usize::from(pred.0)] {
                    Some(Truth::Known(true)) => target?,
                    Some(Truth::Known(false)) => next + 1,
                    _ => return Err(Stop::Unsupported),
                },
                Instruction::Loop { count, .. } => {
                    let Symbol::Known(counter) = self.read(count)? else {
                        return Err(Stop::Unsupported);
                    };
                    match (counter.bits() as u32).checked_sub(1) {
                        Some(left) => {
                            self.write(count, Symbol::Known(Value::u32(left)));
                            target?
                        }
                        None => next + 1,
                    }
                }
                Instruction::Call { .. } if calls.len() < 256 => {
                    calls.push(next + 1);
                    target?
                }
                Instruction::Ret {} => calls.pop().ok_or(Stop::Unsupported)?,
                _ => {
                    self.instruction(instruction)?;
                    next + 1
                }
            };
        }
        Ok(self)
    }

    fn read(&self, register: Register) -> Traced<Symbol> {
        self.registers[usize::from(register.0)].ok_or(Stop::Unsupported)
    }

    fn write(&mut self, register: Register, symbol: Symbol) {
        self.registers[usize::from(register.0)] = Some(symbol);
    }

    /// The integer that a register holds, as a function of the position.
    fn linear(&self, symbol: Symbol) -> Option<Linear> {
        match symbol {
            Symbol::Known(value) => value.to_i128().map(Linear::constant),
            Symbol::Linear(linear) => Some(linear),
            Symbol::Data(_) => None,
        }
    }

    /// An integer of a type, if it is in its range for every lane.
    fn integer(&self, linear: Linear, dtype: DType) -> Traced<Symbol> {
        let (low, high) = self.range.bounds(linear).ok_or(Stop::Unsupported)?;
        let bits = 8 * dtype.size() as u32;
        let (min, max) = if dtype.is_unsigned() {
            (0, (1_i128 << bits) - 1)
        } else {
            (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1)
        };
        if low < min || high > max {
            return Err(Stop::Unsupported);
        }
        Ok(match linear.as_constant() {
            Some(value) => Symbol::Known(Value::from_bits(dtype, value as u64)),
            None => Symbol::Linear(linear),
        })
    }

    fn node(&mut self, node: TraceNode) -> Traced<usize> {
        if self.nodes.len() == MAX_TRACE_STEPS {
            return Err(Stop::Unsupported);
        }
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    /// The node of a symbol.
    fn data(&mut self, symbol: Symbol) -> Traced<usize> {
        match symbol {
            Symbol::Data(node) => Ok(node),
            Symbol::Known(value) => self.node(TraceNode::Constant(value)),
            Symbol::Linear(..) => Err(Stop::Unsupported),
        }
    }

    fn step(&mut self, action: Action, args: &[Symbol], dtype: DType) -> Traced<usize> {
        let args = args
            .iter()
            .map(|&symbol| self.data(symbol))
            .collect::<Traced<_>>()?;
        self.node(TraceNode::Step {
            action,
            args,
            dtype,
        })
    }

    fn binary(
        &mut self,
        function: PairFunction,
        dtype: DType,
        [a, b]: [Symbol; 2],
    ) -> Traced<Symbol> {
        if let (Symbol::Known(x), Symbol::Known(y), Some(function)) = (a, b, constant_of(function))
        {
            let result = value::binary(function, x, y).map_err(|_| Stop::Unsupported)?;
            return Ok(Symbol::Known(result));
        }
        if let (Some(x), Some(y)) = (self.linear(a), self.linear(b)) {
            let linear = match function {
                PairFunction::Tensor(Binary::Add) => x.add(y),
                PairFunction::Tensor(Binary::Sub) => x.sub(y),
                PairFunction::Tensor(Binary::Mul) => x.mul(y),
                _ => None,
            };
            return self.integer(linear.ok_or(Stop::Unsupported)?, dtype);
        }
        let node = match function {
            PairFunction::Tensor(function) => {
                self.step(Action::Binary(function), &[a, b], dtype)?
            }
            PairFunction::Extremum { is_max } if dtype.is_int() => {
                let function = if is_max {
                    Binary::Maximum
                } else {
                    Binary::Minimum
                };
                self.step(Action::Binary(function), &[a, b], dtype)?
            }
            PairFunction::Extremum { is_max } => {
                // The second if it is beyond the first, or the first is NaN.
                let [a, b] = [Symbol::Data(self.data(a)?), Symbol::Data(self.data(b)?)];
                let compare = Action::Binary(if is_max { Binary::Gt } else { Binary::Lt });
                let is_beyond = self.step(compare, &[b, a], DType::Bool)?;
                let is_nan = self.step(Action::Unary(Unary::IsNan), &[a], DType::Bool)?;
                let either = self.step(
                    Action::Binary(Binary::LogicalOr),
                    &[Symbol::Data(is_beyond), Symbol::Data(is_nan)],
                    DType::Bool,
                )?;
                let select = Action::Ternary(Ternary::Select);
                self.step(select, &[Symbol::Data(either), b, a], dtype)?
            }
        };
        Ok(Symbol::Data(node))
    }

    fn compare(&mut self, condition: Condition, [a, b]: [Symbol; 2]) -> Traced<Truth> {
        if let (Symbol::Known(x), Symbol::Known(y)) = (a, b) {
            return Ok(Truth::Known(value::compare(condition, x, y)));
        }
        if let (Some(x), Some(y)) = (self.linear(a), self.linear(b)) {
            let difference = x.sub(y).ok_or(Stop::Unsupported)?;
            return match self.range.compare(difference) {
                Comparison::Same(ordering) => Ok(Truth::Known(match condition {
                    Condition::Eq => ordering.is_eq(),
                    Condition::Ne => ordering.is_ne(),
                    Condition::Lt | Condition::Ltu => ordering.is_lt(),
                    Condition::Le | Condition::Leu => ordering.is_le(),
                    Condition::Gt | Condition::Gtu => ordering.is_gt(),
                    Condition::Ge | Condition::Geu => ordering.is_ge(),
                })),
                Comparison::ChangesAt(first) => Err(Stop::Split(first)),
                Comparison::Unknown => Err(Stop::Unsupported),
            };
        }
        let action = Action::Binary(comparison(condition));
        Ok(Truth::Data(self.step(action, &[a, b], DType::Bool)?))
    }

    fn shift(&mut self, dtype: DType, [x, amount]: [Symbol; 2], is_left: bool) -> Traced<Symbol> {
        let Symbol::Known(amount) = amount else {
            return Err(Stop::Unsupported);
        };
        let amount = amount.bits() as u32;
        if let Symbol::Known(x) = x {
            return Ok(Symbol::Known(value::shift(x, amount, is_left)));
        }
        let amount = amount % (8 * dtype.size() as u32);
        if let Symbol::Linear(linear) = x {
            let factor = Linear::constant(1 << amount);
            let shifted = linear.mul(factor).filter(|_| is_left);
            return self.integer(shifted.ok_or(Stop::Unsupported)?, dtype);
        }
        let amount = Symbol::Known(Value::from_bits(dtype, amount.into()));
        let function = if is_left {
            Binary::ShiftLeft
        } else {
            Binary::ShiftRight
        };
        let node = self.step(Action::Binary(function), &[x, amount], dtype)?;
        Ok(Symbol::Data(node))
    }

    fn convert(&mut self, x: Symbol, from: DType, to: DType) -> Traced<Symbol> {
        match x {
            Symbol::Known(x) => Ok(Symbol::Known(value::convert(x, to))),
            Symbol::Linear(linear) if to.is_int() => self.integer(linear, to),
            Symbol::Data(_) if from == to => Ok(x),
            // Programs round such integers twice, tensors once.
            Symbol::Data(_) if to == DType::BF16 && from.is_int() && from.size() > 2 => {
                Err(Stop::Unsupported)
            }
            _ => Ok(Symbol::Data(self.step(Action::Cast, &[x], to)?)),
        }
    }

    fn access(&self, address: Address, dtype: DType) -> Traced<TraceAccess> {
        let known = |register| match self.read(register)? {
            Symbol::Known(value) => Ok(value.bits()),
            _ => Err(Stop::Unsupported),
        };
        let offset = |register| self.linear(self.read(register)?).ok_or(Stop::Unsupported);
        let (handle, offset) = match address {
            Address::BufferOffset { handle, offset } => (handle, Linear::constant(offset.into())),
            Address::BufferRegister { handle, offset: o } => (handle, offset(o)?),
            Address::PhiCoordinate { class, page, byte } => {
                let start = atlas::boundary_offset(class, page, byte);
                let start = start.map_err(|_| Stop::Unsupported)?;
                (0, Linear::constant(start.into()))
            }
            Address::RegisterIndirect { base, offset } => {
                (known(base)?, Linear::constant(offset.into()))
            }
            Address::RegisterIndirectComputed {
                handle_reg,
                offset_reg,
            } => (known(handle_reg)?, offset(offset_reg)?),
        };
        Ok(TraceAccess {
            handle,
            offset,
            dtype,
        })
    }

    fn load(&mut self, access: TraceAccess) -> Traced<Symbol> {
        // What a lane has stored to the buffer is not there yet when the fused op reads it.
        if self.stores.iter().any(|(s, _)| s.handle == access.handle) {
            return Err(Stop::Unsupported);
        }
        let load = TraceNode::Load(access);
        let known = self.nodes.iter().position(|node| *node == load);
        Ok(Symbol::Data(match known {
            Some(node) => node,
            None => self.node(load)?,
        }))
    }

    fn instruction(&mut self, instruction: &Instruction) -> Traced<()> {
        use Instruction as I;
        if let Some((function, dtype, dst, src)) = elementary(instruction) {
            let x = self.read(src)?;
            let symbol = match (x, negation_of(function)) {
                (Symbol::Known(x), Some(function)) => Symbol::Known(value::unary(function, x)),
                _ => Symbol::Data(self.step(Action::Unary(function), &[x], dtype)?),
            };
            self.write(dst, symbol);
            return Ok(());
        }
        if let Some((function, dtype, dst, src)) = pair(instruction) {
            let args = [self.read(src[0])?, self.read(src[1])?];
            let symbol = self.binary(function, dtype, args)?;
            self.write(dst, symbol);
            return Ok(());
        }
        if let Some((function, dtype, dst, src)) = reduction(instruction) {
            let mut registers = src.registers();
            let mut sum = self.read(registers.next().ok_or(Stop::Unsupported)?)?;
            for register in registers {
                let next = self.read(register)?;
                sum = self.binary(function, dtype, [sum, next])?;
            }
            self.write(dst, sum);
            return Ok(());
        }
        match *instruction {
            I::Ldg {
                dtype,
                dst,
                address,
            } => {
                let access = self.access(address, dtype)?;
                let symbol = self.load(access)?;
                self.write(dst, symbol);
            }
            I::Stg {
                dtype,
                address,
                src,
            } => {
                let access = self.access(address, dtype)?;
                let symbol = self.read(src)?;
                let node = self.data(symbol)?;
                self.stores.push((access, node));
            }
            I::Mov { dst, src, .. } => {
                let symbol = self.read(src)?;
                self.write(dst, symbol);
            }
            I::MovImm { dtype, dst, value } => {
                self.write(dst, Symbol::Known(Value::from_bits(dtype, value)));
            }
            I::Cvt {
                dtype,
                dst_type,
                dst,
                src,
            } => {
                let x = self.read(src)?;
                let symbol = self.convert(x, dtype, dst_type)?;
                self.write(dst, symbol);
            }
            I::Div {
                dtype,
                dst,
                src1,
                src2,
            } => {
                // Integers, which may fault.
                let _ = dtype;
                let (Symbol::Known(x), Symbol::Known(y)) = (self.read(src1)?, self.read(src2)?)
                else {
                    return Err(Stop::Unsupported);
                };
                let quotient = value::binary(BinaryFunction::Div, x, y);
                let quotient = quotient.map_err(|_| Stop::Unsupported)?;
                self.write(dst, Symbol::Known(quotient));
            }
            I::Mad {
                dtype,
                dst,
                a,
                b,
                c,
            } => {
                let [a, b, c] = [self.read(a)?, self.read(b)?, self.read(c)?];
                let product = self.binary(PairFunction::Tensor(Binary::Mul), dtype, [a, b])?;
                let sum = self.binary(PairFunction::Tensor(Binary::Add), dtype, [product, c])?;
                self.write(dst, sum);
            }
            I::Fma {
                dtype,
                dst,
                a,
                b,
                c,
            } => {
                let args = [self.read(a)?, self.read(b)?, self.read(c)?];
                let node = self.step(Action::Ternary(Ternary::MulAdd), &args, dtype)?;
                self.write(dst, Symbol::Data(node));
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
                let args = [self.read(src)?, self.read(amount)?];
                let symbol = self.shift(dtype, args, is_left)?;
                self.write(dst, symbol);
            }
            I::SetCc {
                cond,
                dst,
                src1,
                src2,
                ..
            } => {
                let args = [self.read(src1)?, self.read(src2)?];
                self.predicates[usize::from(dst.0)] = Some(self.compare(cond, args)?);
            }
            I::Sel {
                dtype,
                dst,
                pred,
                src_true,
                src_false,
            } => {
                let (yes, no) = (self.read(src_true)?, self.read(src_false)?);
                let symbol = match self.predicates[usize::from(pred.0)] {
                    Some(Truth::Known(true)) => yes,
                    Some(Truth::Known(false)) => no,
                    Some(Truth::Data(condition)) => {
                        let args = [Symbol::Data(condition), yes, no];
                        Symbol::Data(self.step(Action::Ternary(Ternary::Select), &args, dtype)?)
                    }
                    None => return Err(Stop::Unsupported),
                };
                self.write(dst, symbol);
            }
            // Lanes share nothing but buffers, which fused ops write once.
            I::MemFence { .. } => {}
            _ => return Err(Stop::Unsupported),
        }
        Ok(())
    }
}

/// The function on values that a step on constants is.
const fn constant_of(function: PairFunction) -> Option<BinaryFunction> {
    Some(match function {
        PairFunction::Extremum { is_max: false } => BinaryFunction::Min,
        PairFunction::Extremum { is_max: true } => BinaryFunction::Max,
        PairFunction::Tensor(function) => match function {
            Binary::Add => BinaryFunction::Add,
            Binary::Sub => BinaryFunction::Sub,
            Binary::Mul => BinaryFunction::Mul,
            Binary::BitwiseAnd => BinaryFunction::And,
            Binary::BitwiseOr => BinaryFunction::Or,
            Binary::BitwiseXor => BinaryFunction::Xor,
            _ => return None,
        },
    })
}

/// The exact functions of one constant.
const fn negation_of(function: Unary) -> Option<UnaryFunction> {
    Some(match function {
        Unary::Abs => UnaryFunction::Abs,
        Unary::Neg => UnaryFunction::Neg,
        Unary::BitwiseNot => UnaryFunction::Not,
        _ => return None,
    })
}
