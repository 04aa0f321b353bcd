//! Elementwise ops.

use bench_protocol::{Case, Op};
use bessemer::Tensor;

use super::{Compute, binary_op, dtype, ternary_op, unary_op};

pub(super) fn function(case: &Case, x: &[Tensor]) -> Option<Compute> {
    if case.op == Op::Cast {
        let to = dtype(case.to?);
        return unary_op(x, move |a| a.cast(to));
    }
    function_of_one_or_two(case.op, x).or_else(|| other(case.op, x))
}

macro_rules! functions {
    (
        unary {$(
            $(#[$doc:meta])*
            $unary:ident $name:ident $(($parameter:literal))? $of:ident [$low:literal, $high:literal] $to:ident;
        )*}
        binary {$(
            $binary:ident $method:ident $type:ident [$($a:literal),*] [$($b:literal),*] $result:ident;
        )*}
    ) => {
        fn function_of_one_or_two(op: Op, x: &[Tensor]) -> Option<Compute> {
            match op {
                $(Op::$unary => unary_op(x, |a| a.$name($($parameter)?)),)*
                $(Op::$binary => binary_op(x, |a, b| a.$method(b)),)*
                _ => None,
            }
        }
    };
}

bench_protocol::for_each_function!(functions);

fn other(op: Op, x: &[Tensor]) -> Option<Compute> {
    match op {
        Op::AddScalar => unary_op(x, |a| a + 1.0),
        Op::Where => ternary_op(x, |condition, a, b| condition.select(a, b)),
        Op::Clamp => unary_op(x, |a| a.clamp(-0.5, 0.5)),
        Op::MulAdd => ternary_op(x, |a, b, c| a.mul_add(b, c)),
        Op::Lerp => ternary_op(x, |a, b, t| a.lerp(b, t)),
        Op::Chain => binary_op(x, |x, y| (((x * y + x) * 0.5 - y).abs() + 1.0).sqrt() * x),
        Op::ChainExp => binary_op(x, |x, y| ((-(x * y + x)).exp() + 1.0).reciprocal() * x + y),
        _ => None,
    }
}
