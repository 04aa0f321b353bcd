//! Linear algebra.

use super::{Compute, one, three, two};
use bench_protocol::{Case, Op};
use bessemer::Tensor;

pub(super) fn function(case: &Case, x: &[Tensor]) -> Option<Compute> {
    match case.op {
        Op::Matmul => two(x, Tensor::matmul),
        Op::MatmulTransposed => two(x, |a, b| a.matmul(&b.t())),
        Op::MatmulPacked => {
            let weight = x[1].prepack().ok()?;
            one(x, move |a| a.matmul_packed(&weight))
        }
        Op::Matvec => two(x, Tensor::matvec),
        Op::Dot => two(x, Tensor::dot),
        Op::Outer => two(x, Tensor::outer),
        Op::Einsum => {
            let equation = case.equation.clone()?;
            two(x, move |a, b| Tensor::einsum(&equation, &[a, b]))
        }
        Op::Gemm => {
            let (alpha, beta) = (case.number("alpha"), case.number("beta"));
            three(x, move |a, b, c| Tensor::gemm(a, b, c, alpha, beta))
        }
        _ => None,
    }
}
