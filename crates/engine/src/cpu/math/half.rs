//! Conversions between the 16-bit floating-point types and `f32`, slice by slice.
//!
//! Rounds to nearest, ties to even; NaN stays NaN, quiet, with the bits of its payload that fit. If the lengths of
//! slices differ, the shorter one counts.

#[cfg(target_arch = "x86_64")]
mod f16c;

use ::half::{bf16, f16};

use crate::cpu::simd::Isa;
#[cfg(target_arch = "x86_64")]
use crate::cpu::simd::Level;

/// A half-precision type: `f16` or `bf16`.
pub(crate) trait Half: Copy {
    /// Widens `source`, which is exact.
    fn to_f32<I: Isa>(source: &[Self], target: &mut [f32]);
    /// Narrows `source`, with rounding.
    fn from_f32<I: Isa>(source: &[f32], target: &mut [Self]);
}

impl Half for f16 {
    #[inline(always)]
    fn to_f32<I: Isa>(source: &[Self], target: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if matches!(I::LEVEL, Level::Avx2 | Level::Avx512) {
            return f16c::to_f32::<I>(source, target);
        }
        for (x, y) in source.iter().zip(target) {
            *y = widen_f16(*x);
        }
    }
    #[inline(always)]
    fn from_f32<I: Isa>(source: &[f32], target: &mut [Self]) {
        #[cfg(target_arch = "x86_64")]
        if matches!(I::LEVEL, Level::Avx2 | Level::Avx512) {
            return f16c::from_f32::<I>(source, target);
        }
        for (x, y) in source.iter().zip(target) {
            *y = narrow_f16(*x);
        }
    }
}

impl Half for bf16 {
    #[inline(always)]
    fn to_f32<I: Isa>(source: &[Self], target: &mut [f32]) {
        for (x, y) in source.iter().zip(target) {
            let bits = u32::from(x.to_bits()) << 16;
            let nan = bits & 0x7fff_ffff > 0x7f80_0000;
            *y = f32::from_bits(if nan { bits | 0x0040_0000 } else { bits });
        }
    }
    #[inline(always)]
    fn from_f32<I: Isa>(source: &[f32], target: &mut [Self]) {
        for (x, y) in source.iter().zip(target) {
            let bits = x.to_bits();
            let nan = bits & 0x7fff_ffff > 0x7f80_0000;
            // Half a unit less one, and one more where the last bit kept is odd.
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
            let kept = if nan { bits | 0x0040_0000 } else { rounded };
            *y = Self::from_bits((kept >> 16) as u16);
        }
    }
}

/// Widens: with the exponent bits of f16 in an f32, the value is too small by 2¹¹², subnormal or not.
#[inline(always)]
fn widen_f16(x: f16) -> f32 {
    const SCALE: f32 = f32::from_bits((127 + 112) << 23);
    let bits = u32::from(x.to_bits());
    let magnitude = bits & 0x7fff;
    let finite = (f32::from_bits(magnitude << 13) * SCALE).to_bits();
    let quiet = if magnitude > 0x7c00 { 0x0040_0000 } else { 0 };
    let special = 0x7f80_0000 | magnitude << 13 | quiet;
    let result = if magnitude < 0x7c00 { finite } else { special };
    f32::from_bits(result | (bits & 0x8000) << 16)
}

