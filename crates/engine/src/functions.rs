//! The tables of elementwise functions, a row each.
//!
//! `for_each_unary!(m)` expands to `m! { … }` with all rows, and so declares the enum and the methods of `Tensor` in
//! `ops/unary.rs` and the kernels on the CPU and on Metal; in `bessemer-testing` the names, the tolerances and the
//! fuzzer's calls. A row of [`for_each_unary!`] is
//!
//! ```text
//! Variant method(parameter = value) Result file ulp(f32, f64) steps(f32, f64, metal);
//! ```
//!
//! - the parameter, if there is one, with the value that tests give it;
//! - the result, see `Answer` in `ops/unary.rs`;
//! - where the function is: `unary` stands for arithmetic, written out in `cpu/unary.rs` and `metal/msl/unary.metal`;
//!   any other name for a function `method` in `cpu/math/file.rs` and `unary_method` in `metal/msl/file.h`;
//! - `ulp`: the largest error on the CPU in units in the last place, as measured with and without FMA, `f32` on a walk
//!   through all bit patterns, `f64` on 12,000 numbers of all sorts against 50 digits, and rounded up;
//! - `steps`: the tolerance of tests, which `tolerance.rs` of `bessemer-testing` explains. Without it a function is
//!   exact.
//!
//! [`for_each_unary!`]: crate::for_each_unary

/// The functions of one element.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_unary {
    ($callback:ident) => {
        $callback! {
            /// `-x`; integers wrap.
            Neg neg Number unary;
            /// `|x|`; the least integer stays itself.
            Abs abs Same unary;
            /// -1, 0 or 1, and NaN for NaN.
            Sign sign Number unary;
            /// `x * x`.
            Square square Number unary;
            /// The square root; NaN below 0.
            Sqrt sqrt Float unary;
            /// `1 / sqrt(x)`.
            Rsqrt rsqrt Float unary ulp(1.5, 1.5) steps(1.0, 2.0, 1.0);
            /// `1 / x`.
            Reciprocal reciprocal Float unary;
            /// The cube root, also of negative numbers.
            Cbrt cbrt Float power ulp(0.6, 0.6) steps(0.1, 1.5, 0.1);
            /// `e^x`.
            Exp exp Float exp ulp(1.0, 1.0) steps(0.5, 1.5, 0.5);
            /// `2^x`.
            Exp2 exp2 Float exp ulp(1.1, 1.2) steps(0.6, 1.5, 0.6);
            /// `e^x - 1`, exact near 0.
            Expm1 expm1 Float exp ulp(1.4, 1.8) steps(1.0, 2.0, 1.0);
            /// The natural logarithm.
            Log log Float log ulp(0.8, 0.8) steps(0.5, 1.5, 0.5);
            /// The logarithm to base 2.
            Log2 log2 Float log ulp(0.7, 0.7) steps(0.5, 1.5, 0.5);
            /// The logarithm to base 10.
            Log10 log10 Float log ulp(0.6, 0.7) steps(0.5, 2.0, 0.5);
            /// `log(1 + x)`, exact near 0.
            Log1p log1p Float log ulp(1.3, 0.9) steps(1.0, 2.0, 1.0);
            /// The sine of radians.
            Sin sin Float trig ulp(1.4, 0.8) steps(1.0, 1.5, 1.0);
            /// The cosine of radians.
            Cos cos Float trig ulp(1.4, 0.8) steps(1.0, 1.5, 1.0);
            /// The tangent of radians.
            Tan tan Float trig ulp(1.3, 2.0) steps(0.8, 3.0, 2.5);
            /// The inverse sine.
            Asin asin Float inverse_trig ulp(2.3, 2.2) steps(2.0, 2.5, 2.0);
            /// The inverse cosine.
            Acos acos Float inverse_trig ulp(1.1, 1.2) steps(2.0, 2.5, 2.0);
            /// The inverse tangent.
            Atan atan Float inverse_trig ulp(1.8, 1.2) steps(1.5, 2.5, 1.5);
            /// The hyperbolic sine.
            Sinh sinh Float hyperbolic ulp(1.4, 1.6) steps(1.5, 3.0, 1.5);
            /// The hyperbolic cosine.
            Cosh cosh Float hyperbolic ulp(1.4, 1.5) steps(1.5, 3.0, 1.5);
            /// The hyperbolic tangent.
            Tanh tanh Float hyperbolic ulp(1.2, 1.4) steps(1.0, 3.0, 1.0);
            /// The inverse hyperbolic sine.
            Asinh asinh Float hyperbolic ulp(0.6, 1.8) steps(0.1, 4.5, 1.5);
            /// The inverse hyperbolic cosine.
            Acosh acosh Float hyperbolic ulp(0.6, 1.8) steps(0.1, 4.5, 1.5);
            /// The inverse hyperbolic tangent.
            Atanh atanh Float hyperbolic ulp(1.4, 1.8) steps(0.9, 4.5, 1.5);
            /// The error function.
            Erf erf Float erf ulp(1.0, 1.2) steps(1.0, 3.0, 1.0);
            /// `1 / (1 + exp(-x))`.
            Sigmoid sigmoid Float activation ulp(1.8, 1.8) steps(1.5, 3.5, 1.5);
            /// `log(sigmoid(x))`.
            LogSigmoid log_sigmoid Float activation ulp(1.5, 1.8) steps(2.5, 4.5, 2.5);
            /// `log(1 + exp(x))`.
            Softplus softplus Float activation ulp(1.6, 1.8) steps(2.5, 4.5, 2.5);
            /// `max(x, 0)`; NaN stays NaN.
            Relu relu Number unary;
            /// `x * sigmoid(x)`.
            Silu silu Float activation ulp(2.9, 3.0) steps(2.5, 4.0, 2.5);
            /// `x * (1 + erf(x / sqrt(2))) / 2`.
            Gelu gelu Float erf ulp(2.6, 3.8) steps(3.5, 7.5, 3.5);
            /// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x³))) / 2`.
            GeluTanh gelu_tanh Float activation ulp(2.7, 2.7) steps(3.5, 5.5, 3.5);
            /// `x * clamp(x + 3, 0, 6) / 6`.
            Hardswish hardswish Float unary steps(1.5, 1.5, 1.5);
            /// `x * tanh(softplus(x))`.
            Mish mish Float activation ulp(3.2, 3.2) steps(3.5, 7.5, 3.5);
            /// The next integer up.
            Ceil ceil Same unary;
            /// The next integer down.
            Floor floor Same unary;
            /// The nearest integer; halves to the even one.
            Round round Same unary;
            /// The integer part.
            Trunc trunc Same unary;
            /// Whether it is not a number.
            IsNan is_nan Bool unary;
            /// Whether it is infinite.
            IsInf is_inf Bool unary;
            /// Whether it is neither infinite nor NaN.
            IsFinite is_finite Bool unary;
            /// Whether it is 0.
            LogicalNot logical_not Bool unary;
            /// All bits turned over; `not` for truth values.
            BitwiseNot bitwise_not Same unary;
            /// `x` above 0, `slope * x` below.
            LeakyRelu leaky_relu(slope = 0.125) Float unary steps(0.5, 0.5, 0.5);
            /// `x` above 0, `alpha * (exp(x) - 1)` below.
            Elu elu(alpha = 1.5) Float activation ulp(1.6, 2.0) steps(1.5, 3.0, 1.5);
        }
    };
}

