//! Elementwise ops in one pass: `Zip`, in parallel for large inputs.

use bench_protocol::{Case, DType, Op, Prepared};
use ndarray::{ArrayD, Zip};

use crate::{Number, array, prepared};

/// From this many elements on, rayon is worth its overhead; ndarray leaves the choice to its user.
const MIN_PARALLEL_ELEMENTS: usize = 1 << 15;

fn map1<A: Number + Sync, R: Number + Send>(
    case: &Case,
    f: impl Fn(A) -> R + Sync + Send + Copy + 'static,
) -> Option<Prepared> {
    let a = array::<A>(case, 0)?;
    prepared(move || {
        let zip = Zip::from(&a);
        if a.len() >= MIN_PARALLEL_ELEMENTS {
            zip.par_map_collect(|&a| f(a))
        } else {
            zip.map_collect(|&a| f(a))
        }
    })
}

fn map2<A: Number + Sync, R: Number + Send>(
    case: &Case,
    f: impl Fn(A, A) -> R + Sync + Send + Copy + 'static,
) -> Option<Prepared> {
    let (a, b) = (array::<A>(case, 0)?, array::<A>(case, 1)?);
    prepared(move || {
        let zip = Zip::from(&a).and_broadcast(&b);
        if a.len() >= MIN_PARALLEL_ELEMENTS {
            zip.par_map_collect(|&a, &b| f(a, b))
        } else {
            zip.map_collect(|&a, &b| f(a, b))
        }
    })
}

fn map3<A: Number + Sync, B: Number + Sync + Send>(
    case: &Case,
    f: impl Fn(A, B, B) -> B + Sync + Send + Copy + 'static,
) -> Option<Prepared> {
    let (a, b, c): (ArrayD<A>, ArrayD<B>, ArrayD<B>) =
        (array(case, 0)?, array(case, 1)?, array(case, 2)?);
    prepared(move || {
        let zip = Zip::from(&a).and(&b).and(&c);
        if a.len() >= MIN_PARALLEL_ELEMENTS {
            zip.par_map_collect(|&a, &b, &c| f(a, b, c))
        } else {
            zip.map_collect(|&a, &b, &c| f(a, b, c))
        }
    })
}

/// Prepares an elementwise case.
pub(crate) fn prepare(case: &Case) -> Option<Prepared> {
    unary(case)
        .or_else(|| activation(case))
        .or_else(|| binary(case))
        .or_else(|| other(case))
}

fn unary(case: &Case) -> Option<Prepared> {
    match case.op {
        Op::Neg => map1(case, |x: f32| -x),
        Op::Abs => map1(case, f32::abs),
        Op::Sign => map1(case, |x: f32| if x == 0.0 { 0.0 } else { x.signum() }),
        Op::Square => map1(case, |x: f32| x * x),
        Op::Sqrt => map1(case, f32::sqrt),
        Op::Rsqrt => map1(case, |x: f32| x.sqrt().recip()),
        Op::Reciprocal => map1(case, f32::recip),
        Op::Cbrt => map1(case, f32::cbrt),
        Op::Exp => map1(case, f32::exp),
        Op::Exp2 => map1(case, f32::exp2),
        Op::Expm1 => map1(case, f32::exp_m1),
        Op::Log => map1(case, f32::ln),
        Op::Log2 => map1(case, f32::log2),
        Op::Log10 => map1(case, f32::log10),
        Op::Log1p => map1(case, f32::ln_1p),
        Op::Logit => map1(case, |x: f32| (x / (1.0 - x)).ln()),
        Op::Sin => map1(case, f32::sin),
        Op::Cos => map1(case, f32::cos),
        Op::Tan => map1(case, f32::tan),
        Op::Asin => map1(case, f32::asin),
        Op::Acos => map1(case, f32::acos),
        Op::Atan => map1(case, f32::atan),
        Op::Sinh => map1(case, f32::sinh),
        Op::Cosh => map1(case, f32::cosh),
        Op::Tanh => map1(case, f32::tanh),
        Op::Asinh => map1(case, f32::asinh),
        Op::Acosh => map1(case, f32::acosh),
        Op::Atanh => map1(case, f32::atanh),
        Op::Ceil => map1(case, f32::ceil),
        Op::Floor => map1(case, f32::floor),
        Op::Round => map1(case, f32::round_ties_even),
        Op::Trunc => map1(case, f32::trunc),
        Op::IsNan => map1(case, f32::is_nan),
        Op::IsInf => map1(case, f32::is_infinite),
        Op::IsFinite => map1(case, f32::is_finite),
        Op::LogicalNot => map1(case, |x: bool| !x),
        Op::BitwiseNot => map1(case, |x: i32| !x),
        _ => None,
    }
}

