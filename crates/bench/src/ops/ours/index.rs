//! Indexing, and copies of views.

use super::{Compute, one};
use bench_protocol::{Case, Op};
use bessemer::Tensor;

pub(super) fn function(case: &Case, x: &[Tensor]) -> Option<Compute> {
    match case.op {
        Op::Flip => one(x, |a| a.flip(&[-1]).contiguous()),
        Op::TransposeCopy => one(x, |a| a.t().contiguous()),
        Op::StridedCopy => one(x, |a| a.slice(-1, None, None, 2).contiguous()),
        _ => None,
    }
}
