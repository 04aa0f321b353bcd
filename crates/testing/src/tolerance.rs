//! How far an answer may be from the truth, by op and type.
//!
//! An answer `y` of a float type is right if
//!
//! ```text
//! |y - truth| ≤ ½ step(y) + steps · step'(truth) + share · eps' · magnitude
//! ```
//!
//! where `step` is the distance of neighbouring numbers of the answer's type, and `step'` and `eps'` are
//! those of the type that the op computes in: `f32` for `f16`, `bf16` and `f32`, and `f64` for `f64`. The
//! first term is the one rounding that the answer needs anyway; `f16` and `bf16` get no more than that
//! and what an answer in `f32` may be off. The second is for functions of single elements: their bound in units in the last
//! place. The third is for sums, whose error grows with the size of the terms and not of the result:
//! `magnitude` is the same op on absolute values, and `share` grows with the root of the number of terms,
//! as the sum of independent roundings does; a sum in blocks or pairs stays well below.
//!
//! Ops with neither steps nor share are exact: the answer is the truth, rounded once. Integers and truth
//! values are always exact. NaN is right where the truth is NaN, and an infinity where the truth is that
//! infinity or so close to the largest number that the bound reaches past it. Where the device flushes subnormal
//! numbers, see [`subnormal`](crate::subnormal), zero is right where the truth, or what the bound allows, is subnormal, and
//! each partial sum may lose as much as the smallest normal number.

use std::fmt;

use bessemer::DType;

use crate::Array;
use crate::number::{Value, epsilon, format, round, ulp};
use crate::subnormal::{flushes, judge, least_normal};

/// A bound; see the module's documentation for the formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Units in the last place of the truth, in the type the op computes in.
    pub steps: f64,
    /// Epsilons of the magnitude, in the type the op computes in.
    pub share: f64,
    /// Whether what is below the least normal number may become 0.
    pub flush: bool,
}

impl Tolerance {
    /// The truth, rounded once.
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

    /// Whether nothing but the rounding of the truth is right.
    pub fn is_exact(self) -> bool {
        self.steps == 0.0 && self.share == 0.0
    }

    /// The bound on the error for an answer of type `dtype`.
    pub fn allowed(self, dtype: DType, truth: f64, magnitude: f64) -> f64 {
        let inner = computed_in(dtype);
        // The truth may be past the largest number of the type.
        let near = truth.clamp(-format(inner).max, format(inner).max);
        // Where the answer is narrower than what it is computed in, that is rounded first.
        let twice = if dtype == inner { 0.0 } else { 0.5 };
        let mut allowed = 0.5 * ulp(dtype, near) + (self.steps + twice) * ulp(inner, near);
        if self.share > 0.0 {
            allowed += self.share * (epsilon(inner) * magnitude + ulp(inner, 0.0));
            if flushes(dtype) {
                allowed += self.share * self.share * least_normal(dtype);
            }
        }
        if self.flush {
            allowed += f64::from(format(inner).min_exponent).exp2();
        }
        allowed
    }
}

/// The type that an op with answers of type `dtype` computes in.
pub fn computed_in(dtype: DType) -> DType {
    if dtype == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// The `steps` of every row of a table, empty where there are none.
macro_rules! steps {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident $(($($parameters:tt)*))? $types:ident $file:ident
        $(ulp($($ulp:literal),+))? $(steps($($steps:literal),+))?;
    )*) => {
        &[$((stringify!($name), &[$($($steps),+)?])),*]
    };
}

