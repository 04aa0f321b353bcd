//! Two steps of a program in one loop.
//!
//! Most of what a short step costs is reading its arguments from the fastest cache and writing its result
//! there. The frequent short steps of `f32` are therefore also compiled in pairs: what the second takes from
//! the first stays in registers. Both round as they do alone.

use crate::cpu::map::{Kernel, map};
use crate::ops::binary::Binary;
use crate::ops::fused::Action;
use crate::ops::unary::Unary;

/// Which argument of a second step is the result of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Left,
    Right,
}

/// The kernel of two steps of `f32`, if there is one. Its arguments are those of the first step and then the
/// other one of the second.
pub(super) fn kernel(first: Action, second: Action, place: Place) -> Option<Kernel> {
    match (first, second) {
        (Action::Binary(first), Action::Binary(second)) => two_binary(first, second, place),
        (Action::Unary(first), Action::Binary(second)) => unary_binary(first, second, place),
        (Action::Binary(first), Action::Unary(second)) => binary_unary(first, second),
        _ => None,
    }
}

/// All second steps with two arguments, for a first one that is written in place.
macro_rules! then_binary {
    ($map:ident, $second:expr, $place:expr, |$($x:ident),+| $first:expr) => {
        match ($second, $place) {
            (Binary::Add, Place::Left) => $map!(|$($x),+, c| $first + c),
            (Binary::Add, Place::Right) => $map!(|$($x),+, c| c + $first),
            (Binary::Sub, Place::Left) => $map!(|$($x),+, c| $first - c),
            (Binary::Sub, Place::Right) => $map!(|$($x),+, c| c - $first),
            (Binary::Mul, Place::Left) => $map!(|$($x),+, c| $first * c),
            (Binary::Mul, Place::Right) => $map!(|$($x),+, c| c * $first),
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

fn two_binary(first: Binary, second: Binary, place: Place) -> Option<Kernel> {
    Some(match first {
        Binary::Add => then_binary!(map_three, second, place, |a, b| (a + b)),
        Binary::Sub => then_binary!(map_three, second, place, |a, b| (a - b)),
        Binary::Mul => then_binary!(map_three, second, place, |a, b| (a * b)),
        _ => return None,
    })
}

fn unary_binary(first: Unary, second: Binary, place: Place) -> Option<Kernel> {
    Some(match first {
        Unary::Neg => then_binary!(map_two, second, place, |a| (-a)),
        Unary::Abs => then_binary!(map_two, second, place, |a| a.abs()),
        Unary::Square => then_binary!(map_two, second, place, |a| (a * a)),
        Unary::Sqrt => then_binary!(map_two, second, place, |a| a.sqrt()),
        Unary::Reciprocal => then_binary!(map_two, second, place, |a| (1.0 / a)),
        _ => return None,
    })
}

/// All second steps with one argument, for a first one that is written in place.
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

fn binary_unary(first: Binary, second: Unary) -> Option<Kernel> {
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

    fn run(kernel: Kernel, args: [&[f32]; 3]) -> Vec<f32> {
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
    fn pairs_have_the_bits_of_their_steps() {
        let some = [
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
                column.push(some[digit]);
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
                for place in [Place::Left, Place::Right] {
                    let Some(kernel) = kernel(first, second, place) else {
                        continue;
                    };
                    found += 1;
                    let other = match first {
                        Action::Binary(_) => c,
                        _ => b,
                    };
                    let inner = run(single(first), [a, b, &[]]);
                    let want = match place {
                        Place::Left => run(single(second), [&inner, other, &[]]),
                        Place::Right => run(single(second), [other, &inner, &[]]),
                    };
                    // A second step with one argument has it on the left.
                    if matches!(second, Action::Unary(_)) && place == Place::Right {
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
