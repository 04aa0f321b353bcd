//! One instruction of one lane.

use super::{Lane, Launch, MAX_CALLS, Status};
use crate::DType;
use crate::program::atlas::{self, Resonance};
use crate::program::error::FaultKind;
use crate::program::instruction::Instruction;
use crate::program::operand::{Address, Predicate, Register, RegisterSpan};
use crate::program::value::{self, BinaryFunction, UnaryFunction, Value};

/// Where a lane continues after an instruction.
pub(super) enum Step {
    Next,
    Jump(usize),
    Wait(Status),
    End,
}

/// A lane that runs an instruction.
pub(super) struct Context<'c, 'l> {
    pub(super) launch: &'c mut Launch<'l>,
    pub(super) lane: &'c mut Lane,
    pub(super) shared: &'c mut [u8],
    pub(super) resonance: &'c mut Resonance,
    pub(super) class: u8,
}

impl Context<'_, '_> {
    fn read(&self, register: Register, dtype: DType) -> Result<Value, FaultKind> {
        self.launch.interpreter.read(self.lane, register, dtype)
    }

    fn write(&mut self, register: Register, value: Value) -> Result<Step, FaultKind> {
        self.launch.interpreter.write(self.lane, register, value);
        Ok(Step::Next)
    }

    fn read_u8(&self, register: Register) -> Result<u8, FaultKind> {
        Ok(self.read(register, DType::U8)?.bits() as u8)
    }

    fn read_u64(&self, register: Register) -> Result<u64, FaultKind> {
        Ok(self.read(register, DType::U64)?.bits())
    }

    fn test(&self, predicate: Predicate) -> Result<bool, FaultKind> {
        self.lane.predicates[usize::from(predicate.0)]
            .ok_or(FaultKind::UninitializedPredicate(predicate))
    }

    fn set(&mut self, predicate: Predicate, value: bool) -> Result<Step, FaultKind> {
        self.lane.predicates[usize::from(predicate.0)] = Some(value);
        Ok(Step::Next)
    }

    fn unary(
        &mut self,
        function: UnaryFunction,
        dtype: DType,
        dst: Register,
        src: Register,
    ) -> Result<Step, FaultKind> {
        let x = self.read(src, dtype)?;
        self.write(dst, value::unary(function, x))
    }

    fn binary(
        &mut self,
        function: BinaryFunction,
        dtype: DType,
        dst: Register,
        [src1, src2]: [Register; 2],
    ) -> Result<Step, FaultKind> {
        let (x, y) = (self.read(src1, dtype)?, self.read(src2, dtype)?);
        let result = value::binary(function, x, y)?;
        self.write(dst, result)
    }

    fn multiply_add(
        &mut self,
        dtype: DType,
        dst: Register,
        [a, b, c]: [Register; 3],
        is_fused: bool,
    ) -> Result<Step, FaultKind> {
        let (a, b, c) = (
            self.read(a, dtype)?,
            self.read(b, dtype)?,
            self.read(c, dtype)?,
        );
        self.write(dst, value::multiply_add(a, b, c, is_fused))
    }

    fn shift(
        &mut self,
        dtype: DType,
        dst: Register,
        [src, amount]: [Register; 2],
        is_left: bool,
    ) -> Result<Step, FaultKind> {
        let x = self.read(src, dtype)?;
        let amount = self.read(amount, DType::U32)?.bits() as u32;
        self.write(dst, value::shift(x, amount, is_left))
    }

    fn reduce(
        &mut self,
        function: BinaryFunction,
        dtype: DType,
        dst: Register,
        src: RegisterSpan,
    ) -> Result<Step, FaultKind> {
        let mut result = None;
        for register in src.registers() {
            let value = self.read(register, dtype)?;
            result = Some(match result {
                Some(sum) => value::binary(function, sum, value)?,
                None => value,
            });
        }
        match result {
            Some(result) => self.write(dst, result),
            None => Ok(Step::Next),
        }
    }