/// Functions of single elements, by the rows of the engine's tables: the bound that the engine states for `f32` and
/// `f64`, in units in the last place, less the half of one that every answer may have; for `f64` plus what the reference,
/// being `f64` itself, may be off: up to one unit, two where it is made of several functions.
///
/// The last number is for `f32` on a Metal device. The kernels have the CPU's functions, made of operations
/// that every device rounds alike where operands and results are normal, and with them its bounds (subnormal numbers are
/// flushed there: [`subnormal`](crate::subnormal)); but Metal has no `f64`, so
/// `tan`, `asinh`, `acosh`, `atanh`, `pow`, `atan2` and `hypot` are computed in one or two `f32`s there: 2.3,
/// 1.6, 1.7, 1.9, 0.9, 2.2 and 0.7 units measured, where MSL allows its own functions 6, 4, 4, 5, 16 and 6
/// (it has no `hypot`).
///
/// Rows without `steps` are one operation of IEEE 754, or none at all. `f32` rounds right after a
/// detour over `f64`, and `f16` and `bf16` after one over `f32`, since those have more than twice the bits.
const FUNCTIONS: [&[(&str, &[f64])]; 3] = [
    bessemer::for_each_unary!(steps),
    bessemer::for_each_binary!(steps),
    bessemer::for_each_ternary!(steps),
];

/// Whether the thread's tensors are computed on a Metal device, the software one included.
pub fn on_metal() -> bool {
    bessemer::Device::current().is_ok_and(|device| !device.is_cpu())
}

/// The bound for an op whose answers are made of `terms` numbers each; the table.
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
            // There the reference rounds subnormal factors before its last product.
            // On a device that flushes, x - x Q(x) has lost its second term where that is subnormal.
            flush: in_double && matches!(op, "silu" | "gelu" | "gelu_tanh" | "mish")
                || op == "gelu" && flushes(dtype),
            ..Tolerance::steps(if in_double { *double } else { *single })
        };
    }
    match op {
        // None at all, or comparisons; subnormal operands and results are the matter of `judge`.
        "cast" | "min" | "max" | "cummax" | "sort" | "copy" => Tolerance::EXACT,
        // The activation, and a product: its error of so many units may be twice as many of the product's, which are
        // half as large where the product's significand is twice the activation's.
        "swiglu" => gated("silu", dtype),
        "geglu" => gated("gelu_tanh", dtype),
        // Three roundings of numbers no larger than |a| + |t| (|a| + |b|).
        "lerp" => Tolerance::share(2.0),
        // Sums: ½ eps at each of n additions, of random sign, on partial sums below the magnitude.
        "sum" | "mean" | "cumsum" | "scatter_add" | "avg_pool" | "mse" => {
            Tolerance::share(1.0 + n.sqrt())
        }
        // Sums of products; a fused multiply-add rounds once.
        "matmul" | "dot" | "einsum" | "gemm" | "conv" => Tolerance::share(2.0 + n.sqrt()),
        // A product has the error of each factor's rounding, relative to itself.
        "prod" | "cumprod" => Tolerance::steps(1.0 + n.sqrt()),
        // Squares of differences from a mean that is itself rounded: relative to Σ x² / n.
        "var" => Tolerance::share(4.0 + n.sqrt()),
        // A root of a sum of terms that do not cancel.
        "norm" => Tolerance::steps(4.0 + n.sqrt()),
        // A root of a sum that may have cancelled, relative to √(Σ x² / n). Numbers that are all alike
        // leave the rounding of their mean, n eps² Σ x²/n before the root.
        "deviation" => Tolerance::share(4.0 + n.sqrt()),
        // ln Σ e^(x - top) + top: the logarithm and the addition, relative to |top| + ln n.
        "logsumexp" | "log_softmax" | "cross_entropy" => Tolerance::share(8.0 + n.sqrt()),
        // Relative, with the error of x - top in the exponent: the magnitude is the answer times that.
        "softmax" => Tolerance {
            steps: 8.0 + n.sqrt(),
            share: 1.0,
            flush: true,
        },
        // Computed in `f32` and rounded once. The mean of squares has ½ unit of random sign from each of n additions,
        // √n / 2, of which the root leaves half; then a sum with eps, a root, a quotient and two products.
        "rms_norm" => Tolerance::steps(4.0 + 0.25 * n.sqrt()),
        // The same, and a mean that is off by √n / 2 of mean |x|. Relative to the normalised numbers before the mean
        // is taken off, times weight, plus bias.
        "layer_norm" | "group_norm" | "batch_norm" => Tolerance::share(4.0 + 0.5 * n.sqrt()),
        // Two products of a sine or cosine of an angle that is computed in `f64`: there, its rounding
        // grows with it, up to the `terms` that is the largest angle.
        "rope" if dtype == DType::F64 => Tolerance::share(8.0 + n),
        "rope" => Tolerance::share(8.0),
        // A softmax and two sums of products.
        "attention" => Tolerance::share(16.0 + 2.0 * n.sqrt()),
        _ => Tolerance::EXACT,
    }
}

