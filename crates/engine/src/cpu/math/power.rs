//! Powers and roots.

use super::real::{MathFloat, poly};
use super::{Math, exp};
use crate::cpu::simd::{Isa, MulAdd};

#[inline(always)]
pub(crate) fn rsqrt<T: MathFloat>(x: T) -> T {
    T::of(1.0) / x.square_root()
}

/// The cube root.
#[inline(always)]
pub(crate) fn cbrt<I: Isa, T: Math>(x: T) -> T {
    x.cbrt_on::<I>()
}

/// `x^y`.
#[inline(always)]
pub(crate) fn pow<I: Isa, T: Math>(x: T, y: T) -> T {
    x.pow_on::<I>(y)
}

/// `√(x² + y²)` without intermediate overflow.
#[inline(always)]
pub(crate) fn hypot<I: Isa, T: Math>(x: T, y: T) -> T {
    x.hypot_on::<I>(y)
}

/// `2^(y·log₂|x|)` in f64, to 2⁻³⁰, with the special cases of C99.
#[inline(always)]
pub(super) fn pow_f32<I: Isa>(x: f32, y: f32) -> f32 {
    let base = f64::from(x.abs());
    let (k, m) = base.decompose();
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let log = s.mul_add_on::<I>(
        poly!(
            I,
            z,
            [
                2.885390081790048,
                0.9617966733682309,
                0.5770835830070087,
                0.41167268734376855,
                0.3407329932424559
            ]
        ),
        k,
    );
    let log = if base < f64::INFINITY { log } else { base };
    let log = if base == 0.0 { f64::NEG_INFINITY } else { log };

    // Outside this range the result is 0 or infinity in f32.
    let power = (f64::from(y) * log).at_least(-160.0).at_most(130.0);
    let n = power.nearest();
    let fraction = poly!(
        I,
        power - n,
        [
            0.9999999999595618,
            0.6931471805568324,
            0.24022651213498092,
            0.055504109063258665,
            0.009618025613318034,
            0.0013333478473685416,
            0.00015469729214118296,
            1.5303700711365693e-5
        ]
    );
    with_special(x, y, (fraction * n.power_of_two()) as f32)
}

/// `2^(y·log₂|x|)` with a double-double logarithm, since y turns its absolute error into a relative one.
#[inline(always)]
pub(super) fn pow_f64<I: Isa>(x: f64, y: f64) -> f64 {
    if !I::FMA {
        // Without FMA, double-double arithmetic is slower than the library: 33 against 14 ns measured.
        return x.powf(y);
    }
    let (high, low) = log2_twice::<I>(x.abs());
    let (product, error) = y.exact_product::<I>(high);
    let error = low.mul_add_on::<I>(y, error);
    // Outside this range the result is 0 or infinity, and the error may be infinite.
    let error = if product.abs() > 2000.0 { 0.0 } else { error };
    with_special(x, y, exp::exp2_sum::<I, f64>(product, error))
}