    /// Handle and offset of an address.
    fn resolve(&self, address: Address, dtype: DType) -> Result<(u64, u64), FaultKind> {
        let (handle, offset) = match address {
            Address::BufferOffset { handle, offset } => (handle, offset),
            Address::BufferRegister { handle, offset } => (handle, self.read_u64(offset)?),
            Address::PhiCoordinate { class, page, byte } => {
                (0, atlas::boundary_offset(class, page, byte)?)
            }
            // A negative offset wraps to one that no buffer has.
            Address::RegisterIndirect { base, offset } => {
                (self.read_u64(base)?, i64::from(offset).cast_unsigned())
            }
            Address::RegisterIndirectComputed {
                handle_reg,
                offset_reg,
            } => (self.read_u64(handle_reg)?, self.read_u64(offset_reg)?),
        };
        check_alignment(offset, dtype)?;
        Ok((handle, offset))
    }

    /// The bytes of shared memory at an address.
    fn shared(&mut self, address: Address, dtype: DType) -> Result<&mut [u8], FaultKind> {
        let (_, offset) = self.resolve(address, dtype)?;
        let shared_size = self.shared.len();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(dtype.size());
        self.shared
            .get_mut(start..end)
            .ok_or(FaultKind::SharedOutOfBounds {
                offset,
                size: dtype.size(),
                shared_size,
            })
    }

