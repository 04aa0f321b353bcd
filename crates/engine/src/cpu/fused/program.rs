//! Lowers the steps of a fused op to kernel calls on blocks.
//!
//! Every value is a block of scratch memory, except inputs that are contiguous over a block, which are read in place,
//! and the last value, which is written to the result. Values of `f16` and `bf16` are blocks of `f32` that contain only
//! values of those types: each step rounds its result.

use super::pair::{self, OperandSide};
use crate::DType;
use crate::cpu::map::{ElementwiseKernel, takes_scalar};
use crate::cpu::{binary, cast, ternary, unary};
use crate::ops::binary::Binary;
use crate::ops::fused::{Action, Step};
use crate::ops::ternary::Ternary;
use crate::ops::unary::Unary;

/// The location of a kernel's argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ArgSource {
    /// The kernel has no such argument.
    None,
    /// A slot, i.e. a block of scratch memory.
    Slot(usize),
    /// An input, in place or gathered; a scalar is splatted.
    Input(usize),
    /// An input that is passed as a scalar.
    Scalar(usize),
}

/// A kernel call, made for every block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) kernel: ElementwiseKernel,
    pub(super) args: [ArgSource; 3],
    pub(super) parameter: f64,
    /// The slot it writes; `usize::MAX` for the last call, which writes the result.
    pub(super) to: usize,
    /// Bytes of an element of its result.
    pub(super) size: usize,
}

/// The type of a program's input.
#[derive(Clone, Copy, Debug)]
pub(super) struct InputType {
    pub(super) dtype: DType,
    /// Whether it is a scalar, which is already converted to the compute type.
    pub(super) scalar: bool,
}

/// A lowered program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(super) calls: Vec<Call>,
    /// Number of slots, the blocks of scratch memory for intermediate values.
    pub(super) slots: usize,
    /// Bytes of the largest element of a slot.
    pub(super) width: usize,
}

