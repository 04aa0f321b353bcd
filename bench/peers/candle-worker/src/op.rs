//! The ops as candle's documentation and models write them.

use bench_protocol::{Case, DType, Op};
use candle_core::{D, Device, Result, Tensor};
use candle_nn::attention::{AttnMask, flash_attn};
use candle_nn::{Module, ModuleT, ops, rotary_emb};

/// A computation that is ready to run.
pub(crate) type Compute = Box<dyn Fn() -> Result<Tensor>>;

/// The computation of a case; `None` if candle has no such op.
pub(crate) fn function(case: &Case, x: Vec<Tensor>) -> Result<Option<Compute>> {
    Ok(elementwise(case, &x)
        .or_else(|| reduction(case, &x))
        .or_else(|| linear(case, &x))
        .or_else(|| index(case, &x))
        .map_or_else(|| neural(case, &x), |c| Ok(Some(c)))?)
}

fn unary_op(x: &[Tensor], f: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Option<Compute> {
    let a = x[0].clone();
    Some(Box::new(move || f(&a)))
}

fn binary_op(
    x: &[Tensor],
    f: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + 'static,
) -> Option<Compute> {
    let (a, b) = (x[0].clone(), x[1].clone());
    Some(Box::new(move || f(&a, &b)))
}

fn ternary_op(
    x: &[Tensor],
    f: impl Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor> + 'static,
) -> Option<Compute> {
    let (a, b, c) = (x[0].clone(), x[1].clone(), x[2].clone());
    Some(Box::new(move || f(&a, &b, &c)))
}

fn elementwise(case: &Case, x: &[Tensor]) -> Option<Compute> {
    match case.op {
        Op::Neg => unary_op(x, Tensor::neg),
        Op::Abs => unary_op(x, Tensor::abs),
        Op::Sign => unary_op(x, Tensor::sign),
        Op::Square => unary_op(x, Tensor::sqr),
        Op::Sqrt => unary_op(x, Tensor::sqrt),
        Op::Rsqrt => unary_op(x, |a| a.sqrt()?.recip()),
        Op::Reciprocal => unary_op(x, Tensor::recip),
        Op::Exp => unary_op(x, Tensor::exp),
        Op::Log => unary_op(x, Tensor::log),
        Op::Sin => unary_op(x, Tensor::sin),
        Op::Cos => unary_op(x, Tensor::cos),
        Op::Tanh => unary_op(x, Tensor::tanh),
        Op::Erf => unary_op(x, Tensor::erf),
        Op::Sigmoid => unary_op(x, ops::sigmoid),
        Op::Relu => unary_op(x, Tensor::relu),
        Op::LeakyRelu => unary_op(x, |a| ops::leaky_relu(a, 0.01)),
        Op::Elu => unary_op(x, |a| a.elu(1.0)),
        Op::Silu => unary_op(x, ops::silu),
        Op::Gelu => unary_op(x, Tensor::gelu_erf),
        Op::GeluTanh => unary_op(x, Tensor::gelu),
        Op::Hardswish => unary_op(x, |a| a * ops::hard_sigmoid(a)?),
        Op::Mish => unary_op(x, ops::mish),
        Op::Softplus => unary_op(x, |a| (a.exp()? + 1.0)?.log()),
        Op::Ceil => unary_op(x, Tensor::ceil),
        Op::Floor => unary_op(x, Tensor::floor),
        Op::Round => unary_op(x, Tensor::round),
        Op::Add => binary_op(x, Tensor::broadcast_add),
        Op::AddScalar => unary_op(x, |a| a + 1.0),
        Op::Sub => binary_op(x, Tensor::broadcast_sub),
        Op::Mul => binary_op(x, Tensor::broadcast_mul),
        Op::Div => binary_op(x, Tensor::broadcast_div),
        Op::Pow => binary_op(x, Tensor::pow),
        Op::Minimum => binary_op(x, |a, b| a.minimum(b)),
        Op::Maximum => binary_op(x, |a, b| a.maximum(b)),
        Op::Eq => binary_op(x, |a, b| a.eq(b)),
        Op::Ne => binary_op(x, |a, b| a.ne(b)),
        Op::Lt => binary_op(x, |a, b| a.lt(b)),
        Op::Le => binary_op(x, |a, b| a.le(b)),
        Op::Gt => binary_op(x, |a, b| a.gt(b)),
        Op::Ge => binary_op(x, |a, b| a.ge(b)),
        Op::Where => ternary_op(x, Tensor::where_cond),
        Op::Clamp => unary_op(x, |a| a.clamp(-0.5, 0.5)),
        Op::MulAdd => ternary_op(x, |a, b, c| (a * b)? + c),
        Op::Lerp => ternary_op(x, |a, b, t| a + (t * (b - a)?)?),
        Op::Cast => {
            let to = match case.to? {
                DType::F16 => candle_core::DType::F16,
                DType::Bf16 => candle_core::DType::BF16,
                DType::F32 => candle_core::DType::F32,
                DType::F64 => candle_core::DType::F64,
                DType::I32 => candle_core::DType::I32,
                DType::I64 => candle_core::DType::I64,
                DType::U8 => candle_core::DType::U8,
                DType::Bool => return None,
            };
            unary_op(x, move |a| a.to_dtype(to))
        }
        Op::Chain => binary_op(x, |x, y| {
            (((x * y)? + x)?.affine(0.5, 0.0)? - y)?
                .abs()?
                .affine(1.0, 1.0)?
                .sqrt()?
                * x
        }),
        Op::ChainExp => binary_op(x, |x, y| {
            (((((x * y)? + x)?.neg()?.exp()? + 1.0)?.recip()? * x)?) + y
        }),
        _ => None,
    }
}

fn reduction(case: &Case, x: &[Tensor]) -> Option<Compute> {
    let rank = x.first()?.rank() as isize;
    let axis = case
        .axis()
        .map(|a| (if a < 0 { a + rank } else { a }) as usize);
    match (case.op, axis) {
        (Op::Sum, None) => unary_op(x, Tensor::sum_all),
        (Op::Sum, Some(d)) => unary_op(x, move |a| a.sum(d)),
        (Op::Mean, None) => unary_op(x, Tensor::mean_all),
        (Op::Mean, Some(d)) => unary_op(x, move |a| a.mean(d)),
        (Op::Min, None) => unary_op(x, Tensor::min_all),
        (Op::Min, Some(d)) => unary_op(x, move |a| a.min(d)),
        (Op::Max, None) => unary_op(x, Tensor::max_all),
        (Op::Max, Some(d)) => unary_op(x, move |a| a.max(d)),
        (Op::Argmin, Some(d)) => unary_op(x, move |a| a.argmin(d)),
        (Op::Argmax, Some(d)) => unary_op(x, move |a| a.argmax(d)),
        (Op::Logsumexp, Some(d)) => unary_op(x, move |a| a.log_sum_exp(d)),
        (Op::Norm, None) => unary_op(x, Tensor::norm),
        // candle multiplies by a triangular matrix as wide as the axis.
        (Op::Cumsum, Some(d)) if x[0].dims()[d] <= 4096 => {
            unary_op(x, move |a| a.cumsum(d)?.contiguous())
        }
        (Op::Sort, _) => unary_op(x, |a| Ok(a.sort_last_dim(true)?.0)),
        (Op::Argsort, _) => unary_op(x, |a| a.arg_sort_last_dim(true)),
        (Op::Topk, _) => {
            let k = case.whole("k");
            unary_op(x, move |a| {
                a.sort_last_dim(false)?
                    .0
                    .narrow(D::Minus1, 0, k)?
                    .contiguous()
            })
        }
        _ => None,
    }
}

fn linear(case: &Case, x: &[Tensor]) -> Option<Compute> {
    match case.op {
        Op::Matmul | Op::MatmulPacked => binary_op(x, |a, b| a.broadcast_matmul(b)),
        Op::MatmulTransposed => binary_op(x, |a, b| a.matmul(&b.t()?)),
        Op::Matvec => binary_op(x, Tensor::mv),
        Op::Dot => binary_op(x, Tensor::dot),
        Op::Outer => binary_op(x, |a, b| a.unsqueeze(1)?.broadcast_mul(&b.unsqueeze(0)?)),
        Op::Gemm => {
            let (alpha, beta) = (case.number("alpha"), case.number("beta"));
            ternary_op(x, move |a, b, c| {
                a.matmul(b)?.affine(alpha, 0.0)? + c.affine(beta, 0.0)?
            })
        }
        _ => None,
    }
}

fn index(case: &Case, x: &[Tensor]) -> Option<Compute> {
    match case.op {
        Op::Gather => binary_op(x, |a, i| a.gather(i, D::Minus1)),
        Op::Take => binary_op(x, |a, i| a.index_select(i, 0)),
        Op::Embedding => binary_op(x, |table, ids| table.embedding(ids)),
        Op::Scatter => ternary_op(x, |a, i, s| a.scatter(i, s, D::Minus1)),
        Op::ScatterAdd => ternary_op(x, |a, i, s| a.scatter_add(i, s, D::Minus1)),
        Op::SliceUpdate => binary_op(x, |a, s| a.slice_scatter(s, 1, 16)),
        Op::Concat => binary_op(x, |a, b| Tensor::cat(&[a, b], 0)),
        Op::Stack => binary_op(x, |a, b| Tensor::stack(&[a, b], 0)),
        Op::Split => unary_op(x, |a| {
            let parts = a
                .chunk(4, D::Minus1)?
                .iter()
                .map(Tensor::contiguous)
                .collect::<Result<Vec<_>>>()?;
            Ok(parts[3].clone())
        }),
        Op::Repeat => unary_op(x, |a| {
            let (rows, columns) = a.dims2()?;
            a.unsqueeze(1)?
                .expand((rows, 2, columns))?
                .reshape((2 * rows, columns))
        }),
        Op::Tile => unary_op(x, |a| a.repeat((2, 2))),
        Op::Pad => unary_op(x, |a| a.pad_with_zeros(0, 1, 1)?.pad_with_zeros(1, 1, 1)),
        Op::Roll => unary_op(x, |a| a.roll(7, 1)),
        Op::Flip => unary_op(x, |a| a.flip(&[1])),
        Op::TransposeCopy => unary_op(x, |a| a.t()?.contiguous()),
        Op::Copy => unary_op(x, Tensor::copy),
        _ => None,
    }
}

fn neural(case: &Case, x: &[Tensor]) -> Result<Option<Compute>> {
    let eps = case.number("eps");
    Ok(match case.op {
        Op::Softmax => unary_op(x, ops::softmax_last_dim),
        Op::LogSoftmax => unary_op(x, |a| ops::log_softmax(a, D::Minus1)),
        Op::RmsNorm => binary_op(x, move |a, w| ops::rms_norm(a, w, eps as f32)),
        Op::LayerNorm => ternary_op(x, move |a, w, b| ops::layer_norm(a, w, b, eps as f32)),
        Op::GroupNorm => {
            let (w, b) = (x[1].clone(), x[2].clone());
            let layer = candle_nn::GroupNorm::new(w, b, x[0].dim(1)?, case.whole("groups"), eps)?;
            unary_op(x, move |a| layer.forward(a))
        }
        Op::BatchNorm => {
            let [m, v, w, b] = [1, 2, 3, 4].map(|i| x[i].clone());
            let layer = candle_nn::BatchNorm::new(x[0].dim(1)?, m, v, w, b, eps)?;
            unary_op(x, move |a| layer.forward_t(a, false))
        }
        Op::Rope | Op::RopeInterleaved => {
            let (cos, sin) = rope_tables(case, &x[0])?;
            let interleaved = case.op == Op::RopeInterleaved;
            unary_op(x, move |a| {
                if interleaved {
                    rotary_emb::rope_i(a, &cos, &sin)
                } else {
                    rotary_emb::rope(a, &cos, &sin)
                }
            })
        }
        Op::Attention => {
            // candle expects [batch, position, head, width], as its own models use.
            let turned = x
                .iter()
                .map(|t| t.transpose(1, 2)?.contiguous())
                .collect::<Result<Vec<_>>>()?;
            let scale = (x[0].dim(3)? as f32).powf(-0.5);
            let causal = case.whole("causal") > 0 && x[0].dim(2)? > 1;
            ternary_op(&turned, move |q, k, v| {
                let mask = if causal {
                    AttnMask::causal()
                } else {
                    AttnMask::None
                };
                flash_attn::<f32>(q, k, v, scale, mask, None, None)
            })
        }
        Op::Swiglu => binary_op(x, |gate, up| ops::silu(gate)? * up),
        Op::Geglu => binary_op(x, |gate, up| gate.gelu()? * up),
        Op::CrossEntropy => binary_op(x, candle_nn::loss::cross_entropy),
        Op::Mse => binary_op(x, candle_nn::loss::mse),
        Op::Conv1d | Op::Conv2d => {
            let [padding, stride, groups] = ["padding", "stride", "groups"].map(|n| case.whole(n));
            let flat = case.op == Op::Conv1d;
            binary_op(x, move |a, w| {
                if flat {
                    a.conv1d(w, padding, stride, 1, groups.max(1))
                } else {
                    a.conv2d(w, padding, stride, 1, groups.max(1))
                }
            })
        }
        Op::MaxPool2d => {
            let size = case.whole("size");
            unary_op(x, move |a| a.max_pool2d(size))
        }
        Op::AvgPool2d => {
            let size = case.whole("size");
            unary_op(x, move |a| a.avg_pool2d(size))
        }
        Op::UpsampleNearest => unary_op(x, |a| a.upsample_nearest2d(a.dim(2)? * 2, a.dim(3)? * 2)),
        _ => None,
    })
}

fn rope_tables(case: &Case, x: &Tensor) -> Result<(Tensor, Tensor)> {
    let (positions, width) = (x.dim(2)?, x.dim(3)?);
    let angles: Vec<f64> = (0..positions)
        .flat_map(|p| (0..width / 2).map(move |i| (p, i)))
        .map(|(p, i)| {
            (p as f64 + case.number("offset"))
                * case.number("base").powf(-2.0 * i as f64 / width as f64)
        })
        .collect();
    let table = |f: fn(f64) -> f64| {
        let values: Vec<f32> = angles.iter().map(|&a| f(a) as f32).collect();
        Tensor::from_vec(values, (positions, width / 2), &Device::Cpu)
    };
    Ok((table(f64::cos)?, table(f64::sin)?))
}