/// The bound of an activation times another number.
fn gated(activation: &str, dtype: DType) -> Tolerance {
    let own = tolerance(activation, dtype, 1);
    Tolerance {
        steps: 2.0 * (own.steps + 0.5),
        ..own
    }
}

/// An answer that is not right.
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
    /// A number of it is wrong.
    Number {
        /// Where.
        index: Vec<usize>,
        /// The answer.
        got: Value,
        /// The truth.
        expected: Value,
        /// How far apart they are, in steps of the answer's type.
        steps: f64,
        /// How far apart they may be, in steps of the answer's type.
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

/// Whether an answer is what the reference says, within the bound of the op in the table. `magnitude` is
/// the op on absolute values, where the bound needs it; 1 otherwise.
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
    let truth = expected.data[i];
    let (steps, allowed) = if dtype.is_float() && truth.float().is_finite() {
        let step = ulp(dtype, truth.float());
        (
            (got.float() - truth.float()).abs() / step,
            bound.allowed(dtype, truth.float(), size) / step,
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
        expected: truth,
        steps,
        allowed,
    }
}

fn agree(
    op: &str,
    bound: Tolerance,
    dtype: DType,
    got: Value,
    truth: Value,
    magnitude: f64,
) -> bool {
    let (Value::Float(g), true) = (got, dtype.is_float()) else {
        return got == truth;
    };
    let t = truth.float();
    let slack = match bound.is_exact() || !t.is_finite() {
        true => 0.0,
        false => bound.allowed(dtype, t, magnitude),
    };
    if let Some(right) = judge(op, dtype, g, t, slack) {
        return right;
    }
    let nearest = round(dtype, truth);
    if g == nearest || g.is_nan() && t.is_nan() {
        return true;
    }
    if bound.is_exact() || t.is_nan() {
        return false;
    }
    // Sums whose terms leave the range of the type they are added in may end anywhere.
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
    fn exact_ops_must_round_right() {
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
    fn half_precision_gets_one_rounding_and_no_more() {
        let truth = one(DType::F16, 1.0 + 0.4 * epsilon(DType::F16));
        let next = one(DType::F16, 1.0 + epsilon(DType::F16));
        assert_eq!(
            compare("exp", 1, &one(DType::F16, 1.0), &truth, None),
            Ok(())
        );
        assert!(compare("exp", 1, &next, &truth, None).is_err());
    }

    #[test]
    fn nan_and_infinities_are_numbers_of_their_own() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let ok = |g, t| compare("exp", 1, &one(DType::F32, g), &one(DType::F32, t), None).is_ok();
        assert!(ok(nan, nan) && ok(inf, inf) && ok(-inf, -inf));
        assert!(!ok(nan, 1.0) && !ok(1.0, nan) && !ok(inf, -inf) && !ok(inf, 1.0) && !ok(1.0, inf));
        // The truth does not fit the type, or nearly.
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
    fn tiny_numbers_may_be_off_by_tiny_steps() {
        let tiny = f64::from(f32::from_bits(1));
        let (a, b) = (one(DType::F32, 3.0 * tiny), one(DType::F32, 5.0 * tiny));
        assert_eq!(compare("asin", 1, &a, &b, None), Ok(()));
        assert!(compare("mul", 1, &a, &b, None).is_err());
    }
}
