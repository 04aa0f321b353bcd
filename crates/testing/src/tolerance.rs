//! The table of tolerances, by op and dtype.
//!
//! A result `y` of a float type is right if
//!
//! ```text
//! |y - exact| ≤ ½ step(y) + steps · step'(exact) + share · eps' · magnitude
//! ```
//!
//! where `exact` is the exact result, `step` is the distance of neighbouring values of the result's type (an ulp), and
//! `step'` and `eps'` are those of the type that the op computes in: `f32` for `f16`, `bf16` and `f32`, and `f64` for
//! `f64`. The first term is the rounding of the result; `f16` and `bf16` get no more than that and the error of a
//! result in `f32`. The second is for elementwise functions: their bound in units in the last place. The third is for
//! sums, whose error grows with the magnitude of the terms and not of the result: `magnitude` is the same op on
//! absolute values, and `share` grows with the square root of the number of terms, as the sum of independent roundings
//! does; a sum in blocks or pairs stays well below.
//!
//! Ops with neither steps nor share are exact: the result is the exact value, rounded once. Integers and booleans are
//! always exact. NaN is right where the exact result is NaN, and an infinity where the exact result is that infinity or
//! so close to the largest finite value that the bound exceeds it. Where the device flushes subnormal numbers, see
//! [`subnormal`](crate::subnormal), zero is right where the exact result, or a value within the bound, is subnormal,
//! and each partial sum may lose as much as the smallest normal number.

pub mod bound;

use std::fmt;

use bessemer::DType;

use crate::Array;
use crate::number::{Value, epsilon, format, round, ulp};
use crate::subnormal::{flushes, judge, min_normal};

/// A bound; see the module's documentation for the formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Units in the last place of the exact result, in the type the op computes in.
    pub steps: f64,
    /// Epsilons of the magnitude, in the type the op computes in.
    pub share: f64,
    /// Whether values below the smallest normal number may become 0.
    pub flush: bool,
}

impl Tolerance {
    /// The exact result, rounded once.
    pub const EXACT: Self = Self {
        steps: 0.0,
        share: 0.0,
        flush: false,
    };

    const fn steps(steps: f64) -> Self {
        Self {
            steps,
            ..Self::EXACT
        }
    }

    const fn share(share: f64) -> Self {
        Self {
            share,
            ..Self::EXACT
        }
    }

    /// Returns `true` if only the rounded exact result is right.
    pub fn is_exact(self) -> bool {
        self.steps == 0.0 && self.share == 0.0
    }

    /// The error bound for a result of type `dtype`.
    pub fn allowed(self, dtype: DType, exact: f64, magnitude: f64) -> f64 {
        let inner = computed_in(dtype);
        // The exact result may exceed the largest finite value of the type.
        let near = exact.clamp(-format(inner).max, format(inner).max);
        // If the result is narrower than the type it is computed in, that is rounded first.
        let twice = if dtype == inner { 0.0 } else { 0.5 };
        let mut allowed = 0.5 * ulp(dtype, near) + (self.steps + twice) * ulp(inner, near);
        if self.share > 0.0 {
            allowed += self.share * (epsilon(inner) * magnitude + ulp(inner, 0.0));
            if flushes(dtype) {
                allowed += self.share * self.share * min_normal(dtype);
            }
        }
        if self.flush {
            allowed += f64::from(format(inner).min_exponent).exp2();
        }
        allowed
    }
}

/// The type that an op with results of type `dtype` computes in.
pub fn computed_in(dtype: DType) -> DType {
    if dtype == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// The `steps` of every row of a table, empty if there are none.
macro_rules! steps {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident $(($($parameters:tt)*))? $types:ident $file:ident
        $(ulp($($ulp:literal),+))? $(steps($($steps:literal),+))?;
    )*) => {
        &[$((stringify!($name), &[$($($steps),+)?])),*]
    };
}

