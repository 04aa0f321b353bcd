//! Powers and roots.
use super::real::{Real, poly};
use super::{exp, log};
use crate::cpu::simd::{Isa, MulAdd};

#[inline(always)]
pub(super) fn rsqrt<T: Real>(x: T) -> T {
    T::of(1.0) / x.square_root()
}

/// `2^(y·log₂|x|)` in f64, good enough for f32, with the special cases of C99.
#[inline(always)]
pub(super) fn pow_f32<I: Isa>(x: f32, y: f32) -> f32 {
    let (base, power) = (f64::from(x), f64::from(y));
    let result = exp::exp2::<I, f64>(power * log::log2::<I, f64>(base.abs()));
    with_special(base, power, result) as f32
}

/// `|x|^y` with the sign and the exceptions that the formula does not give.
#[inline(always)]
fn with_special(x: f64, y: f64, result: f64) -> f64 {
    const INTEGERS: f64 = 4_503_599_627_370_496.0; // 2⁵²: from here on there are only integers,
    let a = y.abs();
    let small = a < INTEGERS;
    let shifted = if small { a + INTEGERS } else { a };
    let integer = !small | (shifted - INTEGERS == a);
    // … and from 2⁵³ on only even ones.
    let odd = integer & (a < 2.0 * INTEGERS) & (shifted.to_bits() & 1 != 0);
    let result = if odd { result.copysign(x) } else { result };
    let root = (x < 0.0) & (x > f64::NEG_INFINITY) & !integer & (a < f64::INFINITY);
    let result = if root { f64::NAN } else { result };
    let one = (x == 1.0) | (y == 0.0) | ((x == -1.0) & (a == f64::INFINITY));
    if one { 1.0 } else { result }
}

/// The cube root, from a guess of its inverse by a third of the exponent, without division.
#[inline(always)]
pub(super) fn cbrt_f64<I: Isa>(x: f64) -> f64 {
    const MAGIC: f64 = 4_503_599_627_370_496.0; // 2⁵²
    let a = x.abs();
    // Away from both ends by a factor that has a cube root: 2^±300.
    let (tiny, huge) = (a < 1e-290, a > 1e290);
    let scale = if tiny { 2.037035976334486e90 } else { 1.0 };
    let scale = if huge { 4.909093465297727e-91 } else { scale };
    let unscale = if tiny { 7.888609052210118e-31 } else { 1.0 };
    let unscale = if huge { 1.2676506002282294e30 } else { unscale };
    let a = a * scale;

    // The upper word, read as a number, is about 2²⁰·(log₂ a + 1023); y = a^(-1/3) has 1023·4/3 less a
    // third of it. The last term centres the error of taking 1 + m for 2^m: |1 - a·y³| ≤ 0.11.
    let upper = f64::from_bits((a.to_bits() >> 32) | MAGIC.to_bits()) - MAGIC;
    let guess = (1364.0 - 0.068) * 1_048_576.0 - upper * (1.0 / 3.0);
    let y = f64::from_bits((guess + MAGIC).to_bits() << 32);

    // (1 - h)^(-1/3) = 1 + h/3 + 2h²/9 + 14h³/81 + …
    let h = (-(a * y)).mul_add_on::<I>(y * y, 1.0);
    let y = y + y * h * poly!(I, h, [1.0 / 3.0, 2.0 / 9.0, 14.0 / 81.0, 35.0 / 243.0]);
    let h = (-(a * y)).mul_add_on::<I>(y * y, 1.0);
    let y = y + y * h * poly!(I, h, [1.0 / 3.0, 2.0 / 9.0]);

    // One step on the root itself, whose residual is small: what it misses is a third of an ulp.
    let root = a * y * y;
    let (square, square_low) = root.exact_product::<I>(root);
    let (cube, cube_low) = square.exact_product::<I>(root);
    let residual = (cube - a) + (cube_low + square_low * root);
    let root = root - residual * (y * y) * (1.0 / 3.0);

    let special = !((a > 0.0) & (a < f64::INFINITY));
    if special {
        x
    } else {
        (root * unscale).copysign(x)
    }
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
    let (tiny, huge) = ((a < 1e-140) & (b < 1e-140), (a > 1e140) | (b > 1e140));
    // 2^±600, so that squares neither overflow nor vanish.
    let scale = if tiny { 4.149515568880993e180 } else { 1.0 };
    let scale = if huge { 2.409919865102884e-181 } else { scale };
    let unscale = if tiny { 2.409919865102884e-181 } else { 1.0 };
    let unscale = if huge { 4.149515568880993e180 } else { unscale };
    let (c, d) = (a * scale, b * scale);
    let infinite = (a == f64::INFINITY) | (b == f64::INFINITY);
    if infinite {
        f64::INFINITY
    } else {
        (c * c + d * d).sqrt() * unscale
    }
}
