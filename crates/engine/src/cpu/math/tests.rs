//! Tests errors in units in the last place, and special values, at every level.
//!
//! f32 is compared with f64 on a walk through all bit patterns; f64 with values computed with 50 digits
//! (`exact`), and more loosely with the f64 references of `bessemer-testing` on another walk.

mod exact;
mod special;

use bessemer_testing::reference::binary::Binary;
use bessemer_testing::reference::unary::Unary;

use super::{Math, activation, erf, hyperbolic, inverse_trig};
use crate::cpu::simd::testing::{cases, levels};
use crate::cpu::simd::{self, Isa, Level};

/// A type that has all functions.
trait Tested:
    Math
    + Default
    + activation::TanhArgument
    + erf::ErfTerms
    + hyperbolic::HyperbolicTerms
    + inverse_trig::InverseTrigTerms
{
}

impl Tested for f32 {}
impl Tested for f64 {}

/// Applies a function by name; binary functions take the second argument from `other`.
struct Apply<'a, T> {
    name: &'a str,
    source: &'a [T],
    other: &'a [T],
}

impl<T: Tested> simd::Task for Apply<'_, T> {
    type Output = Vec<T>;
    #[inline(always)]
    fn run<I: Isa>(self) -> Vec<T> {
        let mut out = vec![T::default(); self.source.len()];
        apply::<I, T>(self.name, self.source, self.other, &mut out);
        out
    }
}

/// A loop that calls a function directly: closures and function items are inlined only at the optimiser's
/// discretion.
macro_rules! apply_each {
    ($a:expr, $b:expr, $out:expr, trig $name:ident) => {
        super::trig::$name::<I, T>($a, $out)
    };
    ($a:expr, $b:expr, $out:expr, unary rsqrt) => {
        for (x, z) in $a.iter().zip($out) {
            *z = super::power::rsqrt(*x);
        }
    };
    ($a:expr, $b:expr, $out:expr, $file:ident $name:ident) => {
        for (x, z) in $a.iter().zip($out) {
            *z = super::$file::$name::<I, T>(*x);
        }
    };
    ($a:expr, $b:expr, $out:expr, $file:ident $name:ident $second:ident) => {
        for ((x, y), z) in $a.iter().zip($b).zip($out) {
            *z = super::$file::$name::<I, T>(*x, *y);
        }
    };
}

/// [`apply_each!`] for a row with a bound.
macro_rules! row {
    ([$name:expr, $a:expr, $b:expr, $out:expr], ($file:ident $function:ident $($second:ident)?) ulp $($more:ident)*) => {
        if $name == stringify!($function) {
            return apply_each!($a, $b, $out, $file $function $($second)?);
        }
    };
    ($call:tt, $row:tt $($more:ident)*) => {};
}

macro_rules! unary {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident $(($parameter:ident = $sample:literal))? $result:ident $file:ident
        $($bound:ident($($number:literal),+))*;
    )*) => {
        #[inline(always)]
        fn apply_unary<I: Isa, T: Tested>(name: &str, a: &[T], b: &[T], out: &mut [T]) {
            $(row!([name, a, b, out], ($file $name $($parameter)?) $($bound)*);)*
            panic!("no function {name}");
        }
    };
}

macro_rules! binary {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident $types:ident $file:ident $($bound:ident($($number:literal),+))*;
    )*) => {
        #[inline(always)]
        fn apply<I: Isa, T: Tested>(name: &str, a: &[T], b: &[T], out: &mut [T]) {
            $(row!([name, a, b, out], ($file $name second) $($bound)*);)*
            apply_unary::<I, T>(name, a, b, out);
        }
    };
}

crate::for_each_unary!(unary);
crate::for_each_binary!(binary);

/// The rows with a bound: name, `ulp` of `f32` and of `f64`.
macro_rules! bounds {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident $(($($parameter:tt)*))? $types:ident $file:ident
        $(ulp($single:literal, $double:literal))? $(steps($($steps:literal),+))?;
    )*) => {
        &[$($((stringify!($name), $single, $double),)?)*]
    };
}

/// The functions with their bounds in `f32` and `f64`.
fn functions() -> impl Iterator<Item = (&'static str, f64, f64)> {
    let unary: &[(&str, f64, f64)] = crate::for_each_unary!(bounds);
    let binary: &[(&str, f64, f64)] = crate::for_each_binary!(bounds);
    unary.iter().chain(binary).copied()
}

fn at<T: Tested>(level: Level, name: &str, source: &[T], other: &[T]) -> Vec<T> {
    let task = Apply {
        name,
        source,
        other,
    };
    simd::run_at(level, task)
}

/// The function in f64, from the reference implementation.
fn reference(name: &str, x: f64, y: f64) -> f64 {
    if let Some(f) = Unary::ALL.iter().find(|f| f.name() == name) {
        return f.with(y).float(x);
    }
    let f = Binary::ALL.iter().find(|f| f.name() == name);
    let f = f.unwrap_or_else(|| panic!("no reference of {name}"));
    f.of_floats(x, y).float()
}