/// Elementwise functions, by the rows of the engine's tables: the bound that the engine states for `f32` and `f64`, in
/// units in the last place, minus the half unit that every result may have; for `f64` plus the error of the reference,
/// which is in `f64` itself: up to one unit, two if it combines several functions.
///
/// The last number is for `f32` on a Metal device. The kernels use the CPU's functions, with operations that every
/// device rounds identically for normal operands and results, and have the same bounds (subnormal numbers are flushed
/// there: [`subnormal`](crate::subnormal)); but Metal has no `f64`, so `tan`, `asinh`, `acosh`, `atanh`, `pow`, `atan2`
/// and `hypot` are computed in one or two `f32`s there: 2.3, 1.6, 1.7, 1.9, 0.9, 2.2 and 0.7 units measured, where MSL
/// allows its own functions 6, 4, 4, 5, 16 and 6 (it has no `hypot`).
///
/// Rows without `steps` are at most one operation of IEEE 754. `f32` is rounded correctly via `f64`, and `f16` and
/// `bf16` via `f32`, since those have more than twice the bits.
const FUNCTIONS: [&[(&str, &[f64])]; 3] = [
    bessemer::for_each_unary!(steps),
    bessemer::for_each_binary!(steps),
    bessemer::for_each_ternary!(steps),
];

/// Returns `true` if the thread's tensors are computed on a Metal device, including the software one.
pub fn on_metal() -> bool {
    bessemer::Device::current().is_ok_and(|device| !device.is_cpu())
}

/// The table: the tolerance of an op whose results have `terms` terms each.
pub fn tolerance(op: &str, dtype: DType, terms: usize) -> Tolerance {
    let n = terms as f64;
    if !dtype.is_float() {
        return Tolerance::EXACT;
    }
    let row = FUNCTIONS
        .into_iter()
        .flatten()
        .find(|(name, _)| *name == op);
    if let Some((_, [single, double, metal])) = row {
        let in_double = dtype == DType::F64;
        let single = if on_metal() { metal } else { single };
        return Tolerance {
            // Here the reference rounds subnormal factors before its last product. On a device that flushes, x - x Q(x)
            // loses its second term if that is subnormal.
            flush: in_double && matches!(op, "silu" | "gelu" | "gelu_tanh" | "mish")
                || op == "gelu" && flushes(dtype),
            ..Tolerance::steps(if in_double { *double } else { *single })
        };
    }
    match op {
        // No arithmetic, or comparisons; `judge` handles subnormal operands and results.
        "cast" | "min" | "max" | "cummax" | "sort" | "copy" => Tolerance::EXACT,
        // The activation and a product: the activation's error in ulps may double in the product's ulps, which are half
        // as large relative to a significand of up to twice the size.
        "swiglu" => gated("silu", dtype),
        "geglu" => gated("gelu_tanh", dtype),
        // The step, rounded once, times the index, plus the start; in `f64` plus the reference's own rounding.
        "linspace" if dtype == DType::F64 => Tolerance::steps(2.0),
        "linspace" => Tolerance::steps(1.0),
        // Three roundings of values up to |a| + |t| (|a| + |b|).
        "lerp" => Tolerance::share(2.0),
        // Sums: ½ eps at each of n additions, of random sign, on partial sums below the magnitude.
        "sum" | "mean" | "cumsum" | "scatter_add" | "avg_pool" | "mse" => {
            Tolerance::share(1.0 + n.sqrt())
        }
        // Sums of products; a fused multiply-add rounds once.
        "matmul" | "dot" | "einsum" | "gemm" | "conv" => Tolerance::share(2.0 + n.sqrt()),
        // A product has the relative error of each factor's rounding.
        "prod" | "cumprod" => Tolerance::steps(1.0 + n.sqrt()),
        // Squares of differences from a mean that is itself rounded: relative to Σ x² / n.
        "var" => Tolerance::share(4.0 + n.sqrt()),
        // The square root of a sum of terms that do not cancel.
        "norm" => Tolerance::steps(4.0 + n.sqrt()),
        // The square root of a sum that may have cancelled, relative to √(Σ x² / n). Equal values leave the rounding of
        // their mean, n eps² Σ x²/n before the root.
        "deviation" => Tolerance::share(4.0 + n.sqrt()),
        // ln Σ e^(x - top) + top: the logarithm and the addition, relative to |top| + ln n.
        "logsumexp" | "log_softmax" | "cross_entropy" => Tolerance::share(8.0 + n.sqrt()),
        // Relative, with the error of x - top in the exponent: the magnitude is the result times that.
        "softmax" => Tolerance {
            steps: 8.0 + n.sqrt(),
            share: 1.0,
            flush: true,
        },
        // Computed in `f32` and rounded once. The mean of squares has ½ ulp of random sign from each of n additions,
        // √n / 2, which the square root halves; then a sum with eps, a root, a quotient and two products.
        "rms_norm" => Tolerance::steps(4.0 + 0.25 * n.sqrt()),
        // The same, and a mean with an error of √n / 2 of mean |x|. Relative to the normalised values before the mean
        // is subtracted, times weight, plus bias.
        "layer_norm" | "group_norm" | "batch_norm" => Tolerance::share(4.0 + 0.5 * n.sqrt()),
        // Two products of a sine or cosine of an angle that is computed in `f64`: its rounding error grows with the
        // angle, up to the largest, which is passed as `terms`.
        "rope" if dtype == DType::F64 => Tolerance::share(8.0 + n),
        "rope" => Tolerance::share(8.0),
        // A softmax and two sums of products.
        "attention" => Tolerance::share(16.0 + 2.0 * n.sqrt()),
        _ => Tolerance::EXACT,
    }
}

