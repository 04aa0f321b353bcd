//! Reductions, scans, sorts.

use bench_protocol::{Case, Op};
use bessemer::Tensor;

use super::{Compute, unary_op};

pub(super) fn function(case: &Case, x: &[Tensor]) -> Option<Compute> {
    let axes: &'static [isize] = match case.axis() {
        None => &[],
        Some(0) => &[0],
        Some(_) => &[-1],
    };
    let along = case.axis().unwrap_or(-1);
    match case.op {
        Op::Sum => unary_op(x, |a| a.sum(axes, false)),
        Op::Mean => unary_op(x, |a| a.mean(axes, false)),
        Op::Prod => unary_op(x, |a| a.prod(axes, false)),
        Op::Min => unary_op(x, |a| a.min(axes, false)),
        Op::Max => unary_op(x, |a| a.max(axes, false)),
        Op::Any => unary_op(x, |a| a.any(axes, false)),
        Op::All => unary_op(x, |a| a.all(axes, false)),
        Op::Var => unary_op(x, |a| a.var(axes, false, 0)),
        Op::Std => unary_op(x, |a| a.std(axes, false, 0)),
        Op::Logsumexp => unary_op(x, |a| a.logsumexp(axes, false)),
        Op::Norm => unary_op(x, |a| a.norm(axes, false, 2.0)),
        Op::Argmin => unary_op(x, move |a| a.argmin(along, false)),
        Op::Argmax => unary_op(x, move |a| a.argmax(along, false)),
        Op::Cumsum => unary_op(x, move |a| a.cumsum(along)),
        Op::Cumprod => unary_op(x, move |a| a.cumprod(along)),
        Op::Cummax => unary_op(x, move |a| a.cummax(along)),
        Op::Sort => unary_op(x, |a| a.sort(-1)),
        Op::Argsort => unary_op(x, |a| a.argsort(-1)),
        Op::Topk => {
            let k = case.whole("k");
            unary_op(x, move |a| a.topk(k, -1, true).0)
        }
        _ => None,
    }
}
