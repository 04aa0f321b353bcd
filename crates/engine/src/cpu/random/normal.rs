//! The Box–Muller transform, with its own elementary functions.
//!
//! The functions of `cpu/math.rs` use fused multiply-add if available, so their last bits depend on the processor. These
//! must not, so they multiply and add separately. They are Taylor series rather than fitted polynomials: the arguments
//! are small, and one more term costs little beside the twenty rounds of the generator.

/// `sum(c[k] * z^k)`.
macro_rules! series {
    ($z:expr; $last:expr $(, $c:expr)*) => {{
        let z = $z;
        let sum = $last;
        $(let sum = sum * z + $c;)*
        sum
    }};
}

macro_rules! pair {
    ($name:ident, $float:ty, $bits:ty, $int:ty, unit: $unit:expr, turn: $turn:expr,
        ln2: ($ln2_high:expr, $ln2_low:expr), log: [$($log:expr),*], sin: [$($sin:expr),*], cos: [$($cos:expr),*]) => {
        /// Returns two normally distributed numbers from two random integers.
        #[inline(always)]
        pub(super) fn $name(u: $bits, v: $bits) -> ($float, $float) {
            const MANTISSA: u32 = <$float>::MANTISSA_DIGITS - 1;
            const WIDTH: u32 = <$bits>::BITS;

            // ln(u): u = 2^e m with m around 1, ln(m) = 2 artanh((m - 1) / (m + 1)).
            let u: $float = ($unit)(u);
            let root_half = std::f64::consts::FRAC_1_SQRT_2 as $float;
            let bits = u.to_bits().wrapping_sub(root_half.to_bits());
            let exponent = ((bits as $int) >> MANTISSA) as i32 as $float;
            let mantissa = bits & ((1 << MANTISSA) - 1);
            let m = <$float>::from_bits(mantissa.wrapping_add(root_half.to_bits()));
            let s = (m - 1.0) / (m + 1.0);
            let log_m = 2.0 * s + 2.0 * s * (s * s) * series!(s * s; $($log),*);
            let log = exponent * $ln2_high + (log_m + exponent * $ln2_low);
            let radius = (-2.0 * log).max(0.0).sqrt();

            // Range reduction to the nearest quarter turn and a rest of at most an eighth.
            let quarter = v.wrapping_add(1 << (WIDTH - 3)) >> (WIDTH - 2);
            let rest = v.wrapping_sub(quarter << (WIDTH - 2)) as $int;
            let t = rest as $float * $turn;
            let z = t * t;
            let sin = t + t * z * series!(z; $($sin),*);
            let cos = 1.0 + z * series!(z; $($cos),*);
            let (x, y) = if quarter & 1 == 0 { (cos, sin) } else { (sin, cos) };
            // Cosines are negative in the second and third quarter, sines in the third and fourth.
            let sign = |negative: $bits| negative << (WIDTH - 1);
            let x = <$float>::from_bits(x.to_bits() ^ sign((quarter + 1) >> 1 & 1));
            let y = <$float>::from_bits(y.to_bits() ^ sign(quarter >> 1 & 1));
            (radius * x, radius * y)
        }
    };
}

pair!(pair_f32, f32, u32, i32,
    unit: |u: u32| (u as f32 + 0.5) * (1.0 / 4_294_967_296.0),
    turn: (std::f64::consts::TAU / 4_294_967_296.0) as f32,
    // ln(2) in 10 bits (355 / 512), so that its products with exponents are exact, and the remainder.
    ln2: (0.693_359_4, -2.121_944_4e-4),
    log: [1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0],
    sin: [1.0 / 362_880.0, -1.0 / 5_040.0, 1.0 / 120.0, -1.0 / 6.0],
    cos: [-1.0 / 3_628_800.0, 1.0 / 40_320.0, -1.0 / 720.0, 1.0 / 24.0, -1.0 / 2.0]
);

pair!(pair_f64, f64, u64, i64,
    unit: |u: u64| ((u >> 11) as f64 + 0.5) * (1.0 / 9_007_199_254_740_992.0),
    turn: std::f64::consts::TAU / 18_446_744_073_709_551_616.0,
    // The same in 28 bits.
    ln2: (0.693_147_178_739_309_3, 1.820_635_998_504_146_2e-9),
    log: [1.0 / 21.0, 1.0 / 19.0, 1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0,
        1.0 / 5.0, 1.0 / 3.0],
    sin: [1.0 / 355_687_428_096_000.0, -1.0 / 1_307_674_368_000.0, 1.0 / 6_227_020_800.0,
        -1.0 / 39_916_800.0, 1.0 / 362_880.0, -1.0 / 5_040.0, 1.0 / 120.0, -1.0 / 6.0],
    cos: [-1.0 / 6_402_373_705_728_000.0, 1.0 / 20_922_789_888_000.0, -1.0 / 87_178_291_200.0,
        1.0 / 479_001_600.0, -1.0 / 3_628_800.0, 1.0 / 40_320.0, -1.0 / 720.0, 1.0 / 24.0, -1.0 / 2.0]
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Edge cases: ends, quarter and eighth turns and their neighbours, and some words in between.
    fn words() -> Vec<u32> {
        let corners = (0..8_u32).flat_map(|i| {
            let at = i << 29;
            [at, at.wrapping_sub(1), at + 1]
        });
        let others = (0..500_u32).map(|i| i.wrapping_mul(2_654_435_769));
        let small = (0..32).map(|i| 1 << i);
        corners.chain(others).chain(small).collect()
    }

    #[test]
    fn pairs_are_close_to_the_exact_values() {
        for u in words() {
            for v in words() {
                let unit = f64::from(u as f32 + 0.5) / 2_f64.powi(32);
                let radius = (-2.0 * unit.ln()).sqrt();
                let angle = f64::from(v) / 2_f64.powi(32) * std::f64::consts::TAU;
                let (x, y) = pair_f32(u, v);
                // Near 0 the rounding of the angle dominates: the bound is relative to the radius.
                let bound = radius.max(1e-6) * f64::from(f32::EPSILON) * 4.0;
                assert!(
                    (f64::from(x) - radius * angle.cos()).abs() < bound,
                    "{u} {v}"
                );
                assert!(
                    (f64::from(y) - radius * angle.sin()).abs() < bound,
                    "{u} {v}"
                );

                let (x, y) = pair_f64(u64::from(u) << 32 | 1023, u64::from(v) << 32);
                let u = (u64::from(u) << 32) >> 11;
                let radius = (-2.0 * ((u as f64 + 0.5) / 2_f64.powi(53)).ln()).sqrt();
                let bound = radius.max(1e-15) * f64::EPSILON * 8.0;
                assert!((x - radius * angle.cos()).abs() < bound, "{u} {v}");
                assert!((y - radius * angle.sin()).abs() < bound, "{u} {v}");
            }
        }
    }

    #[test]
    fn the_ends_are_finite() {
        let ends = [0, 1, u32::MAX];
        for (u, v) in ends.iter().flat_map(|&u| ends.map(|v| (u, v))) {
            let (x, y) = pair_f32(u, v);
            assert!(x.abs() < 6.8 && y.abs() < 6.8);
        }
        let (x, _) = pair_f64(0, 0);
        assert!(x > 8.5 && x < 8.7);
        assert_eq!(pair_f64(u64::MAX, 0).0, 0.0);
    }
}