/// The tolerance of an activation times another value.
fn gated(activation: &str, dtype: DType) -> Tolerance {
    let own = tolerance(activation, dtype, 1);
    Tolerance {
        steps: 2.0 * (own.steps + 0.5),
        ..own
    }
}

/// A wrong result.
#[derive(Clone, Debug, PartialEq)]
pub enum Mismatch {
    /// It has another shape.
    Shape {
        /// The answer's.
        got: Vec<usize>,
        /// The reference's.
        expected: Vec<usize>,
    },
    /// It has another type.
    Type {
        /// The answer's.
        got: DType,
        /// The reference's.
        expected: DType,
    },
    /// A value is wrong.
    Number {
        /// Where.
        index: Vec<usize>,
        /// The answer.
        got: Value,
        /// The exact result.
        expected: Value,
        /// The error, in ulps of the result's type.
        steps: f64,
        /// The error bound, in ulps of the result's type.
        allowed: f64,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { got, expected } => write!(f, "shape {got:?}, expected {expected:?}"),
            Self::Type { got, expected } => write!(f, "type {got}, expected {expected}"),
            Self::Number {
                index,
                got,
                expected,
                steps,
                allowed,
            } => write!(
                f,
                "at {index:?}: got {got:?}, expected {expected:?}: {steps:.2} steps apart, \
                 {allowed:.2} allowed"
            ),
        }
    }
}

impl std::error::Error for Mismatch {}

/// Compares a result with the reference, within the tolerance of the op in the table. `magnitude` is the op on absolute
/// values, if the bound needs it, otherwise 1.
pub fn compare(
    op: &str,
    terms: usize,
    got: &Array,
    expected: &Array,
    magnitude: Option<&Array>,
) -> Result<(), Mismatch> {
    if got.shape != expected.shape {
        return Err(Mismatch::Shape {
            got: got.shape.clone(),
            expected: expected.shape.clone(),
        });
    }
    if got.dtype != expected.dtype {
        return Err(Mismatch::Type {
            got: got.dtype,
            expected: expected.dtype,
        });
    }
    let bound = tolerance(op, expected.dtype, terms);
    for (i, (&g, &e)) in got.data.iter().zip(&expected.data).enumerate() {
        let size = magnitude.map_or(1.0, |m| m.data[i].float());
        if !agree(op, bound, expected.dtype, g, e, size) {
            return Err(report(bound, expected, i, g, size));
        }
    }
    Ok(())
}

fn report(bound: Tolerance, expected: &Array, i: usize, got: Value, size: f64) -> Mismatch {
    let dtype = expected.dtype;
    let exact = expected.data[i];
    let (steps, allowed) = if dtype.is_float() && exact.float().is_finite() {
        let step = ulp(dtype, exact.float());
        (
            (got.float() - exact.float()).abs() / step,
            bound.allowed(dtype, exact.float(), size) / step,
        )
    } else {
        (f64::INFINITY, 0.0)
    };
    let index = crate::array::indices(&expected.shape)
        .nth(i)
        .expect("an index of the array");
    Mismatch::Number {
        index,
        got,
        expected: exact,
        steps,
        allowed,
    }
}