/// The compute type of a type.
pub(super) const fn compute_type(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

const fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Whether the result for `f16` or `bf16` arguments is representable in that type without rounding.
const fn is_exact(action: Action) -> bool {
    match action {
        Action::Unary(f) => matches!(
            f,
            Unary::Neg
                | Unary::Abs
                | Unary::Sign
                | Unary::Relu
                | Unary::Ceil
                | Unary::Floor
                | Unary::Round
                | Unary::Trunc
        ),
        Action::Binary(f) => matches!(f, Binary::Minimum | Binary::Maximum),
        Action::Ternary(f) => matches!(f, Ternary::Select | Ternary::Clamp),
        Action::Cast => false,
    }
}

/// Number of arguments of an action.
const fn arity(action: Action) -> usize {
    match action {
        Action::Unary(_) | Action::Cast => 1,
        Action::Binary(_) => 2,
        Action::Ternary(_) => 3,
    }
}

/// The kernel of an action on arguments of a type (for `select`, of the second argument), in compute types.
pub(super) fn kernel(action: Action, from: DType, to: DType) -> ElementwiseKernel {
    let at = compute_type(from);
    match action {
        Action::Unary(f) => unary::kernel(f, at),
        Action::Binary(f) => binary::kernel(f, at),
        Action::Ternary(f) => ternary::kernel(f, at),
        Action::Cast if is_half(to) => cast::narrowing(at),
        Action::Cast => cast::kernel(at, to),
    }
}

/// Whether the kernel of an action accepts scalars in the positions that [`takes_scalar`] allows.
pub(super) const fn takes_scalars(action: Action, from: DType) -> bool {
    let of_f32 = matches!(compute_type(from), DType::F32);
    of_f32
        && match action {
            Action::Binary(f) => !matches!(f, Binary::FloorDiv | Binary::Rem),
            Action::Ternary(f) => !matches!(f, Ternary::Select),
            Action::Unary(_) | Action::Cast => false,
        }
}

/// The kernel that does an action in one call between storage types, if there is one.
pub(super) fn direct(action: Action, from: DType, to: DType) -> Option<ElementwiseKernel> {
    match action {
        Action::Cast if is_half(from) && to == DType::F32 => Some(cast::widen(from)),
        Action::Cast if from == DType::F32 && is_half(to) => Some(cast::narrow(to)),
        _ if is_half(from) || is_half(to) => None,
        _ => Some(kernel(action, from, to)),
    }
}

/// The argument whose type selects the kernel of an action.
pub(super) const fn typed_arg(action: Action) -> usize {
    match action {
        Action::Ternary(Ternary::Select) => 1,
        _ => 0,
    }
}

pub(super) fn parameter(action: Action) -> f64 {
    match action {
        Action::Unary(f) => f.parameter().unwrap_or(0.0),
        _ => 0.0,
    }
}

impl Program {
    /// Whether a scalar input must be splatted over a block.
    pub(super) fn needs_splat(&self, input: usize) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|call| call.args.contains(&ArgSource::Input(input)))
    }

    /// Lowers the steps of a fused op.
    pub(super) fn new(steps: &[Step], inputs: &[InputType]) -> Self {
        let mut lowering = Lowering {
            calls: Vec::with_capacity(steps.len() + 2),
            free: Vec::new(),
            slots: 0,
            width: 1,
        };
        let count = inputs.len();
        // The last step that uses each value.
        let mut last = vec![0; count + steps.len()];
        for (i, step) in steps.iter().enumerate() {
            for &arg in &step.args[..arity(step.action)] {
                last[usize::from(arg)] = i;
            }
        }
        let mut values: Vec<(ArgSource, DType)> = Vec::with_capacity(count + steps.len());
        values.extend((0..count).map(|i| (ArgSource::Input(i), inputs[i].dtype)));
        for (i, input) in inputs.iter().enumerate() {
            if is_half(input.dtype) && !input.scalar {
                let to = lowering.allocate_slot(DType::F32);
                lowering.call(
                    cast::widen(input.dtype),
                    [ArgSource::Input(i)],
                    0.0,
                    to,
                    DType::F32,
                );
                values[i].0 = ArgSource::Slot(to);
            }
        }
        let mut at = 0;
        while at < steps.len() {
            let lowered = LoweredStep::at(steps, at, &last, |value| values[value].1);
            let i = at + lowered.steps - 1;
            let dtype = steps[i].dtype;
            let end = i + 1 == steps.len();
            let mut args = [ArgSource::None; 3];
            for (position, &value) in lowered.values().iter().enumerate() {
                args[position] = match values[usize::from(value)].0 {
                    ArgSource::Input(i)
                        if inputs[i].scalar
                            && lowered.takes_scalars
                            && takes_scalar(lowered.arity, position) =>
                    {
                        ArgSource::Scalar(i)
                    }
                    source => source,
                };
            }
            let compute_type = compute_type(dtype);
            let rounds = is_half(dtype);
            let mut to = if end && !rounds {
                usize::MAX
            } else {
                lowering.allocate_slot(compute_type)
            };
            lowering.call(lowered.kernel, args, lowered.parameter, to, compute_type);
            if rounds && end {
                lowering.call(
                    cast::narrow(dtype),
                    [ArgSource::Slot(to)],
                    0.0,
                    usize::MAX,
                    dtype,
                );
            } else if rounds && !is_exact(steps[i].action) {
                let wide = to;
                to = lowering.allocate_slot(compute_type);
                lowering.call(
                    cast::round(dtype),
                    [ArgSource::Slot(wide)],
                    0.0,
                    to,
                    compute_type,
                );
                lowering.free.push(wide);
            }
            // The intermediate value of a fused pair is never stored.
            values.resize(count + i, (ArgSource::None, dtype));
            values.push((ArgSource::Slot(to), dtype));
            // Free the slots of values that are not used any more.
            for (n, &value) in lowered.values().iter().enumerate() {
                let again = lowered.values()[..n].contains(&value);
                if last[usize::from(value)] <= i
                    && !again
                    && let ArgSource::Slot(slot) = values[usize::from(value)].0
                {
                    lowering.free.push(slot);
                }
            }
            at = i + 1;
        }
        Self {
            calls: lowering.calls,
            slots: lowering.slots,
            width: lowering.width,
        }
    }
}

/// One step, or a fused pair of steps.
struct LoweredStep {
    kernel: ElementwiseKernel,
    args: [u16; 3],
    arity: usize,
    parameter: f64,
    steps: usize,
    takes_scalars: bool,
}

impl LoweredStep {
    /// Lowers step `at`, fused with the next one if possible; `last` is the last step that uses each value.
    fn at(steps: &[Step], at: usize, last: &[usize], dtype: impl Fn(usize) -> DType) -> Self {
        let step = &steps[at];
        let from = dtype(usize::from(step.args[typed_arg(step.action)]));
        let own = arity(step.action);
        let single = Self {
            kernel: kernel(step.action, from, step.dtype),
            args: step.args,
            arity: own,
            parameter: parameter(step.action),
            steps: 1,
            takes_scalars: takes_scalars(step.action, from),
        };
        let Some(next) = steps.get(at + 1) else {
            return single;
        };
        let value = last.len() - steps.len() + at;
        let of_f32 = [from, step.dtype, next.dtype] == [DType::F32; 3];
        if !of_f32 || last[value] != at + 1 {
            return single;
        }
        let is_first = |arg: u16| usize::from(arg) == value;
        let (operand, other) = match next.args[..arity(next.action)] {
            [_] => (OperandSide::Left, None),
            [a, b] if is_first(a) && !is_first(b) => (OperandSide::Left, Some(b)),
            [a, b] if is_first(b) && !is_first(a) => (OperandSide::Right, Some(a)),
            _ => return single,
        };
        let Some(kernel) = pair::kernel(step.action, next.action, operand) else {
            return single;
        };
        let mut args = step.args;
        if let Some(other) = other {
            args[own] = other;
        }
        Self {
            kernel,
            args,
            arity: own + usize::from(other.is_some()),
            parameter: 0.0,
            steps: 2,
            takes_scalars: true,
        }
    }

