//! Elementwise ops.

use super::{Compute, dtype, one, three, two};
use bench_protocol::{Case, Op};
use bessemer::Tensor;

pub(super) fn function(case: &Case, x: &[Tensor]) -> Option<Compute> {
    if case.op == Op::Cast {
        let to = dtype(case.to?);
        return one(x, move |a| a.cast(to));
    }
    unary(case.op)
        .and_then(|f| one(x, f))
        .or_else(|| binary(case.op, x))
        .or_else(|| other(case.op, x))
}

fn unary(op: Op) -> Option<fn(&Tensor) -> Tensor> {
    Some(match op {
        Op::Neg => Tensor::neg,
        Op::Abs => Tensor::abs,
        Op::Sign => Tensor::sign,
        Op::Square => Tensor::square,
        Op::Sqrt => Tensor::sqrt,
        Op::Rsqrt => Tensor::rsqrt,
        Op::Reciprocal => Tensor::reciprocal,
        Op::Cbrt => Tensor::cbrt,
        Op::Exp => Tensor::exp,
        Op::Exp2 => Tensor::exp2,
        Op::Expm1 => Tensor::expm1,
        Op::Log => Tensor::log,
        Op::Log2 => Tensor::log2,
        Op::Log10 => Tensor::log10,
        Op::Log1p => Tensor::log1p,
        Op::Sin => Tensor::sin,
        Op::Cos => Tensor::cos,
        Op::Tan => Tensor::tan,
        Op::Asin => Tensor::asin,
        Op::Acos => Tensor::acos,
        Op::Atan => Tensor::atan,
        Op::Sinh => Tensor::sinh,
        Op::Cosh => Tensor::cosh,
        Op::Tanh => Tensor::tanh,
        Op::Asinh => Tensor::asinh,
        Op::Acosh => Tensor::acosh,
        Op::Atanh => Tensor::atanh,
        Op::Erf => Tensor::erf,
        Op::Sigmoid => Tensor::sigmoid,
        Op::LogSigmoid => Tensor::log_sigmoid,
        Op::Softplus => Tensor::softplus,
        Op::Relu => Tensor::relu,
        Op::LeakyRelu => |x| x.leaky_relu(0.01),
        Op::Elu => |x| x.elu(1.0),
        Op::Silu => Tensor::silu,
        Op::Gelu => Tensor::gelu,
        Op::GeluTanh => Tensor::gelu_tanh,
        Op::Hardswish => Tensor::hardswish,
        Op::Mish => Tensor::mish,
        Op::Ceil => Tensor::ceil,
        Op::Floor => Tensor::floor,
        Op::Round => Tensor::round,
        Op::Trunc => Tensor::trunc,
        Op::IsNan => Tensor::is_nan,
        Op::IsInf => Tensor::is_inf,
        Op::IsFinite => Tensor::is_finite,
        Op::LogicalNot => Tensor::logical_not,
        Op::BitwiseNot => Tensor::bitwise_not,
        _ => return None,
    })
}

fn binary(op: Op, x: &[Tensor]) -> Option<Compute> {
    match op {
        Op::Add => two(x, |a, b| a + b),
        Op::Sub => two(x, |a, b| a - b),
        Op::Mul => two(x, |a, b| a * b),
        Op::Div => two(x, |a, b| a / b),
        Op::FloorDiv => two(x, |a, b| a.floor_div(b)),
        Op::Rem => two(x, |a, b| a.rem(b)),
        Op::Pow => two(x, |a, b| a.pow(b)),
        Op::Minimum => two(x, |a, b| a.minimum(b)),
        Op::Maximum => two(x, |a, b| a.maximum(b)),
        Op::Atan2 => two(x, |a, b| a.atan2(b)),
        Op::Hypot => two(x, |a, b| a.hypot(b)),
        Op::Eq => two(x, |a, b| a.eq(b)),
        Op::Ne => two(x, |a, b| a.ne(b)),
        Op::Lt => two(x, |a, b| a.lt(b)),
        Op::Le => two(x, |a, b| a.le(b)),
        Op::Gt => two(x, |a, b| a.gt(b)),
        Op::Ge => two(x, |a, b| a.ge(b)),
        Op::LogicalAnd => two(x, |a, b| a.logical_and(b)),
        Op::LogicalOr => two(x, |a, b| a.logical_or(b)),
        Op::LogicalXor => two(x, |a, b| a.logical_xor(b)),
        Op::BitwiseAnd => two(x, |a, b| a & b),
        Op::BitwiseOr => two(x, |a, b| a | b),
        Op::BitwiseXor => two(x, |a, b| a ^ b),
        Op::ShiftLeft => two(x, |a, b| a << b),
        Op::ShiftRight => two(x, |a, b| a >> b),
        _ => None,
    }
}

fn other(op: Op, x: &[Tensor]) -> Option<Compute> {
    match op {
        Op::AddScalar => one(x, |a| a + 1.0),
        Op::Where => three(x, |condition, a, b| condition.select(a, b)),
        Op::Clamp => one(x, |a| a.clamp(-0.5, 0.5)),
        Op::MulAdd => three(x, |a, b, c| a.mul_add(b, c)),
        Op::Lerp => three(x, |a, b, t| a.lerp(b, t)),
        Op::Chain => two(x, |x, y| (((x * y + x) * 0.5 - y).abs() + 1.0).sqrt() * x),
        Op::ChainExp => two(x, |x, y| ((-(x * y + x)).exp() + 1.0).reciprocal() * x + y),
        _ => None,
    }
}