fn agree(
    op: &str,
    bound: Tolerance,
    dtype: DType,
    got: Value,
    exact: Value,
    magnitude: f64,
) -> bool {
    let (Value::Float(g), true) = (got, dtype.is_float()) else {
        return got == exact;
    };
    let t = exact.float();
    let slack = if bound.is_exact() || !t.is_finite() {
        0.0
    } else {
        bound.allowed(dtype, t, magnitude)
    };
    if let Some(right) = judge(op, dtype, g, t, slack) {
        return right;
    }
    let nearest = round(dtype, exact);
    if g == nearest || g.is_nan() && t.is_nan() {
        return true;
    }
    if bound.is_exact() || t.is_nan() {
        return false;
    }
    // Sums whose terms overflow the type they are added in may have any result.
    let max = format(computed_in(dtype)).max;
    if bound.share > 0.0 && (magnitude.is_nan() || magnitude >= max) {
        return true;
    }
    if g.is_nan() || t.is_infinite() {
        return false;
    }
    let allowed = bound.allowed(dtype, t, magnitude);
    if g.is_infinite() {
        return round(dtype, Value::Float(t + allowed.copysign(t))) == g;
    }
    (g - t).abs() <= allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(dtype: DType, x: f64) -> Array {
        Array {
            dtype,
            shape: vec![1],
            data: vec![Value::Float(x)],
        }
    }

    #[test]
    fn exact_ops_must_round_correctly() {
        let third = one(DType::F32, 1.0 / 3.0);
        let right = one(DType::F32, (1.0_f32 / 3.0).into());
        let off = one(DType::F32, (1.0_f32 / 3.0).next_up().into());
        assert_eq!(compare("div", 1, &right, &third, None), Ok(()));
        let error = compare("div", 1, &off, &third, None).unwrap_err();
        assert!(
            error.to_string().contains("1.33 steps apart, 0.50 allowed"),
            "{error}"
        );
        assert_eq!(compare("asin", 1, &off, &third, None), Ok(()));
    }

    #[test]
    fn half_precision_allows_one_rounding() {
        let exact = one(DType::F16, 1.0 + 0.4 * epsilon(DType::F16));
        let next = one(DType::F16, 1.0 + epsilon(DType::F16));
        assert_eq!(
            compare("exp", 1, &one(DType::F16, 1.0), &exact, None),
            Ok(())
        );
        assert!(compare("exp", 1, &next, &exact, None).is_err());
    }

    #[test]
    fn nan_and_infinities_are_compared_exactly() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let ok = |g, t| compare("exp", 1, &one(DType::F32, g), &one(DType::F32, t), None).is_ok();
        assert!(ok(nan, nan) && ok(inf, inf) && ok(-inf, -inf));
        assert!(!ok(nan, 1.0) && !ok(1.0, nan) && !ok(inf, -inf) && !ok(inf, 1.0) && !ok(1.0, inf));
        // The exact result is near or past the largest finite value.
        assert!(ok(inf, 1e39) && ok(inf, f32::MAX.into()) && ok(f32::MAX.into(), 3.4028236e38));
        assert!(!ok(inf, 3.4e38) && !ok(-inf, 1e39));
    }

    #[test]
    fn sums_are_judged_by_their_terms() {
        let zero = one(DType::F32, 0.0);
        let got = one(DType::F32, 1e-4);
        let terms = one(DType::F64, 2000.0);
        assert_eq!(compare("sum", 4, &got, &zero, Some(&terms)), Ok(()));
        assert!(compare("sum", 4, &got, &zero, Some(&one(DType::F64, 2.0))).is_err());
    }

    #[test]
    fn subnormal_results_have_absolute_tolerance() {
        let tiny = f64::from(f32::from_bits(1));
        let (a, b) = (one(DType::F32, 3.0 * tiny), one(DType::F32, 5.0 * tiny));
        assert_eq!(compare("asin", 1, &a, &b, None), Ok(()));
        assert!(compare("mul", 1, &a, &b, None).is_err());
    }
}
