//! Ops of neural networks.

use super::{Compute, one, three, two};
use bench_protocol::{Case, Op};
use bessemer::Tensor;

pub(super) fn function(case: &Case, x: &[Tensor]) -> Option<Compute> {
    let eps = case.number("eps");
    match case.op {
        Op::Softmax => one(x, |a| a.softmax(-1)),
        Op::LogSoftmax => one(x, |a| a.log_softmax(-1)),
        Op::RmsNorm => two(x, move |a, w| a.rms_norm(w, eps)),
        Op::LayerNorm => three(x, move |a, w, b| a.layer_norm(Some(w), Some(b), eps)),
        _ => None,
    }
}
