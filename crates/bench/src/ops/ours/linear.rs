//! Linear algebra.

use bench_protocol::{Case, Op};
use bessemer::Tensor;

use super::{Compute, binary_op, ternary_op, unary_op};

pub(super) fn function(case: &Case, x: &[Tensor]) -> Option<Compute> {
    match case.op {
        Op::Matmul => binary_op(x, Tensor::matmul),
        Op::MatmulTransposed => binary_op(x, |a, b| a.matmul(&b.t())),
        Op::MatmulPacked => {
            let weight = x[1].prepack().ok()?;
            unary_op(x, move |a| a.matmul_packed(&weight))
        }
        Op::Matvec => binary_op(x, Tensor::matvec),
        Op::Dot => binary_op(x, Tensor::dot),
        Op::Outer => binary_op(x, Tensor::outer),
        Op::Einsum => {
            let equation = case.equation.clone()?;
            binary_op(x, move |a, b| Tensor::einsum(&equation, &[a, b]))
        }
        Op::Gemm => {
            let (alpha, beta) = (case.number("alpha"), case.number("beta"));
            ternary_op(x, move |a, b, c| Tensor::gemm(a, b, c, alpha, beta))
        }
        _ => None,
    }
}
