//! Tables of the elementwise functions, one row each.
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
//! - the result type, see `UnaryResult` in `ops/unary.rs`;
//! - the file that defines the function: `unary` for arithmetic in `cpu/unary.rs` and `metal/msl/unary.metal`; any
//!   other name for a function `method` in `cpu/math/file.rs` and `unary_method` in `metal/msl/file.h`;
//! - `ulp`: the maximum error on the CPU in units in the last place, measured with and without FMA, for `f32` over all
//!   bit patterns, for `f64` on 12,000 numbers of many kinds against 50 digits, and rounded up;
//! - `steps`: the tolerance of tests, see `tolerance.rs` of `bessemer-testing`. Without it a function is exact.
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
            /// `|x|`; the smallest integer is its own result.
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
            /// `log(x / (1 - x))`, the inverse of `sigmoid`; NaN outside of 0 to 1.
            Logit logit Float log ulp(1.7, 1.7) steps(1.3, 3.3, 1.3);
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
            /// The nearest integer; ties round to even.
            Round round Same unary;
            /// The integer part.
            Trunc trunc Same unary;
            /// `true` for NaN.
            IsNan is_nan Bool unary;
            /// `true` for infinities.
            IsInf is_inf Bool unary;
            /// `true` unless infinite or NaN.
            IsFinite is_finite Bool unary;
            /// `x == 0`.
            LogicalNot logical_not Bool unary;
            /// All bits inverted; `not` for booleans.
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
            /// `a + b`; integers wrap, booleans are or-ed.
            Add add Same binary;
            /// `a - b`; integers wrap.
            Sub sub Number binary;
            /// `a * b`; integers wrap, booleans are and-ed.
            Mul mul Same binary;
            /// `a / b`, true division: `f64` for integers.
            Div div TrueFloat binary;
            /// `floor(a / b)`; for integers 0 where `b` is 0.
            FloorDiv floor_div Number binary steps(4.0, 4.0, 4.0);
            /// The remainder of `floor_div`, with the sign of `b`; for integers 0 where `b` is 0.
            Rem rem Number binary steps(0.5, 0.5, 0.5);
            /// `a` to the power of `b`; integers wrap, and give 0 for negative `b` unless `a` is 1 or -1.
            Pow pow Number power ulp(0.6, 1.4) steps(0.1, 1.5, 0.5);
            /// The smaller element; NaN if either is NaN.
            Minimum minimum Same binary;
            /// The larger element; NaN if either is NaN.
            Maximum maximum Same binary;
            /// The angle of the point (`b`, `a`).
            Atan2 atan2 Float inverse_trig ulp(0.6, 2.2) steps(0.1, 3.0, 2.0);
            /// `sqrt(a² + b²)` without intermediate overflow.
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
            /// `true` if both are nonzero.
            LogicalAnd logical_and Logic binary;
            /// `true` if either is nonzero.
            LogicalOr logical_or Logic binary;
            /// `true` if exactly one is nonzero.
            LogicalXor logical_xor Logic binary;
            /// `a & b`
            BitwiseAnd bitwise_and Bits binary;
            /// `a | b`
            BitwiseOr bitwise_or Bits binary;
            /// `a ^ b`
            BitwiseXor bitwise_xor Bits binary;
            /// `a << b`; 0 where `b` is at least the bit width, or negative.
            ShiftLeft shift_left Int binary;
            /// `a >> b`, arithmetic for signed integers; only sign bits where `b` is at least the bit width, or
            /// negative.
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
            /// The elements of `a` where this boolean tensor is true, those of `b` elsewhere: `where` of other
            /// libraries.
            Select select(a, b) Condition ternary;
            /// `min(max(x, low), high)`; NaN if any is NaN.
            Clamp clamp(low, high) Same ternary;
            /// `x * b + c`, rounded once for floats.
            MulAdd mul_add(b, c) Number ternary steps(0.01, 0.01, 0.01);
            /// `x + t * (b - x)`: linear interpolation from this to `b`.
            Lerp lerp(b, t) Float ternary;
        }
    };
}
