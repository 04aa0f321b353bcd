//! Ops of neural networks.

use bench_protocol::{Case, Op};
use bessemer::{AttentionOptions, ConvOptions, PoolOptions, RopeOptions, RopeStyle, Tensor};

use super::{Compute, binary_op, ternary_op, unary_op};

pub(super) fn function(case: &Case, x: &[Tensor]) -> Option<Compute> {
    let eps = case.number("eps");
    match case.op {
        Op::Softmax => unary_op(x, |a| a.softmax(-1)),
        Op::LogSoftmax => unary_op(x, |a| a.log_softmax(-1)),
        Op::RmsNorm => binary_op(x, move |a, w| a.rms_norm(w, eps)),
        Op::LayerNorm => ternary_op(x, move |a, w, b| a.layer_norm(Some(w), Some(b), eps)),
        Op::Rope | Op::RopeInterleaved => rope(case, x),
        Op::Attention => {
            let causal = case.whole("causal") > 0;
            ternary_op(x, move |q, k, v| {
                let options = AttentionOptions {
                    causal,
                    ..AttentionOptions::default()
                };
                q.attention(k, v, &options)
            })
        }
        Op::GroupNorm => {
            let groups = case.whole("groups");
            ternary_op(x, move |a, w, b| {
                a.group_norm(groups, Some(w), Some(b), eps)
            })
        }
        Op::BatchNorm => {
            let [mean, variance, weight, bias] = [1, 2, 3, 4].map(|i| x[i].clone());
            unary_op(x, move |a| {
                a.batch_norm(&mean, &variance, Some(&weight), Some(&bias), eps)
            })
        }
        Op::Swiglu => binary_op(x, Tensor::swiglu),
        Op::Geglu => binary_op(x, Tensor::geglu),
        Op::CrossEntropy => binary_op(x, Tensor::cross_entropy),
        Op::Mse => binary_op(x, Tensor::mse),
        Op::Conv1d => {
            let options = ConvOptions::<1> {
                stride: [case.whole("stride")],
                padding: [case.whole("padding")],
                ..ConvOptions::default()
            };
            binary_op(x, move |a, w| a.conv1d(w, None, &options))
        }
        Op::Conv2d => {
            let options = ConvOptions::<2> {
                stride: [case.whole("stride"); 2],
                padding: [case.whole("padding"); 2],
                ..ConvOptions::default()
            };
            binary_op(x, move |a, w| a.conv2d(w, None, &options))
        }
        Op::MaxPool2d => {
            let options = PoolOptions::new([case.whole("size"); 2]);
            unary_op(x, move |a| a.max_pool2d(&options))
        }
        Op::AvgPool2d => {
            let options = PoolOptions::new([case.whole("size"); 2]);
            unary_op(x, move |a| a.avg_pool2d(&options))
        }
        Op::UpsampleNearest => unary_op(x, |a| a.upsample_nearest(2)),
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
    unary_op(x, move |a| a.rope_with(&table, offset))
}