/// The base-2 logarithm of a non-negative number as a double-double, accurate to about 2⁻⁶⁶.
///
/// log₂ m = 2/ln 2·s·(1 + z/3 + z²·R(z)), s = (m - 1) / (m + 1), z = s²; all but the last term are computed in
/// double-double arithmetic.
#[inline(always)]
fn log2_twice<I: Isa>(x: f64) -> (f64, f64) {
    const FACTOR: (f64, f64) = (2.8853900817779268, 4.0710547481862066e-17); // 2/ln 2
    const THIRD: (f64, f64) = (0.3333333333333333, 1.850371707708594e-17);
    let (k, m) = x.decompose();
    let (denominator, denominator_low) = m.exact_sum(1.0);
    let numerator = m - 1.0;
    let s = numerator / denominator;
    let (back, back_low) = s.exact_product::<I>(denominator);
    let s_low = (((numerator - back) - back_low) - s * denominator_low) / denominator;

    let (z, z_low) = s.exact_product::<I>(s);
    let z_low = (s + s).mul_add_on::<I>(s_low, z_low);
    // Interpolated at Chebyshev nodes; relative error of the logarithm: 2^-66.4.
    let rest = poly!(
        I,
        z,
        [
            0.2,
            0.14285714285714685,
            0.11111111110826383,
            0.09090909168049924,
            0.0769229744350359,
            0.0666740439940617,
            0.05853063232281699,
            0.058621635304233734
        ]
    );
    let (third, third_low) = z.exact_product::<I>(THIRD.0);
    let third_low = third_low + (z * THIRD.1 + z_low * THIRD.0);
    let small = (z * z).mul_add_on::<I>(rest, third_low);
    let (sum, sum_low) = third.exact_sum(small);
    let (series, series_low) = sum.exact_sum(1.0);
    let series_low = series_low + sum_low;

    let (log, log_low) = s.exact_product::<I>(series);
    let log_low = log_low + (s * series_low + s_low * series);
    let (fraction, fraction_low) = log.exact_product::<I>(FACTOR.0);
    let fraction_low = fraction_low + (log * FACTOR.1 + log_low * FACTOR.0);
    let (sum, error) = k.exact_sum(fraction);
    let low = error + fraction_low;
    let high = sum + low;
    let low = (sum - high) + low;

    let (high, low) = if x < f64::INFINITY {
        (high, low)
    } else {
        (x, 0.0)
    };
    if x == 0.0 {
        (f64::NEG_INFINITY, 0.0)
    } else {
        (high, low)
    }
}

/// Returns true if a non-negative number is an integer.
#[inline(always)]
fn is_whole<T: MathFloat>(x: T) -> bool {
    (x >= T::INTEGERS) | ((x + T::INTEGERS) - T::INTEGERS == x)
}

/// Adds the sign and the special values to `|x|^y`.
#[inline(always)]
fn with_special<T: MathFloat>(x: T, y: T, result: T) -> T {
    let (zero, one, infinity) = (T::of(0.0), T::of(1.0), T::of(f64::INFINITY));
    let a = y.magnitude();
    let whole = is_whole(a);
    let odd = whole & !is_whole(a * T::of(0.5));
    let result = if odd { result.with_sign_of(x) } else { result };
    let root = (x < zero) & (x > -infinity) & !whole;
    let result = if root { T::of(f64::NAN) } else { result };
    let unit = (x == one) | (y == zero) | ((x == -one) & (a == infinity));
    if unit { one } else { result }
}

/// The cube root without division, from an initial guess of its inverse from a third of the exponent.
#[inline(always)]
pub(super) fn cbrt_f64<I: Isa>(x: f64) -> f64 {
    const MAGIC: f64 = 4_503_599_627_370_496.0; // 2⁵²
    let a = x.abs();
    // Scales away from both ends of the range by 2^±300, whose cube root is exact.
    let (scale, unscale) = if a < 1e-290 {
        (2.037035976334486e90, 7.888609052210118e-31)
    } else if a > 1e290 {
        (4.909093465297727e-91, 1.2676506002282294e30)
    } else {
        (1.0, 1.0)
    };
    let a = a * scale;

    // The high word as an integer is about 2²⁰·(log₂ a + 1023); for y = a^(-1/3) it is 1023·4/3 minus a
    // third of that. The last term centres the error of approximating 2^m by 1 + m: |1 - a·y³| ≤ 0.11.
    let upper = f64::from_bits((a.to_bits() >> 32) | MAGIC.to_bits()) - MAGIC;
    let guess = (1364.0 - 0.068) * 1_048_576.0 - upper * (1.0 / 3.0);
    let y = f64::from_bits((guess + MAGIC).to_bits() << 32);

    // (1 - h)^(-1/3) = 1 + h/3 + 2h²/9 + 14h³/81 + …
    let h = (-(a * y)).mul_add_on::<I>(y * y, 1.0);
    let y = y + y * h * poly!(I, h, [1.0 / 3.0, 2.0 / 9.0, 14.0 / 81.0, 35.0 / 243.0]);
    let h = (-(a * y)).mul_add_on::<I>(y * y, 1.0);
    let y = y + y * h * poly!(I, h, [1.0 / 3.0, 2.0 / 9.0]);

    // One Newton step on the root itself, whose residual is small: the error left is a third of an ulp.
    let root = a * y * y;
    let residual = cube_residual::<I, f64>(root, a);
    let root = root - residual * (y * y) * (1.0 / 3.0);

    let special = !((a > 0.0) & (a < f64::INFINITY));
    if special {
        x
    } else {
        (root * unscale).copysign(x)
    }
}