/// The functions of two elements: `Variant method Types file ulp(…) steps(…);`, as in [`for_each_unary!`], with `Types` of
/// `ops/binary.rs`. The file is that of floats; functions of integers are all in `cpu/binary.rs` and
/// `metal/msl/binary.metal`.
///
/// [`for_each_unary!`]: crate::for_each_unary
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_binary {
    ($callback:ident) => {
        $callback! {
            /// `a + b`; integers wrap, truth values are or-ed.
            Add add Same binary;
            /// `a - b`; integers wrap.
            Sub sub Number binary;
            /// `a * b`; integers wrap, truth values are and-ed.
            Mul mul Same binary;
            /// `a / b`, of integers too: in `f64`.
            Div div TrueFloat binary;
            /// `floor(a / b)`; of integers 0 where `b` is 0.
            FloorDiv floor_div Number binary steps(4.0, 4.0, 4.0);
            /// What `floor_div` leaves, with the sign of `b`; of integers 0 where `b` is 0.
            Rem rem Number binary steps(0.5, 0.5, 0.5);
            /// `a` to the power of `b`; of integers wrapping, and 0 for negative `b` unless `a` is 1 or -1.
            Pow pow Number power ulp(0.6, 1.4) steps(0.1, 1.5, 0.5);
            /// The lesser; NaN if one is.
            Minimum minimum Same binary;
            /// The greater; NaN if one is.
            Maximum maximum Same binary;
            /// The angle of the point (`b`, `a`).
            Atan2 atan2 Float inverse_trig ulp(0.6, 2.2) steps(0.1, 3.0, 2.0);
            /// `sqrt(a² + b²)` without overflow on the way.
            Hypot hypot Float power ulp(0.6, 1.3) steps(0.1, 2.0, 0.5);
            /// `a == b`
            Eq eq Compare binary;
            /// `a != b`
            Ne ne Compare binary;
            /// `a < b`
            Lt lt Compare binary;
            /// `a <= b`
            Le le Compare binary;
            /// `a > b`
            Gt gt Compare binary;
            /// `a >= b`
            Ge ge Compare binary;
            /// Whether both are not 0.
            LogicalAnd logical_and Logic binary;
            /// Whether one is not 0.
            LogicalOr logical_or Logic binary;
            /// Whether exactly one is not 0.
            LogicalXor logical_xor Logic binary;
            /// The bits of both.
            BitwiseAnd bitwise_and Bits binary;
            /// The bits of either.
            BitwiseOr bitwise_or Bits binary;
            /// The bits of exactly one.
            BitwiseXor bitwise_xor Bits binary;
            /// Bits moved up; 0 where `b` is the width or more, or negative.
            ShiftLeft shift_left Int binary;
            /// Bits moved down, the sign filling in; all sign where `b` is the width or more, or negative.
            ShiftRight shift_right Int binary;
        }
    };
}

/// The functions of three elements: `Variant method(b, c) Types ternary steps(…);`, with `Types` of `ops/ternary.rs`. All are
/// in `cpu/ternary.rs` and `metal/msl/ternary.metal`.
#[doc(hidden)]
#[macro_export]
macro_rules! for_each_ternary {
    ($callback:ident) => {
        $callback! {
            /// The elements of `a` where this tensor of truth values holds, those of `b` elsewhere: `where` of other
            /// libraries.
            Select select(a, b) Condition ternary;
            /// `min(max(x, low), high)`; NaN if one is.
            Clamp clamp(low, high) Same ternary;
            /// `x * b + c`, rounded once for floats.
            MulAdd mul_add(b, c) Number ternary steps(0.01, 0.01, 0.01);
            /// `x + t * (b - x)`: from this to `b` as `t` goes from 0 to 1.
            Lerp lerp(b, t) Float ternary;
        }
    };
}