    pub(super) fn step(&mut self, at: usize, instruction: &Instruction) -> Result<Step, FaultKind> {
        use Instruction as I;
        self.lane.steps += 1;
        if self.lane.steps > self.launch.interpreter.step_limit {
            return Err(FaultKind::StepLimit(self.launch.interpreter.step_limit));
        }
        let target = self.launch.interpreter.targets[at];
        match *instruction {
            I::Ldg {
                dtype,
                dst,
                address,
            } => {
                let (handle, offset) = self.resolve(address, dtype)?;
                let mut bytes = [0; 8];
                self.launch
                    .memory
                    .read(handle, offset, &mut bytes[..dtype.size()])?;
                self.write(dst, Value::from_bytes(dtype, &bytes))
            }
            I::Stg {
                dtype,
                address,
                src,
            } => {
                let (bytes, len) = self.read(src, dtype)?.to_bytes();
                let (handle, offset) = self.resolve(address, dtype)?;
                self.launch.memory.write(handle, offset, &bytes[..len])?;
                Ok(Step::Next)
            }
            I::Lds {
                dtype,
                dst,
                address,
            } => {
                let value = Value::from_bytes(dtype, self.shared(address, dtype)?);
                self.write(dst, value)
            }
            I::Sts {
                dtype,
                address,
                src,
            } => {
                let (bytes, len) = self.read(src, dtype)?.to_bytes();
                self.shared(address, dtype)?.copy_from_slice(&bytes[..len]);
                Ok(Step::Next)
            }
            I::PoolLoad {
                dtype,
                dst,
                pool,
                offset,
            } => {
                let (pool, offset) = (self.read_u64(pool)?, self.read_u64(offset)?);
                check_alignment(offset, dtype)?;
                let mut bytes = [0; 8];
                self.launch
                    .memory
                    .read_pool(pool, offset, &mut bytes[..dtype.size()])?;
                self.write(dst, Value::from_bytes(dtype, &bytes))
            }
            I::PoolStore {
                dtype,
                pool,
                offset,
                src,
            } => {
                let (bytes, len) = self.read(src, dtype)?.to_bytes();
                let (pool, offset) = (self.read_u64(pool)?, self.read_u64(offset)?);
                check_alignment(offset, dtype)?;
                self.launch.memory.write_pool(pool, offset, &bytes[..len])?;
                Ok(Step::Next)
            }
            I::Mov { dtype, dst, src } => {
                let value = self.read(src, dtype)?;
                self.write(dst, value)
            }
            I::MovImm { dtype, dst, value } => self.write(dst, Value::from_bits(dtype, value)),
            I::Cvt {
                dtype,
                dst_type,
                dst,
                src,
            } => {
                let value = self.read(src, dtype)?;
                self.write(dst, value::convert(value, dst_type))
            }
            I::Add {
                dtype,
                dst,
                src1,
                src2,
            } => self.binary(BinaryFunction::Add, dtype, dst, [src1, src2]),
            I::Sub {
                dtype,
                dst,
                src1,
                src2,
            } => self.binary(BinaryFunction::Sub, dtype, dst, [src1, src2]),
            I::Mul {
                dtype,
                dst,
                src1,
                src2,
            } => self.binary(BinaryFunction::Mul, dtype, dst, [src1, src2]),
            I::Div {
                dtype,
                dst,
                src1,
                src2,
            } => self.binary(BinaryFunction::Div, dtype, dst, [src1, src2]),
            I::Min {
                dtype,
                dst,
                src1,
                src2,
            } => self.binary(BinaryFunction::Min, dtype, dst, [src1, src2]),
            I::Max {
                dtype,
                dst,
                src1,
                src2,
            } => self.binary(BinaryFunction::Max, dtype, dst, [src1, src2]),
            I::And {
                dtype,
                dst,
                src1,
                src2,
            } => self.binary(BinaryFunction::And, dtype, dst, [src1, src2]),
            I::Or {
                dtype,
                dst,
                src1,
                src2,
            } => self.binary(BinaryFunction::Or, dtype, dst, [src1, src2]),
            I::Xor {
                dtype,
                dst,
                src1,
                src2,
            } => self.binary(BinaryFunction::Xor, dtype, dst, [src1, src2]),
            I::Pow {
                dtype,
                dst,
                src1,
                src2,
            } => self.binary(BinaryFunction::Pow, dtype, dst, [src1, src2]),
            I::Mad {
                dtype,
                dst,
                a,
                b,
                c,
            } => self.multiply_add(dtype, dst, [a, b, c], false),
            I::Fma {
                dtype,
                dst,
                a,
                b,
                c,
            } => self.multiply_add(dtype, dst, [a, b, c], true),
            I::Abs { dtype, dst, src } => self.unary(UnaryFunction::Abs, dtype, dst, src),
            I::Neg { dtype, dst, src } => self.unary(UnaryFunction::Neg, dtype, dst, src),
            I::Not { dtype, dst, src } => self.unary(UnaryFunction::Not, dtype, dst, src),
            I::Exp { dtype, dst, src } => self.unary(UnaryFunction::Exp, dtype, dst, src),
            I::Log { dtype, dst, src } => self.unary(UnaryFunction::Log, dtype, dst, src),
            I::Log2 { dtype, dst, src } => self.unary(UnaryFunction::Log2, dtype, dst, src),
            I::Log10 { dtype, dst, src } => self.unary(UnaryFunction::Log10, dtype, dst, src),
            I::Sqrt { dtype, dst, src } => self.unary(UnaryFunction::Sqrt, dtype, dst, src),
            I::Rsqrt { dtype, dst, src } => self.unary(UnaryFunction::Rsqrt, dtype, dst, src),
            I::Sin { dtype, dst, src } => self.unary(UnaryFunction::Sin, dtype, dst, src),
            I::Cos { dtype, dst, src } => self.unary(UnaryFunction::Cos, dtype, dst, src),
            I::Tan { dtype, dst, src } => self.unary(UnaryFunction::Tan, dtype, dst, src),
            I::Tanh { dtype, dst, src } => self.unary(UnaryFunction::Tanh, dtype, dst, src),
            I::Sigmoid { dtype, dst, src } => self.unary(UnaryFunction::Sigmoid, dtype, dst, src),
            I::Shl {
                dtype,
                dst,
                src,
                amount,
            } => self.shift(dtype, dst, [src, amount], true),
            I::Shr {
                dtype,
                dst,
                src,
                amount,
            } => self.shift(dtype, dst, [src, amount], false),
            I::SetCc {
                dtype,
                cond,
                dst,
                src1,
                src2,
            } => {
                let (x, y) = (self.read(src1, dtype)?, self.read(src2, dtype)?);
                self.set(dst, value::compare(cond, x, y))
            }
            I::Sel {
                dtype,
                dst,
                pred,
                src_true,
                src_false,
            } => {
                // Both are read, so both must have been written.
                let (yes, no) = (self.read(src_true, dtype)?, self.read(src_false, dtype)?);
                let value = if self.test(pred)? { yes } else { no };
                self.write(dst, value)
            }
            I::ReduceAdd { dtype, dst, src } => self.reduce(BinaryFunction::Add, dtype, dst, src),
            I::ReduceMin { dtype, dst, src } => self.reduce(BinaryFunction::Min, dtype, dst, src),
            I::ReduceMax { dtype, dst, src } => self.reduce(BinaryFunction::Max, dtype, dst, src),
            I::ReduceMul { dtype, dst, src } => self.reduce(BinaryFunction::Mul, dtype, dst, src),
            I::Bra { pred: None, .. } => Ok(Step::Jump(target)),
            I::Bra {
                pred: Some(pred), ..
            } => Ok(if self.test(pred)? {
                Step::Jump(target)
            } else {
                Step::Next
            }),
            I::Call { .. } => {
                if self.lane.calls.len() == MAX_CALLS {
                    return Err(FaultKind::CallStackOverflow(MAX_CALLS));
                }
                self.lane.calls.push(at + 1);
                Ok(Step::Jump(target))
            }
            I::Ret {} => self
                .lane
                .calls
                .pop()
                .map(Step::Jump)
                .ok_or(FaultKind::CallStackUnderflow),
            I::Loop { count, .. } => {
                let left = self.read(count, DType::U32)?.bits() as u32;
                if left == 0 {
                    return Ok(Step::Next);
                }
                self.write(count, Value::u32(left - 1))?;
                Ok(Step::Jump(target))
            }
            I::Exit {} => Ok(Step::End),
            I::BarSync { id } => Ok(Step::Wait(Status::AtBarrier(id))),
            // Lanes run one after the other, so memory is always ordered.
            I::MemFence { .. } => Ok(Step::Next),
            I::PhaseGet { dst } => self.write(dst, Value::u32(self.lane.phase)),
            I::PhaseAdv { delta } => {
                self.lane.phase = (self.lane.phase + u32::from(delta)) % atlas::PHASES;
                Ok(Step::Next)
            }
            I::ClsGet { .. }
            | I::Mirror { .. }
            | I::UnityTest { .. }
            | I::NbrCount { .. }
            | I::NbrGet { .. }
            | I::ResAccum { .. }
            | I::BoundMap { .. } => self.atlas(instruction),
            I::PoolAlloc { .. }
            | I::PoolFree { .. }
            | I::LayerNorm { .. }
            | I::GroupNorm { .. }
            | I::BatchNorm { .. }
            | I::Conv2d { .. }
            | I::NearestUpsample2d { .. }
            | I::Gemm { .. }
            | I::ParallelMap { .. }
            | I::ParallelMapBinary { .. }
            | I::ParallelReduce { .. } => Ok(Step::Wait(Status::AtLaunch)),
        }
    }