#[inline(always)]
fn narrow_f16(x: f32) -> f16 {
    const INFINITY: u32 = 0x7f80_0000;
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let rounded = magnitude.wrapping_add(0x0fff + (magnitude >> 13 & 1)) >> 13;
    let normal = rounded.wrapping_sub(112 << 10);
    // The last bit of ½ has the value of the last bit of a subnormal f16, so the sum is rounded there.
    let subnormal = (f32::from_bits(magnitude) + 0.5)
        .to_bits()
        .wrapping_sub(0x3f00_0000);
    let result = if magnitude < 113 << 23 {
        subnormal
    } else {
        normal
    };
    let result = if magnitude >= 143 << 23 {
        0x7c00
    } else {
        result
    };
    let nan = 0x7e00 | magnitude >> 13 & 0x03ff;
    let result = if magnitude > INFINITY { nan } else { result };
    f16::from_bits((result | (bits >> 16 & 0x8000)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::simd::testing::levels;
    use crate::cpu::simd::{self, Task};

    struct WidenHalf<'a, H>(&'a [H]);
    impl<H: Half> Task for WidenHalf<'_, H> {
        type Output = Vec<u32>;
        #[inline(always)]
        fn run<I: Isa>(self) -> Vec<u32> {
            let mut out = vec![0.0; self.0.len()];
            H::to_f32::<I>(self.0, &mut out);
            out.into_iter().map(f32::to_bits).collect()
        }
    }

    struct NarrowHalf<'a, H>(&'a [f32], H);
    impl<H: Half> Task for NarrowHalf<'_, H> {
        type Output = Vec<H>;
        #[inline(always)]
        fn run<I: Isa>(self) -> Vec<H> {
            let mut out = vec![self.1; self.0.len()];
            H::from_f32::<I>(self.0, &mut out);
            out
        }
    }

    #[test]
    fn all_16_bit_numbers_survive_a_round_trip() {
        let f16s: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let bf16s: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        for level in levels() {
            let wide = simd::run_at(level, WidenHalf(&f16s));
            assert!(
                f16s.iter()
                    .zip(&wide)
                    .all(|(x, y)| x.to_f32().to_bits() == *y)
            );
            let wide: Vec<f32> = wide.into_iter().map(f32::from_bits).collect();
            for (x, y) in f16s
                .iter()
                .zip(simd::run_at(level, NarrowHalf(&wide, f16::ZERO)))
            {
                let quiet = if x.is_nan() { 0x0200 } else { 0 };
                assert_eq!(x.to_bits() | quiet, y.to_bits(), "{level:?}");
            }

            let wide = simd::run_at(level, WidenHalf(&bf16s));
            assert!(
                bf16s
                    .iter()
                    .zip(&wide)
                    .all(|(x, y)| x.to_f32().to_bits() == *y)
            );
            let wide: Vec<f32> = wide.into_iter().map(f32::from_bits).collect();
            for (x, y) in bf16s
                .iter()
                .zip(simd::run_at(level, NarrowHalf(&wide, bf16::ZERO)))
            {
                let quiet = if x.is_nan() { 0x0040 } else { 0 };
                assert_eq!(x.to_bits() | quiet, y.to_bits(), "{level:?}");
            }
        }
    }

    /// Every f16 and bf16 boundary, tie and neighbour of a tie, and a walk through all bit patterns.
    #[test]
    fn numbers_round_to_nearest_even_as_the_half_crate_does() {
        let halves = (0..=u16::MAX).flat_map(|h| {
            let wide = f16::from_bits(h).to_f32().to_bits();
            [0, 1, 0x0fff, 0x1000, 0x1001, 0x1fff].map(|low| wide.wrapping_add(low))
        });
        let brains = (0..=u16::MAX)
            .flat_map(|h| [0x7fff, 0x8000, 0x8001, 0xffff].map(|low| u32::from(h) << 16 | low));
        let ties = (0..2048).map(|i| ((i as f32 + 0.5) / (1 << 24) as f32).to_bits());
        let walk = (0..u32::MAX / 65_537).map(|i| i * 65_537);
        let numbers: Vec<f32> = halves
            .chain(brains)
            .chain(ties)
            .chain(walk)
            .map(f32::from_bits)
            .collect();
        for level in levels() {
            let narrow = simd::run_at(level, NarrowHalf(&numbers, f16::ZERO));
            for (x, y) in numbers.iter().zip(narrow) {
                assert_eq!(f16::from_f32(*x).to_bits(), y.to_bits(), "{level:?} {x:e}");
            }
            let narrow = simd::run_at(level, NarrowHalf(&numbers, bf16::ZERO));
            for (x, y) in numbers.iter().zip(narrow) {
                assert_eq!(bf16::from_f32(*x).to_bits(), y.to_bits(), "{level:?} {x:e}");
            }
        }
    }
}
