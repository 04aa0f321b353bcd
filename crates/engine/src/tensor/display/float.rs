//! Floats as text: shortest digits, and one format for many numbers.

use half::{bf16, f16};

use crate::DType;

/// Default maximum number of digits after the point.
const DEFAULT_PRECISION_DIGITS: usize = 8;

/// Maximum number of digits after the point of any float: the smallest is 2^-1074. Rust cannot pad to a width above
/// 65535.
const MAX_PRECISION_DIGITS: usize = 1074;

/// A float of any type.
pub(super) struct Decimal {
    /// The value; `f64` represents those of every type.
    value: f64,
    /// The shortest digits that parse to this value in its own type, and the power of ten of the first; for finite
    /// values.
    digits: String,
    exponent: i32,
}

impl Decimal {
    /// Parses scientific notation as Rust writes it: `-1.25e-7`.
    fn new(value: f64, scientific: &str) -> Self {
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or(("0", "0"));
        Self {
            value,
            digits: mantissa.chars().filter(char::is_ascii_digit).collect(),
            exponent: exponent.parse().unwrap_or(0),
        }
    }

    /// Finds the shortest digits for which `round_trips`, beginning with `min` digits after the first. `wide` is a
    /// notation that round-trips.
    fn shortest(value: f64, wide: &str, min: usize, round_trips: impl Fn(&str) -> bool) -> Self {
        let end = digits_after_first(wide) + 1;
        // Rounds ties to even, which Rust's own shortest notation does not.
        let found = (min..end).map(|n| format!("{value:.n$e}"));
        match found.into_iter().find(|text| round_trips(text)) {
            Some(text) => Self::new(value, &text),
            None => Self::new(value, wide),
        }
    }

    fn sign(&self) -> &'static str {
        if self.value.is_sign_negative() {
            "-"
        } else {
            ""
        }
    }

    /// The format of a tensor of rank 0, with all digits.
    pub(super) fn alone(&self, dtype: DType) -> String {
        if !self.value.is_finite() {
            return self.not_finite();
        }
        // The exponents for which NumPy uses positional notation; Python's for `f64`.
        let end = match dtype {
            DType::F64 => 16,
            _ => certain_digits(dtype),
        };
        if self.value == 0.0 || (-4..end).contains(&self.exponent) {
            let (whole, fraction) = self.positional(usize::MAX, false);
            let fraction = if fraction.is_empty() { "0" } else { &fraction };
            return format!("{whole}.{fraction}");
        }
        let (mantissa, exponent) = self.scientific(usize::MAX, false);
        let mantissa = mantissa.trim_end_matches('.');
        format!("{mantissa}e{}", power(exponent, 2))
    }

    fn not_finite(&self) -> String {
        match (self.value.is_nan(), self.value > 0.0) {
            (true, _) => "nan".to_owned(),
            (_, true) => "inf".to_owned(),
            _ => "-inf".to_owned(),
        }
    }

    /// The text before and after the point: the shortest digits, or `precision` digits after the point, rounded from
    /// the exact value, if that is fewer or `fixed`.
    fn positional(&self, precision: usize, fixed: bool) -> (String, String) {
        let len = self.digits.len() as i32;
        let fraction = usize::try_from(len - 1 - self.exponent).unwrap_or(0);
        if fixed || fraction > precision {
            let text = format!("{:.precision$}", self.value);
            let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
            let fraction = if fixed {
                fraction
            } else {
                fraction.trim_end_matches('0')
            };
            return (whole.to_owned(), fraction.to_owned());
        }
        let sign = self.sign();
        let whole = usize::try_from(self.exponent + 1).unwrap_or(0);
        if whole == 0 {
            let zeros = "0".repeat(usize::try_from(-self.exponent - 1).unwrap_or(0));
            return (format!("{sign}0"), format!("{zeros}{}", self.digits));
        }
        if self.digits.len() <= whole {
            let zeros = "0".repeat(whole - self.digits.len());
            return (format!("{sign}{}{zeros}", self.digits), String::new());
        }
        let (whole, fraction) = self.digits.split_at(whole);
        (
            format!("{sign}{whole}"),
            fraction.trim_end_matches('0').to_owned(),
        )
    }

    /// The mantissa, always with a point, and the power of ten.
    fn scientific(&self, precision: usize, fixed: bool) -> (String, i32) {
        if fixed || self.digits.len() - 1 > precision {
            let text = format!("{:.precision$e}", self.value);
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let mut mantissa = mantissa.to_owned();
            if !mantissa.contains('.') {
                mantissa.push('.');
            }
            if !fixed {
                mantissa.truncate(mantissa.trim_end_matches('0').len());
            }
            return (mantissa, exponent.parse().unwrap_or(0));
        }
        let (first, rest) = self.digits.split_at(1);
        let rest = rest.trim_end_matches('0');
        (format!("{}{first}.{rest}", self.sign()), self.exponent)
    }
}

impl From<f64> for Decimal {
    fn from(value: f64) -> Self {
        let wide = format!("{value:e}");
        Self::shortest(value, &wide, digits_after_first(&wide), |text| {
            text.parse() == Ok(value)
        })
    }
}