fn activation(case: &Case) -> Option<Prepared> {
    match case.op {
        Op::Sigmoid => map1(case, sigmoid),
        Op::LogSigmoid => map1(case, |x: f32| x.min(0.0) - (-x.abs()).exp().ln_1p()),
        Op::Softplus => map1(case, softplus),
        Op::Relu => map1(case, |x: f32| x.max(0.0)),
        Op::LeakyRelu => map1(case, |x: f32| if x > 0.0 { x } else { 0.01 * x }),
        Op::Elu => map1(case, |x: f32| if x > 0.0 { x } else { x.exp_m1() }),
        Op::Silu => map1(case, |x: f32| x * sigmoid(x)),
        Op::GeluTanh => map1(case, gelu_tanh),
        Op::Hardswish => map1(case, |x: f32| x * (x + 3.0).clamp(0.0, 6.0) / 6.0),
        Op::Mish => map1(case, |x: f32| x * softplus(x).tanh()),
        Op::Swiglu => map2(case, |gate: f32, up: f32| gate * sigmoid(gate) * up),
        Op::Geglu => map2(case, |gate: f32, up: f32| gelu_tanh(gate) * up),
        _ => None,
    }
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

fn gelu_tanh(x: f32) -> f32 {
    0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh())
}

fn binary(case: &Case) -> Option<Prepared> {
    match case.op {
        Op::Add => map2(case, |a: f32, b: f32| a + b),
        Op::Sub => map2(case, |a: f32, b: f32| a - b),
        Op::Mul => map2(case, |a: f32, b: f32| a * b),
        Op::Div => map2(case, |a: f32, b: f32| a / b),
        Op::FloorDiv => map2(case, |a: f32, b: f32| (a / b).floor()),
        Op::Rem => map2(case, |a: f32, b: f32| {
            let r = a % b;
            if r != 0.0 && (r < 0.0) != (b < 0.0) {
                r + b
            } else {
                r
            }
        }),
        Op::Pow => map2(case, f32::powf),
        Op::Minimum => map2(case, f32::min),
        Op::Maximum => map2(case, f32::max),
        Op::Atan2 => map2(case, f32::atan2),
        Op::Hypot => map2(case, f32::hypot),
        Op::Eq => map2(case, |a: f32, b: f32| a == b),
        Op::Ne => map2(case, |a: f32, b: f32| a != b),
        Op::Lt => map2(case, |a: f32, b: f32| a < b),
        Op::Le => map2(case, |a: f32, b: f32| a <= b),
        Op::Gt => map2(case, |a: f32, b: f32| a > b),
        Op::Ge => map2(case, |a: f32, b: f32| a >= b),
        Op::LogicalAnd => map2(case, |a: bool, b: bool| a & b),
        Op::LogicalOr => map2(case, |a: bool, b: bool| a | b),
        Op::LogicalXor => map2(case, |a: bool, b: bool| a ^ b),
        Op::BitwiseAnd => map2(case, |a: i32, b: i32| a & b),
        Op::BitwiseOr => map2(case, |a: i32, b: i32| a | b),
        Op::BitwiseXor => map2(case, |a: i32, b: i32| a ^ b),
        Op::ShiftLeft => map2(case, |a: i32, b: i32| a << (b & 31)),
        Op::ShiftRight => map2(case, |a: i32, b: i32| a >> (b & 31)),
        _ => None,
    }
}

fn other(case: &Case) -> Option<Prepared> {
    match case.op {
        Op::AddScalar => map1(case, |x: f32| x + 1.0),
        Op::Clamp => map1(case, |x: f32| x.clamp(-0.5, 0.5)),
        Op::Where => map3(case, |c: bool, a: f32, b: f32| if c { a } else { b }),
        Op::MulAdd => map3(case, |a: f32, b: f32, c: f32| a * b + c),
        Op::Lerp => map3(case, |a: f32, b: f32, t: f32| a + t * (b - a)),
        Op::Chain => map2(case, |x: f32, y: f32| {
            (((x * y + x) * 0.5 - y).abs() + 1.0).sqrt() * x
        }),
        Op::ChainExp => map2(case, |x: f32, y: f32| {
            (1.0 + (-(x * y + x)).exp()).recip() * x + y
        }),
        Op::Cast => match (case.inputs[0].dtype, case.to?) {
            (DType::F32, DType::F64) => map1(case, |x: f32| f64::from(x)),
            (DType::F64, DType::F32) => map1(case, |x: f64| x as f32),
            (DType::F32, DType::I32) => map1(case, |x: f32| x as i32),
            (DType::I32, DType::F32) => map1(case, |x: i32| x as f32),
            (DType::U8, DType::F32) => map1(case, |x: u8| f32::from(x)),
            _ => None,
        },
        _ => None,
    }
}
