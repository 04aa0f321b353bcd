//! Indexing, and copies of views.

use bench_protocol::{Case, Op};
use bessemer::Tensor;

use super::{Compute, binary_op, ternary_op, unary_op};

pub(super) fn function(case: &Case, x: &[Tensor]) -> Option<Compute> {
    match case.op {
        Op::Gather => binary_op(x, |a, i| a.gather(-1, i)),
        Op::Take => binary_op(x, |a, i| a.take(0, i)),
        Op::Embedding => binary_op(x, |table, ids| table.embedding(ids)),
        Op::Scatter => ternary_op(x, |a, i, s| a.scatter(-1, i, s)),
        Op::ScatterAdd => ternary_op(x, |a, i, s| a.scatter_add(-1, i, s)),
        Op::MaskedSelect => binary_op(x, |a, m| a.masked_select(m)),
        Op::SliceUpdate => binary_op(x, |a, s| a.slice_update(s, &[0, 16])),
        Op::Concat => binary_op(x, |a, b| Tensor::concat(&[a, b], 0)),
        Op::Stack => binary_op(x, |a, b| Tensor::stack(&[a, b], 0)),
        Op::Split => unary_op(x, |a| {
            let mut parts: Vec<_> = a.split(4, -1).iter().map(Tensor::contiguous).collect();
            // Errors stay in the sections, where the caller finds them.
            drop(bessemer::eval(&parts.iter().collect::<Vec<_>>()));
            parts.pop().unwrap_or_else(|| a.clone())
        }),
        Op::Repeat => unary_op(x, |a| a.repeat(2, 0)),
        Op::Tile => unary_op(x, |a| a.tile(&[2, 2])),
        Op::Pad => unary_op(x, |a| a.pad(&[(1, 1), (1, 1)], 0.0)),
        Op::Roll => unary_op(x, |a| a.roll(7, 1)),
        Op::Tril => unary_op(x, |a| a.tril(0)),
        Op::Triu => unary_op(x, |a| a.triu(0)),
        Op::Flip => unary_op(x, |a| a.flip(&[-1]).contiguous()),
        // `contiguous` returns a contiguous tensor itself; concatenation with nothing copies it.
        Op::Copy => unary_op(x, |a| Tensor::concat(&[a], 0)),
        Op::TransposeCopy => unary_op(x, |a| a.t().contiguous()),
        Op::StridedCopy => unary_op(x, |a| a.slice(-1, None, None, 2).contiguous()),
        _ => None,
    }
}