    /// Instructions on classes.
    fn atlas(&mut self, instruction: &Instruction) -> Result<Step, FaultKind> {
        use Instruction as I;
        let byte = |value: u8| Value::from_bits(DType::U8, u64::from(value));
        match *instruction {
            I::ClsGet { dst } => self.write(dst, byte(self.class)),
            I::Mirror { dst, src } => {
                let class = atlas::mirror(self.read_u8(src)?)?;
                self.write(dst, byte(class))
            }
            I::UnityTest { dst, .. } => self.set(dst, atlas::is_unity(self.class)),
            I::NbrCount { dst, class } => {
                let degree = atlas::degree(self.read_u8(class)?)?;
                self.write(dst, Value::u32(degree))
            }
            I::NbrGet { dst, class, index } => {
                let neighbour = atlas::neighbour(self.read_u8(class)?, index)?;
                self.write(dst, byte(neighbour))
            }
            I::ResAccum { class, value } => {
                let class = self.read_u8(class)?;
                let value = f64::from_bits(self.read(value, DType::F64)?.bits());
                self.resonance.add(class, value)?;
                Ok(Step::Next)
            }
            I::BoundMap {
                dst,
                class,
                page,
                byte,
            } => {
                let offset = atlas::boundary_offset(
                    self.read_u8(class)?,
                    self.read_u8(page)?,
                    self.read_u8(byte)?,
                )?;
                self.write(dst, Value::u64(offset))
            }
            _ => Ok(Step::Next),
        }
    }
}

fn check_alignment(offset: u64, dtype: DType) -> Result<(), FaultKind> {
    if offset.is_multiple_of(dtype.size() as u64) {
        Ok(())
    } else {
        Err(FaultKind::InvalidMemoryAddress { offset, dtype })
    }
}
