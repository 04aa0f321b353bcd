//! Indexing, and copies of views.

use super::{Compute, one, three, two};
use bench_protocol::{Case, Op};
use bessemer::Tensor;

pub(super) fn function(case: &Case, x: &[Tensor]) -> Option<Compute> {
    match case.op {
        Op::Gather => two(x, |a, i| a.gather(-1, i)),
        Op::Take => two(x, |a, i| a.take(0, i)),
        Op::Embedding => two(x, |table, ids| table.embedding(ids)),
        Op::Scatter => three(x, |a, i, s| a.scatter(-1, i, s)),
        Op::ScatterAdd => three(x, |a, i, s| a.scatter_add(-1, i, s)),
        Op::MaskedSelect => two(x, |a, m| a.masked_select(m)),
        Op::SliceUpdate => two(x, |a, s| a.slice_update(s, &[0, 16])),
        Op::Concat => two(x, |a, b| Tensor::concat(&[a, b], 0)),
        Op::Stack => two(x, |a, b| Tensor::stack(&[a, b], 0)),
        Op::Split => one(x, |a| {
            let mut parts: Vec<_> = a.split(4, -1).iter().map(Tensor::contiguous).collect();
            // An error stays in the parts, where the caller meets it.
            drop(bessemer::eval(&parts.iter().collect::<Vec<_>>()));
            parts.pop().unwrap_or_else(|| a.clone())
        }),
        Op::Repeat => one(x, |a| a.repeat(2, 0)),
        Op::Tile => one(x, |a| a.tile(&[2, 2])),
        Op::Pad => one(x, |a| a.pad(&[(1, 1), (1, 1)], 0.0)),
        Op::Roll => one(x, |a| a.roll(7, 1)),
        Op::Tril => one(x, |a| a.tril(0)),
        Op::Triu => one(x, |a| a.triu(0)),
        Op::Flip => one(x, |a| a.flip(&[-1]).contiguous()),
        // A tensor whose elements lie in order is its own copy; joined to nothing, it is a new one.
        Op::Copy => one(x, |a| Tensor::concat(&[a], 0)),
        Op::TransposeCopy => one(x, |a| a.t().contiguous()),
        Op::StridedCopy => one(x, |a| a.slice(-1, None, None, 2).contiguous()),
        _ => None,
    }
}
