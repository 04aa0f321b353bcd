//! Floats as text: the digits that tell a number apart, and one format for many numbers.

use half::{bf16, f16};

use crate::DType;

/// Digits after the point, unless the caller asks for another number.
const DIGITS: usize = 8;

/// No float has more digits after the point: the least is 2^-1074, and Rust pads to no width past 65535.
const MOST_DIGITS: usize = 1074;

/// A float of any type.
pub(super) struct Real {
    /// The value; `f64` holds those of every type.
    value: f64,
    /// The fewest digits that are read back as this value in its own type, and the power of ten of the
    /// first; of finite values.
    digits: String,
    exponent: i32,
}

impl Real {
    /// From scientific notation, as Rust writes it: `-1.25e-7`.
    fn new(value: f64, scientific: &str) -> Self {
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or(("0", "0"));
        Self {
            value,
            digits: mantissa.chars().filter(char::is_ascii_digit).collect(),
            exponent: exponent.parse().unwrap_or(0),
        }
    }

    /// With the fewest digits that `is_back` finds to be read back as the value, beginning with `least`
    /// after the first. `wide` has more than enough of them.
    fn shortest(value: f64, wide: &str, least: usize, is_back: impl Fn(&str) -> bool) -> Self {
        let most = digits_after_first(wide) + 1;
        // Rounding to even where two are equally near, which Rust's own shortest notation does not.
        let found = (least..most).map(|n| format!("{value:.n$e}"));
        match found.into_iter().find(|text| is_back(text)) {
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

    /// As it is shown on its own, with all its digits.
    pub(super) fn alone(&self, dtype: DType) -> String {
        if !self.value.is_finite() {
            return self.not_finite();
        }
        // The bounds within which NumPy writes a number out; Python's for `f64`.
        let most = match dtype {
            DType::F64 => 16,
            _ => certain_digits(dtype),
        };
        if self.value == 0.0 || (-4..most).contains(&self.exponent) {
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

    /// What stands before and after the point: the shortest digits, or `precision` after the point,
    /// rounded from the exact value, where that is fewer or `fixed`.
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

impl From<f64> for Real {
    fn from(value: f64) -> Self {
        let wide = format!("{value:e}");
        Self::shortest(value, &wide, digits_after_first(&wide), |text| {
            text.parse() == Ok(value)
        })
    }
}

impl From<f32> for Real {
    fn from(value: f32) -> Self {
        let wide = format!("{value:e}");
        Self::shortest(value.into(), &wide, digits_after_first(&wide), |text| {
            text.parse() == Ok(value)
        })
    }
}

impl From<f16> for Real {
    fn from(value: f16) -> Self {
        let wide = format!("{:e}", f64::from(value));
        Self::shortest(value.into(), &wide, 0, |text| {
            text.parse().is_ok_and(|x| f16::from_f64(x) == value)
        })
    }
}

impl From<bf16> for Real {
    fn from(value: bf16) -> Self {
        let wide = format!("{:e}", f64::from(value));
        Self::shortest(value.into(), &wide, 0, |text| {
            text.parse().is_ok_and(|x| bf16::from_f64(x) == value)
        })
    }
}

/// Digits after the first of a number in scientific notation.
fn digits_after_first(scientific: &str) -> usize {
    let mantissa = scientific.split('e').next().unwrap_or(scientific);
    mantissa.split_once('.').map_or(0, |(_, rest)| rest.len())
}

/// A power of ten with its sign and at least `width` digits.
fn power(exponent: i32, width: usize) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{:0width$}", exponent.unsigned_abs())
}

/// A number in the type whose values are shown: comparisons are made as that type makes them.
fn round(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F16 => f16::from_f64(value).into(),
        DType::BF16 => bf16::from_f64(value).into(),
        DType::F32 => f64::from(value as f32),
        _ => value,
    }
}

/// Decimal digits that a type holds whatever they are, but no more than are shown. `bf16` holds 2, which
/// would have 256 shown as 2.56e+02; it is treated as `f16`.
const fn certain_digits(dtype: DType) -> i32 {
    match dtype {
        DType::F16 | DType::BF16 => 3,
        DType::F32 => 6,
        _ => DIGITS as i32,
    }
}

/// One format for many numbers.
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
    /// The format that suits all of `reals`.
    pub(super) fn new(reals: &[Real], dtype: DType, precision: Option<usize>) -> Self {
        let finite: Vec<_> = reals.iter().filter(|r| r.value.is_finite()).collect();
        let mut out = Self {
            scientific: is_wide(&finite, dtype),
            precision: precision.map_or(DIGITS, |n| n.min(MOST_DIGITS)),
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
    pub(super) fn words(&self, reals: &[Real]) -> Vec<String> {
        reals.iter().map(|real| self.word(real)).collect()
    }

    fn word(&self, real: &Real) -> String {
        let (left, right) = (self.left, self.right);
        let width = left + 1 + right;
        if !real.value.is_finite() {
            return format!("{:>width$}", real.not_finite());
        }
        if self.scientific {
            // All with the same number of digits, those past the shortest too: of the exact value.
            let (mantissa, exponent) = real.scientific(self.precision, true);
            let text = format!("{mantissa}e{}", power(exponent, self.power));
            return format!("{text:>width$}");
        }
        let (whole, fraction) = real.positional(self.precision, self.fixed);
        format!("{whole:>left$}.{fraction:<right$}")
    }
}

/// Whether the numbers are so large, so small or so far apart that they need scientific notation.
fn is_wide(finite: &[&Real], dtype: DType) -> bool {
    let sizes = || finite.iter().map(|r| r.value.abs()).filter(|&x| x != 0.0);
    let max = sizes().fold(0.0, f64::max);
    let min = sizes().fold(f64::INFINITY, f64::min);
    let large = 10_f64.powi(certain_digits(dtype));
    max != 0.0 && (max >= large || min < round(dtype, 1e-4) || round(dtype, max / min) > 1e3)
}