/// The cube root in `f32`: an initial guess of the inverse root from a third of the exponent, one step of a series, and
/// one Newton step on the root itself with an exact residual.
#[inline(always)]
pub(super) fn cbrt_f32<I: Isa>(x: f32) -> f32 {
    const MAGIC: f32 = 8_388_608.0; // 2²³
    let a = x.abs();
    // Scales away from both ends of the range by 2^±66, whose cube root is exact.
    let (scale, unscale) = if a < 8.67e-19 {
        (7.378_698e19, 2.384_185_8e-7)
    } else if a > 1.15e18 {
        (1.355_252_7e-20, 4_194_304.0)
    } else {
        (1.0, 1.0)
    };
    let a = a * scale;

    // As in `cbrt_f64`, with the upper 24 bits: |1 - a·y³| ≤ 0.11.
    let upper = f32::from_bits((a.to_bits() >> 8) | MAGIC.to_bits()) - MAGIC;
    let guess = (127.0 * 4.0 / 3.0 - 0.068) * 32_768.0 - upper * (1.0 / 3.0);
    let y = f32::from_bits((guess + MAGIC).to_bits() << 8);

    // (1 - h)^(-1/3) = 1 + h/3 + 2h²/9 + 14h³/81 + …; h is below 2⁻¹⁷ afterwards.
    let h = (-(a * y)).mul_add_on::<I>(y * y, 1.0);
    let y = (y * h).mul_add_on::<I>(
        poly!(I, h, [1.0 / 3.0, 2.0 / 9.0, 14.0 / 81.0, 35.0 / 243.0]),
        y,
    );

    let square = y * y;
    let root = a * square;
    let residual = cube_residual::<I, f32>(root, a);
    let root = (residual * square).mul_add_on::<I>(-1.0 / 3.0, root);

    let special = !((a > 0.0) & (a < f32::INFINITY));
    if special {
        x
    } else {
        (root * unscale).copysign(x)
    }
}

/// `root³ - a`, nearly exact if `root³` is close to `a`.
#[inline(always)]
fn cube_residual<I: Isa, T: MathFloat>(root: T, a: T) -> T {
    let (square, square_low) = root.exact_product::<I>(root);
    let (cube, cube_low) = square.exact_product::<I>(root);
    (cube - a) + square_low.mul_add_on::<I>(root, cube_low)
}

#[inline(always)]
pub(super) fn hypot_f32(x: f32, y: f32) -> f32 {
    let (a, b) = (f64::from(x), f64::from(y));
    let infinite = (a.abs() == f64::INFINITY) | (b.abs() == f64::INFINITY);
    if infinite {
        f32::INFINITY
    } else {
        (a * a + b * b).sqrt() as f32
    }
}

#[inline(always)]
pub(super) fn hypot_f64(x: f64, y: f64) -> f64 {
    let (a, b) = (x.abs(), y.abs());
    // 2^±600, so that squares neither overflow nor vanish.
    let high = a.at_least(b);
    let (scale, unscale) = if high < 1e-140 {
        (4.149515568880993e180, 2.409919865102884e-181)
    } else if high > 1e140 {
        (2.409919865102884e-181, 4.149515568880993e180)
    } else {
        (1.0, 1.0)
    };
    let (c, d) = (a * scale, b * scale);
    let infinite = (a == f64::INFINITY) | (b == f64::INFINITY);
    if infinite {
        f64::INFINITY
    } else {
        (c * c + d * d).sqrt() * unscale
    }
}
