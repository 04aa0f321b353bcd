//! Reductions, scans, sorts.

use super::{Compute, one};
use bench_protocol::{Case, Op};
use bessemer::Tensor;

pub(super) fn function(case: &Case, x: &[Tensor]) -> Option<Compute> {
    let axes: &'static [isize] = match case.axis() {
        None => &[],
        Some(0) => &[0],
        Some(_) => &[-1],
    };
    let along = case.axis().unwrap_or(-1);
    match case.op {
        Op::Sum => one(x, |a| a.sum(axes, false)),
        Op::Mean => one(x, |a| a.mean(axes, false)),
        Op::Prod => one(x, |a| a.prod(axes, false)),
        Op::Min => one(x, |a| a.min(axes, false)),
        Op::Max => one(x, |a| a.max(axes, false)),
        Op::Any => one(x, |a| a.any(axes, false)),
        Op::All => one(x, |a| a.all(axes, false)),
        Op::Var => one(x, |a| a.var(axes, false, 0)),
        Op::Std => one(x, |a| a.std(axes, false, 0)),
        Op::Logsumexp => one(x, |a| a.logsumexp(axes, false)),
        Op::Norm => one(x, |a| a.norm(axes, false, 2.0)),
        Op::Argmin => one(x, move |a| a.argmin(along, false)),
        Op::Argmax => one(x, move |a| a.argmax(along, false)),
        Op::Cumsum => one(x, move |a| a.cumsum(along)),
        Op::Cumprod => one(x, move |a| a.cumprod(along)),
        Op::Cummax => one(x, move |a| a.cummax(along)),
        Op::Sort => one(x, |a| a.sort(-1)),
        Op::Argsort => one(x, |a| a.argsort(-1)),
        Op::Topk => {
            let k = case.whole("k");
            one(x, move |a| a.topk(k, -1, true).0)
        }
        _ => None,
    }
}
