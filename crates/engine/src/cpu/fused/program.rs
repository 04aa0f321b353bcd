//! From the steps of a program to kernels and the blocks they work on.
//!
//! Every value is a block of scratch memory, except inputs that lie in memory as a block does, which are
//! read in place, and the last value, which is written where the result goes. Values of `f16` and `bf16`
//! are blocks of `f32` that hold nothing but values of those types: each step rounds its result.

use super::pair::{self, Place};
use crate::DType;
use crate::cpu::map::{Kernel, takes_number};
use crate::cpu::{binary, cast, ternary, unary};
use crate::ops::binary::Binary;
use crate::ops::fused::{Action, Step};
use crate::ops::ternary::Ternary;
use crate::ops::unary::Unary;

/// Where a kernel finds an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Source {
    /// It takes none.
    None,
    /// In a block of scratch memory.
    Slot(usize),
    /// In an input, in place or gathered; a number is repeated.
    Input(usize),
    /// In an input that is one number for the whole block.
    Number(usize),
}

/// A call of a kernel for every block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) kernel: Kernel,
    pub(super) args: [Source; 3],
    pub(super) parameter: f64,
    /// The block it writes; the result where it is the last.
    pub(super) to: usize,
    /// Bytes of an element that it writes.
    pub(super) size: usize,
}

/// What an input is, for a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leaf {
    pub(super) dtype: DType,
    /// Whether it is one number, which is converted to the type that is computed in when it is spread.
    pub(super) number: bool,
}

/// The calls of a program.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) calls: Vec<Call>,
    /// Blocks of scratch memory that the calls write.
    pub(super) slots: usize,
    /// Bytes of the largest element of a slot.
    pub(super) width: usize,
}

/// The type in which a type is computed.
pub(super) const fn computed(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

const fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Whether the result of `f16` or `bf16` arguments is one of those types without rounding.
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

/// How many values of a step are arguments.
const fn arity(action: Action) -> usize {
    match action {
        Action::Unary(_) | Action::Cast => 1,
        Action::Binary(_) => 2,
        Action::Ternary(_) => 3,
    }
}

/// The kernel of an action on arguments of a type (of `select`: the second argument), computed in
/// [`computed`] types.
pub(super) fn kernel(action: Action, from: DType, to: DType) -> Kernel {
    let at = computed(from);
    match action {
        Action::Unary(f) => unary::kernel(f, at),
        Action::Binary(f) => binary::kernel(f, at),
        Action::Ternary(f) => ternary::kernel(f, at),
        Action::Cast if is_half(to) => cast::narrowing(at),
        Action::Cast => cast::kernel(at, to),
    }
}

/// Whether that kernel takes numbers where [`takes_number`] says.
pub(super) const fn takes_numbers(action: Action, from: DType) -> bool {
    let of_f32 = matches!(computed(from), DType::F32);
    of_f32
        && match action {
            Action::Binary(f) => !matches!(f, Binary::FloorDiv | Binary::Rem),
            Action::Ternary(f) => !matches!(f, Ternary::Select),
            Action::Unary(_) | Action::Cast => false,
        }
}

/// The kernel that does an action in one call, from and to the types as they lie in memory, if there is one.
pub(super) fn direct(action: Action, from: DType, to: DType) -> Option<Kernel> {
    match action {
        Action::Cast if is_half(from) && to == DType::F32 => Some(cast::widen(from)),
        Action::Cast if from == DType::F32 && is_half(to) => Some(cast::narrow(to)),
        _ if is_half(from) || is_half(to) => None,
        _ => Some(kernel(action, from, to)),
    }
}

/// The value that says in what type an action is done.
pub(super) const fn leading(action: Action) -> usize {
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
    /// Whether an input that is a number must be repeated for the length of a block.
    pub(super) fn repeats(&self, input: usize) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|call| call.args.contains(&Source::Input(input)))
    }

    /// Lowers steps over inputs.
    pub(super) fn new(steps: &[Step], leaves: &[Leaf]) -> Self {
        let mut lower = Lower {
            calls: Vec::with_capacity(steps.len() + 2),
            free: Vec::new(),
            slots: 0,
            width: 1,
        };
        let count = leaves.len();
        // The last step that uses each value.
        let mut last = vec![0; count + steps.len()];
        for (i, step) in steps.iter().enumerate() {
            for &arg in &step.args[..arity(step.action)] {
                last[usize::from(arg)] = i;
            }
        }
        let mut values: Vec<(Source, DType)> = Vec::with_capacity(count + steps.len());
        values.extend((0..count).map(|i| (Source::Input(i), leaves[i].dtype)));
        for (i, leaf) in leaves.iter().enumerate() {
            if is_half(leaf.dtype) && !leaf.number {
                let to = lower.take(DType::F32);
                lower.call(
                    cast::widen(leaf.dtype),
                    [Source::Input(i)],
                    0.0,
                    to,
                    DType::F32,
                );
                values[i].0 = Source::Slot(to);
            }
        }
        let mut at = 0;
        while at < steps.len() {
            let task = Task::at(steps, at, &last, |value| values[value].1);
            let i = at + task.steps - 1;
            let dtype = steps[i].dtype;
            let end = i + 1 == steps.len();
            let mut args = [Source::None; 3];
            for (place, &value) in task.values().iter().enumerate() {
                args[place] = match values[usize::from(value)].0 {
                    Source::Input(i)
                        if leaves[i].number
                            && task.takes_numbers
                            && takes_number(task.arity, place) =>
                    {
                        Source::Number(i)
                    }
                    source => source,
                };
            }
            let computed = computed(dtype);
            let rounds = is_half(dtype);
            let mut to = if end && !rounds {
                usize::MAX
            } else {
                lower.take(computed)
            };
            lower.call(task.kernel, args, task.parameter, to, computed);
            if rounds && end {
                lower.call(
                    cast::narrow(dtype),
                    [Source::Slot(to)],
                    0.0,
                    usize::MAX,
                    dtype,
                );
            } else if rounds && !is_exact(steps[i].action) {
                let wide = to;
                to = lower.take(computed);
                lower.call(cast::round(dtype), [Source::Slot(wide)], 0.0, to, computed);
                lower.free.push(wide);
            }
            // What stays inside a pair of steps is nowhere.
            values.resize(count + i, (Source::None, dtype));
            values.push((Source::Slot(to), dtype));
            // Blocks whose value is not needed any more serve again.
            for (n, &value) in task.values().iter().enumerate() {
                let again = task.values()[..n].contains(&value);
                if last[usize::from(value)] <= i
                    && !again
                    && let Source::Slot(slot) = values[usize::from(value)].0
                {
                    lower.free.push(slot);
                }
            }
            at = i + 1;
        }
        Self {
            calls: lower.calls,
            slots: lower.slots,
            width: lower.width,
        }
    }
}

