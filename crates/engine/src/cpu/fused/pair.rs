//! Fuses two steps of a program into one loop.
//!
//! A cheap step spends most of its time reading its arguments from the L1 cache and writing its result back. The frequent
//! cheap steps of `f32` are therefore also compiled in pairs, whose intermediate result stays in registers. Each step
//! rounds as it does alone.

use crate::cpu::map::{ElementwiseKernel, map};
use crate::ops::binary::Binary;
use crate::ops::fused::Action;
use crate::ops::unary::Unary;

/// The argument of a second step that is the result of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperandSide {
    Left,
    Right,
}

/// The kernel of two `f32` steps, if there is one. Its arguments are those of the first step, followed by the other
/// argument of the second.
pub(super) fn kernel(
    first: Action,
    second: Action,
    operand: OperandSide,
) -> Option<ElementwiseKernel> {
    match (first, second) {
        (Action::Binary(first), Action::Binary(second)) => two_binary(first, second, operand),
        (Action::Unary(first), Action::Binary(second)) => unary_binary(first, second, operand),
        (Action::Binary(first), Action::Unary(second)) => binary_unary(first, second),
        _ => None,
    }
}

/// All binary second steps, for an inline first one.
macro_rules! then_binary {
    ($map:ident, $second:expr, $operand:expr, |$($x:ident),+| $first:expr) => {
        match ($second, $operand) {
            (Binary::Add, OperandSide::Left) => $map!(|$($x),+, c| $first + c),
            (Binary::Add, OperandSide::Right) => $map!(|$($x),+, c| c + $first),
            (Binary::Sub, OperandSide::Left) => $map!(|$($x),+, c| $first - c),
            (Binary::Sub, OperandSide::Right) => $map!(|$($x),+, c| c - $first),
            (Binary::Mul, OperandSide::Left) => $map!(|$($x),+, c| $first * c),
            (Binary::Mul, OperandSide::Right) => $map!(|$($x),+, c| c * $first),
            _ => return None,
        }
    };
}

macro_rules! map_two {
    (|$a:ident, $b:ident| $body:expr) => { map!(f32 => f32, |$a, $b| $body) };
}

macro_rules! map_three {
    (|$a:ident, $b:ident, $c:ident| $body:expr) => {
        map!(f32, f32, |$a, $b, $c| $body)
    };
}

fn two_binary(first: Binary, second: Binary, operand: OperandSide) -> Option<ElementwiseKernel> {
    Some(match first {
        Binary::Add => then_binary!(map_three, second, operand, |a, b| (a + b)),
        Binary::Sub => then_binary!(map_three, second, operand, |a, b| (a - b)),
        Binary::Mul => then_binary!(map_three, second, operand, |a, b| (a * b)),
        _ => return None,
    })
}

fn unary_binary(first: Unary, second: Binary, operand: OperandSide) -> Option<ElementwiseKernel> {
    Some(match first {
        Unary::Neg => then_binary!(map_two, second, operand, |a| (-a)),
        Unary::Abs => then_binary!(map_two, second, operand, |a| a.abs()),
        Unary::Square => then_binary!(map_two, second, operand, |a| (a * a)),
        Unary::Sqrt => then_binary!(map_two, second, operand, |a| a.sqrt()),
        Unary::Reciprocal => then_binary!(map_two, second, operand, |a| (1.0 / a)),
        _ => return None,
    })
}

/// All unary second steps, for an inline first one.
macro_rules! then_unary {
    ($second:expr, |$a:ident, $b:ident| $first:expr) => {
        match $second {
            Unary::Neg => map_two!(|$a, $b| -$first),
            Unary::Abs => map_two!(|$a, $b| $first.abs()),
            Unary::Sqrt => map_two!(|$a, $b| $first.sqrt()),
            Unary::Reciprocal => map_two!(|$a, $b| 1.0 / $first),
            _ => return None,
        }
    };
}

fn binary_unary(first: Binary, second: Unary) -> Option<ElementwiseKernel> {
    Some(match first {
        Binary::Add => then_unary!(second, |a, b| (a + b)),
        Binary::Sub => then_unary!(second, |a, b| (a - b)),
        Binary::Mul => then_unary!(second, |a, b| (a * b)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::cpu::fused::program;
    use crate::cpu::map::Args;

    fn run(kernel: ElementwiseKernel, args: [&[f32]; 3]) -> Vec<f32> {
        let [a, b, c] = args.map(bytemuck::cast_slice);
        let parameter = 0.0;
        let mut out = vec![0.0_f32; args[0].len()];
        kernel(
            &Args { a, b, c, parameter },
            bytemuck::cast_slice_mut(&mut out),
        );
        out
    }

    #[test]
    fn pairs_have_the_same_bits_as_their_steps() {
        let samples = [
            0.0,
            -0.0,
            1.0,
            -1.5,
            3.3,
            1e-40,
            -7e30,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
        ];
        let mut columns = [const { Vec::new() }; 3];
        for i in 0..1000 {
            for (column, digit) in columns.iter_mut().zip([i / 100, i / 10 % 10, i % 10]) {
                column.push(samples[digit]);
            }
        }
        let [a, b, c] = columns.each_ref().map(|c| &c[..]);
        let unary = Unary::ALL.iter().map(|&f| Action::Unary(f));
        let actions: Vec<_> = (Binary::ALL.iter().map(|&f| Action::Binary(f)))
            .chain(unary)
            .collect();
        let single = |action| program::kernel(action, DType::F32, DType::F32);
        let mut found = 0;
        for &first in &actions {
            for &second in &actions {
                for operand in [OperandSide::Left, OperandSide::Right] {
                    let Some(kernel) = kernel(first, second, operand) else {
                        continue;
                    };
                    found += 1;
                    let other = match first {
                        Action::Binary(_) => c,
                        _ => b,
                    };
                    let inner = run(single(first), [a, b, &[]]);
                    let want = match operand {
                        OperandSide::Left => run(single(second), [&inner, other, &[]]),
                        OperandSide::Right => run(single(second), [other, &inner, &[]]),
                    };
                    // The argument of a unary second step is on the left.
                    if matches!(second, Action::Unary(_)) && operand == OperandSide::Right {
                        continue;
                    }
                    for (got, want) in run(kernel, [a, b, c]).iter().zip(&want) {
                        let same = got.to_bits() == want.to_bits();
                        assert!(
                            same || got.is_nan() && want.is_nan(),
                            "{first:?} {second:?}"
                        );
                    }
                }
            }
        }
        assert_eq!(found, 9 * 2 + 15 * 2 + 12 * 2);
    }
}