/// The distance in units in the last place of a type with `digits` explicit significand bits and the
/// given range of exponents; infinity counts as the power of two above the largest number.
fn distance(got: f64, want: f64, digits: i32, min_exponent: i32, max_exponent: i32) -> f64 {
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() && want.is_nan() {
            0.0
        } else {
            f64::INFINITY
        };
    }
    // One binade down, so that this power of two is finite in f64.
    let limit = 2.0_f64.powi(max_exponent);
    let (got, want) = (
        (got * 0.5).clamp(-limit, limit),
        (want * 0.5).clamp(-limit, limit),
    );
    let biased = (want.to_bits() >> 52 & 0x7ff) as i32;
    let unit = 2.0_f64.powi((biased - 1023).max(min_exponent - 1) - digits);
    // Halving made the unit of a subnormal f64 zero.
    if unit == 0.0 {
        0.0
    } else {
        (got - want).abs() / unit
    }
}

/// The second argument of binary functions, from the index: a variety of exponents, signs and magnitudes.
fn second(name: &str, index: usize, x: f64) -> f64 {
    let fraction = (index as f64 * 0.618_033_988_749_894_9).fract();
    match (name, index % 4) {
        ("pow", 0) => (fraction * 21.0).floor() - 10.0,
        ("pow", 1) => (fraction - 0.5) * 200.0 / x.abs().ln().abs().clamp(0.01, 100.0),
        ("pow", _) => (fraction - 0.5) * 8.0,
        ("elu", _) => fraction + 0.5,
        (_, 0) => x * (fraction - 0.5) * 8.0,
        (_, 1) => fraction - 0.5,
        (_, 2) => (fraction - 0.5) * 1e30,
        _ => (fraction - 0.5) * 1e-30,
    }
}

#[test]
fn f32_stays_within_its_bounds_on_all_exponents() {
    let stride = cases(4099, 262_147);
    let walk: Vec<f32> = (0..u32::MAX / stride)
        .map(|i| f32::from_bits(i * stride))
        .collect();
    for (name, bound, _) in functions() {
        let other: Vec<f32> = (walk.iter().enumerate())
            .map(|(i, x)| second(name, i, f64::from(*x)) as f32)
            .collect();
        let want: Vec<f64> = (walk.iter().zip(&other))
            .map(|(x, y)| reference(name, f64::from(*x), f64::from(*y)))
            .collect();
        for level in levels() {
            let mut worst = (0.0, 0.0, 0.0);
            let got = at(level, name, &walk, &other);
            for (((x, y), got), want) in walk.iter().zip(&other).zip(got).zip(&want) {
                let error = distance(f64::from(got), *want, 23, -126, 127);
                if error > worst.0 {
                    worst = (error, *x, *y);
                }
            }
            let (error, x, y) = worst;
            assert!(
                error <= bound,
                "{name} {level:?}: {error} ulp at {x:e}, {y:e}"
            );
        }
    }
}

#[test]
fn f64_stays_within_its_bounds_of_exact_values() {
    // A function without exact values is compared with the reference in the test below.
    let mut compared = 0;
    for (name, _, bound) in functions() {
        let cases = exact::cases(name);
        compared += usize::from(cases.len() > 8);
        let source: Vec<f64> = cases.iter().map(|case| case.x).collect();
        let other: Vec<f64> = cases.iter().map(|case| case.y).collect();
        for level in levels() {
            let got = at(level, name, &source, &other);
            for (case, got) in cases.iter().zip(got) {
                let exact::Case { x, y, value } = case;
                // The exact value was rounded to f64 as well.
                let error = distance(got, *value, 52, -1022, 1022);
                assert!(
                    error <= bound + 0.5,
                    "{name}({x:e}, {y:e}) = {got:e}, {level:?}: {error} ulp"
                );
            }
        }
    }
    assert!(compared >= 33, "{compared}");
}

#[test]
fn f64_agrees_with_the_reference_on_all_exponents() {
    // Errors of the reference: up to 2 ulp in the standard library, up to 4 in formulas.
    const REFERENCE_ULPS: f64 = 4.0;
    let count = cases(60_000_u32, 1000);
    let stride = u64::MAX / u64::from(count);
    let walk: Vec<f64> = (0..count)
        .map(|i| f64::from_bits(u64::from(i) * stride))
        .chain(
            (0..count)
                .map(|i| (f64::from(i) - f64::from(count / 2)) * (740.740_734 / f64::from(count))),
        )
        .collect();
    for (name, _, bound) in functions() {
        let other: Vec<f64> = walk
            .iter()
            .enumerate()
            .map(|(i, x)| second(name, i, *x))
            .collect();
        for level in levels() {
            let got = at(level, name, &walk, &other);
            for ((x, y), got) in walk.iter().zip(&other).zip(got) {
                let want = reference(name, *x, *y);
                let error = distance(got, want, 52, -1022, 1022);
                // The formulas underflow there.
                let beyond = ["sigmoid", "silu", "mish"].contains(&name) && *x < -690.0;
                assert!(
                    beyond || error <= bound + REFERENCE_ULPS,
                    "{name}({x:e}, {y:e}) = {got:e}, not {want:e}, {level:?}: {error} ulp"
                );
            }
        }
    }
}

#[test]
fn near_numbers_do_not_depend_on_far_neighbours() {
    let near: Vec<f32> = (0..1000).map(|i| i as f32 * 0.37).collect();
    let mixed: Vec<f32> = near.iter().flat_map(|x| [*x, 1e30 + x * 1e28]).collect();
    for level in levels() {
        for name in ["sin", "cos", "tan"] {
            let alone = at(level, name, &near, &near);
            let with_far = at(level, name, &mixed, &mixed);
            assert!(
                alone
                    .iter()
                    .zip(with_far.chunks(2))
                    .all(|(a, b)| *a == b[0])
            );
        }
    }
}