impl From<f32> for Decimal {
    fn from(value: f32) -> Self {
        let wide = format!("{value:e}");
        Self::shortest(value.into(), &wide, digits_after_first(&wide), |text| {
            text.parse() == Ok(value)
        })
    }
}

impl From<f16> for Decimal {
    fn from(value: f16) -> Self {
        let wide = format!("{:e}", f64::from(value));
        Self::shortest(value.into(), &wide, 0, |text| {
            text.parse().is_ok_and(|x| f16::from_f64(x) == value)
        })
    }
}

impl From<bf16> for Decimal {
    fn from(value: bf16) -> Self {
        let wide = format!("{:e}", f64::from(value));
        Self::shortest(value.into(), &wide, 0, |text| {
            text.parse().is_ok_and(|x| bf16::from_f64(x) == value)
        })
    }
}

/// Number of digits after the first in scientific notation.
fn digits_after_first(scientific: &str) -> usize {
    let mantissa = scientific.split('e').next().unwrap_or(scientific);
    mantissa.split_once('.').map_or(0, |(_, rest)| rest.len())
}

/// A power of ten with its sign and at least `width` digits.
fn power(exponent: i32, width: usize) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{:0width$}", exponent.unsigned_abs())
}

/// Rounds a value to the type being shown: comparisons are made in that type.
fn round(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F16 => f16::from_f64(value).into(),
        DType::BF16 => bf16::from_f64(value).into(),
        DType::F32 => f64::from(value as f32),
        _ => value,
    }
}

/// Decimal digits that a type always preserves (`FLT_DIG`), at most the default precision. `bf16` preserves 2, which
/// would show 256 as 2.56e+02; it is treated as `f16`.
const fn certain_digits(dtype: DType) -> i32 {
    match dtype {
        DType::F16 | DType::BF16 => 3,
        DType::F32 => 6,
        _ => DEFAULT_PRECISION_DIGITS as i32,
    }
}

/// A common format for many numbers.
pub(super) struct Floats {
    scientific: bool,
    precision: usize,
    fixed: bool,
    /// Columns before the point, and after it.
    left: usize,
    right: usize,
    /// Digits of the power of ten.
    power: usize,
}

impl Floats {
    /// The common format of `reals`.
    pub(super) fn new(reals: &[Decimal], dtype: DType, precision: Option<usize>) -> Self {
        let finite: Vec<_> = reals.iter().filter(|r| r.value.is_finite()).collect();
        let mut out = Self {
            scientific: is_wide(&finite, dtype),
            precision: precision.map_or(DEFAULT_PRECISION_DIGITS, |n| n.min(MAX_PRECISION_DIGITS)),
            fixed: precision.is_some(),
            left: 0,
            right: 0,
            power: 2,
        };
        if out.scientific {
            let mut digits = 0;
            for real in &finite {
                let (mantissa, exponent) = real.scientific(out.precision, out.fixed);
                let (whole, fraction) = mantissa.split_once('.').unwrap_or((&mantissa, ""));
                out.left = out.left.max(whole.len());
                digits = digits.max(fraction.len());
                out.power = out.power.max(power(exponent, 2).len() - 1);
            }
            out.precision = digits;
            out.right = digits + 2 + out.power;
        } else {
            for real in &finite {
                let (whole, fraction) = real.positional(out.precision, out.fixed);
                out.left = out.left.max(whole.len());
                out.right = out.right.max(fraction.len());
            }
        }
        for real in reals.iter().filter(|r| !r.value.is_finite()) {
            let len = real.not_finite().len();
            out.left = out.left.max(len.saturating_sub(out.right + 1));
        }
        out
    }

    /// The numbers in this format.
    pub(super) fn words(&self, reals: &[Decimal]) -> Vec<String> {
        reals.iter().map(|real| self.word(real)).collect()
    }

    fn word(&self, real: &Decimal) -> String {
        let (left, right) = (self.left, self.right);
        let width = left + 1 + right;
        if !real.value.is_finite() {
            return format!("{:>width$}", real.not_finite());
        }
        if self.scientific {
            // All with the same number of digits; those beyond the shortest are of the exact value.
            let (mantissa, exponent) = real.scientific(self.precision, true);
            let text = format!("{mantissa}e{}", power(exponent, self.power));
            return format!("{text:>width$}");
        }
        let (whole, fraction) = real.positional(self.precision, self.fixed);
        format!("{whole:>left$}.{fraction:<right$}")
    }
}

/// Returns `true` if the numbers are so large, so small or so far apart that they need scientific notation.
fn is_wide(finite: &[&Decimal], dtype: DType) -> bool {
    let sizes = || finite.iter().map(|r| r.value.abs()).filter(|&x| x != 0.0);
    let max = sizes().fold(0.0, f64::max);
    let min = sizes().fold(f64::INFINITY, f64::min);
    let large = 10_f64.powi(certain_digits(dtype));
    max != 0.0 && (max >= large || min < round(dtype, 1e-4) || round(dtype, max / min) > 1e3)
}