    fn values(&self) -> &[u16] {
        &self.args[..self.arity]
    }
}

/// The state of lowering a program.
struct Lowering {
    calls: Vec<Call>,
    free: Vec<usize>,
    slots: usize,
    width: usize,
}

impl Lowering {
    /// Allocates a slot for a value of a type. The slot freed last is preferred: it is still in the L1 cache.
    fn allocate_slot(&mut self, dtype: DType) -> usize {
        self.width = self.width.max(dtype.size());
        self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }

    fn call<const N: usize>(
        &mut self,
        kernel: ElementwiseKernel,
        sources: [ArgSource; N],
        parameter: f64,
        to: usize,
        dtype: DType,
    ) {
        let mut args = [ArgSource::None; 3];
        args[..N].copy_from_slice(&sources);
        self.calls.push(Call {
            kernel,
            args,
            parameter,
            to,
            size: dtype.size(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::map::Args;
    use crate::ops::binary::BinaryTypes;

    #[test]
    fn a_scalar_argument_gives_the_same_bits_as_a_splatted_block() {
        let samples = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            3.25,
            1e-40,
            -7e30,
            65504.0,
            f32::INFINITY,
        ];
        let columns: [Vec<f32>; 3] = std::array::from_fn(|column| {
            let of = |i: usize| [i, i / 9, i / 81][column] % 9;
            (0..9 * 9 * 9 + 5).map(|i| samples[of(i)]).collect()
        });
        let binary = Binary::ALL.iter().filter(|f| {
            !matches!(
                f.types(),
                BinaryTypes::Bits | BinaryTypes::Int | BinaryTypes::Logic
            )
        });
        let actions = (binary.map(|&f| Action::Binary(f)))
            .chain(Ternary::ALL.iter().map(|&f| Action::Ternary(f)))
            .filter(|&action| takes_scalars(action, DType::F32));
        let mut compared = 0;
        for action in actions {
            let (kernel, arity) = (kernel(action, DType::F32, DType::F32), arity(action));
            let size = match action {
                Action::Binary(f) if f.types() == BinaryTypes::Compare => 1,
                _ => 4,
            };
            let run = |blocks: [&[f32]; 3]| {
                let [a, b, c] = blocks.map(bytemuck::cast_slice);
                let mut out = vec![0.0_f32; columns[0].len()];
                let bytes = bytemuck::cast_slice_mut(&mut out);
                let parameter = 0.0;
                kernel(
                    &Args { a, b, c, parameter },
                    &mut bytes[..columns[0].len() * size],
                );
                out
            };
            // Every allowed combination of scalar arguments.
            for scalars in 1..1_usize << arity {
                let is_scalar = |i: usize| scalars >> i & 1 == 1;
                if (0..arity).any(|i| is_scalar(i) && !takes_scalar(arity, i)) {
                    continue;
                }
                for scalar in samples {
                    let repeated = vec![scalar; columns[0].len()];
                    let scalar = [scalar];
                    let pick = |instead: &'_ [f32]| -> [Vec<f32>; 3] {
                        std::array::from_fn(|i| {
                            if is_scalar(i) {
                                instead.to_vec()
                            } else {
                                columns[i].clone()
                            }
                        })
                    };
                    let (with_scalars, splatted) = (pick(&scalar), pick(&repeated));
                    let got = run(with_scalars.each_ref().map(|b| &b[..]));
                    let want = run(splatted.each_ref().map(|b| &b[..]));
                    // NaN payloads may differ.
                    let same = |(a, b): (&f32, &f32)| {
                        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
                    };
                    assert!(
                        got.iter().zip(&want).all(same),
                        "{action:?} with {scalar:?} at {scalars:b}"
                    );
                    compared += 1;
                }
            }
        }
        // Three combinations each of 15 binary and 3 ternary functions.
        assert_eq!(compared, (15 + 3) * 3 * samples.len());
    }
}
