//! Ops of neural networks.

use super::{Compute, one, three, two};
use bench_protocol::{Case, Op};
use bessemer::{AttentionOptions, RopeOptions, RopeStyle, Tensor};

pub(super) fn function(case: &Case, x: &[Tensor]) -> Option<Compute> {
    let eps = case.number("eps");
    match case.op {
        Op::Softmax => one(x, |a| a.softmax(-1)),
        Op::LogSoftmax => one(x, |a| a.log_softmax(-1)),
        Op::RmsNorm => two(x, move |a, w| a.rms_norm(w, eps)),
        Op::LayerNorm => three(x, move |a, w, b| a.layer_norm(Some(w), Some(b), eps)),
        Op::Rope | Op::RopeInterleaved => rope(case, x),
        Op::Attention => {
            let causal = case.whole("causal") > 0;
            three(x, move |q, k, v| {
                let options = AttentionOptions {
                    causal,
                    ..AttentionOptions::default()
                };
                q.attention(k, v, &options)
            })
        }
        _ => None,
    }
}

fn rope(case: &Case, x: &[Tensor]) -> Option<Compute> {
    let options = RopeOptions {
        style: match case.op {
            Op::RopeInterleaved => RopeStyle::Interleaved,
            _ => RopeStyle::default(),
        },
        base: case.number("base"),
        ..RopeOptions::default()
    };
    let table = options.table(*case.inputs[0].shape.last()?).ok()?;
    let offset = case.whole("offset");
    one(x, move |a| a.rope_with(&table, offset))
}
