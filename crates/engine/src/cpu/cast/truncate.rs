//! Saturating conversions of floats to integers that vectorise: Rust's `as` compiles to code that handles values out of
//! range element by element.
#![expect(
    unsafe_code,
    reason = "unchecked float-to-integer conversion of values that were clamped to the range"
)]

macro_rules! truncate {
    ($name:ident, $T:ident) => {
        /// Computes `x as i32`.
        #[inline(always)]
        pub(crate) fn $name(x: $T) -> i32 {
            let below = 2_147_483_648.0;
            // Comparisons with NaN are false.
            let in_range = x < below && x > -below;
            let safe = if in_range { x } else { 0.0 };
            // SAFETY: `safe` is strictly between -2³¹ and 2³¹, so its integer part is an `i32`.
            let truncated = unsafe { safe.to_int_unchecked::<i32>() };
            let high = if x >= below { i32::MAX } else { truncated };
            if x <= -below { i32::MIN } else { high }
        }
    };
}
truncate!(f32_to_i32, f32);
truncate!(f64_to_i32, f64);

/// Computes `x as u32`.
#[inline(always)]
pub(crate) fn f32_to_u32(x: f32) -> u32 {
    let middle = 2_147_483_648.0;
    // Subtracting is exact in the upper half.
    let low = f32_to_i32(if x > 0.0 { x } else { 0.0 }) as u32;
    let high = (f32_to_i32(x - middle) as u32).wrapping_add(1 << 31);
    let value = if x >= middle { high } else { low };
    if x >= 2.0 * middle { u32::MAX } else { value }
}

/// Computes `x as u32`.
#[inline(always)]
pub(crate) fn f64_to_u32(x: f64) -> u32 {
    let middle = 2_147_483_648.0;
    let low = f64_to_i32(if x > 0.0 { x } else { 0.0 }) as u32;
    let high = (f64_to_i32(x - middle) as u32).wrapping_add(1 << 31);
    let value = if x >= middle { high } else { low };
    if x >= 2.0 * middle { u32::MAX } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_match_as() {
        let edges = [
            0.0,
            0.5,
            0.99,
            1.0,
            1.5,
            127.9,
            255.5,
            256.0,
            65535.7,
            8_388_607.5,
            16_777_215.0,
            2_147_483_520.0,
            2_147_483_647.0,
            2_147_483_647.5,
            2_147_483_648.0,
            2_147_483_648.7,
            3e9,
            4_294_967_040.0,
            4_294_967_295.0,
            4_294_967_295.9,
            4_294_967_296.0,
            1e20,
            f64::INFINITY,
            f64::NAN,
            f64::MIN_POSITIVE,
        ];
        for x in edges.into_iter().flat_map(|x| [x, -x]) {
            assert_eq!(f64_to_i32(x), x as i32, "{x}");
            assert_eq!(f64_to_u32(x), x as u32, "{x}");
            let x = x as f32;
            assert_eq!(f32_to_i32(x), x as i32, "{x}");
            assert_eq!(f32_to_u32(x), x as u32, "{x}");
        }
    }
}