/// One step, or two in one loop.
struct Task {
    kernel: Kernel,
    args: [u16; 3],
    arity: usize,
    parameter: f64,
    steps: usize,
    takes_numbers: bool,
}

impl Task {
    /// What begins with step `at`; `last` has the last step that uses each value.
    fn at(steps: &[Step], at: usize, last: &[usize], dtype: impl Fn(usize) -> DType) -> Self {
        let step = &steps[at];
        let from = dtype(usize::from(step.args[leading(step.action)]));
        let own = arity(step.action);
        let single = Self {
            kernel: kernel(step.action, from, step.dtype),
            args: step.args,
            arity: own,
            parameter: parameter(step.action),
            steps: 1,
            takes_numbers: takes_numbers(step.action, from),
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
        let (place, other) = match next.args[..arity(next.action)] {
            [_] => (Place::Left, None),
            [a, b] if is_first(a) && !is_first(b) => (Place::Left, Some(b)),
            [a, b] if is_first(b) && !is_first(a) => (Place::Right, Some(a)),
            _ => return single,
        };
        let Some(kernel) = pair::kernel(step.action, next.action, place) else {
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
            takes_numbers: true,
        }
    }

    fn values(&self) -> &[u16] {
        &self.args[..self.arity]
    }
}

struct Lower {
    calls: Vec<Call>,
    free: Vec<usize>,
    slots: usize,
    width: usize,
}

impl Lower {
    /// A block for a value of a type. The block used last is still in the fastest cache.
    fn take(&mut self, dtype: DType) -> usize {
        self.width = self.width.max(dtype.size());
        self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }

    fn call<const N: usize>(
        &mut self,
        kernel: Kernel,
        sources: [Source; N],
        parameter: f64,
        to: usize,
        dtype: DType,
    ) {
        let mut args = [Source::None; 3];
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
    use crate::ops::binary::Types;

    #[test]
    fn a_number_is_as_good_as_a_block_of_it() {
        let some = [
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
            (0..9 * 9 * 9 + 5).map(|i| some[of(i)]).collect()
        });
        let binary = Binary::ALL
            .iter()
            .filter(|f| !matches!(f.types(), Types::Bits | Types::Int | Types::Logic));
        let actions = (binary.map(|&f| Action::Binary(f)))
            .chain(Ternary::ALL.iter().map(|&f| Action::Ternary(f)))
            .filter(|&action| takes_numbers(action, DType::F32));
        let mut compared = 0;
        for action in actions {
            let (kernel, arity) = (kernel(action, DType::F32, DType::F32), arity(action));
            let size = match action {
                Action::Binary(f) if f.types() == Types::Compare => 1,
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
            // Every choice of places for numbers that is allowed.
            for places in 1..1_usize << arity {
                let is_number = |i: usize| places >> i & 1 == 1;
                if (0..arity).any(|i| is_number(i) && !takes_number(arity, i)) {
                    continue;
                }
                for number in some {
                    let repeated = vec![number; columns[0].len()];
                    let number = [number];
                    let pick = |instead: &'_ [f32]| -> [Vec<f32>; 3] {
                        std::array::from_fn(|i| {
                            if is_number(i) {
                                instead.to_vec()
                            } else {
                                columns[i].clone()
                            }
                        })
                    };
                    let (short, long) = (pick(&number), pick(&repeated));
                    let got = run(short.each_ref().map(|b| &b[..]));
                    let want = run(long.each_ref().map(|b| &b[..]));
                    // Which NaN it is may differ.
                    let same = |(a, b): (&f32, &f32)| {
                        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
                    };
                    assert!(
                        got.iter().zip(&want).all(same),
                        "{action:?} with {number:?} at {places:b}"
                    );
                    compared += 1;
                }
            }
        }
        // 15 functions of two elements in three ways, 3 of three likewise.
        assert_eq!(compared, (15 + 3) * 3 * some.len());
    }
}
