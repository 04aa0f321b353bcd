//! Bounds of comparisons that are not those of one op: of whole models, of two implementations with each other, of
//! statistics and of constants. Each says what it is relative to, and why it is as large as it is.
//!
//! A test of one op takes [`tolerance`](super::tolerance) instead. No test has a bound of its own.

use bessemer::{CacheType, DType};

/// Sums of `f32`, relative to the sum of magnitudes, for any number of terms: blocks and pairs are added in more bits or
/// as a tree, so that the error of the few roundings on the way to the top is left, 1.7 · 2⁻²³.
pub const F32_SUM: f64 = 2e-7;

/// Euclidean norms of `f32`, relative to the norm or 1: the root halves the relative error of a sum of squares.
pub const F32_NORM: f64 = 2e-7;

/// Means of `f32` between -1 and 1, relative to the mean or 1: [`F32_SUM`] of the mean magnitude, which is at most 1, and the
/// rounding of the quotient.
pub const F32_MEAN: f64 = 5e-7;

/// Variances, sums of absolute values and log-sum-exps of `f32`, relative to the result or 1: a sum, and the function of
/// each element or of the sum, 8 · 2⁻²³.
pub const F32_REDUCTION: f64 = 1e-6;

/// The last of at most 700 running sums of `f32` between -1 and 1 against their sum, absolute: two orders of summation.
pub const F32_RUNNING_SUM: f32 = 1e-4;

/// Elementwise functions and sums of a few terms in `f32`, relative to the result or 1: 8 · 2⁻²³.
pub const F32_FEW_STEPS: f64 = 1e-6;

/// Sums of four `f32` between -2 and 2 in two orders, absolute: 80 · 2⁻²³.
pub const F32_FOUR_TERMS: f32 = 1e-5;

/// A softmax written as a kernel of the caller, in `f32`, relative to the result: MSL's own `exp`, which may be off by 4
/// units in the last place, a sum in an order that is not known, and a quotient; 34 · 2⁻²³.
pub const F32_CUSTOM_SOFTMAX: f64 = 4e-6;

/// One elementwise function of `f32`, relative to the result or 1: four units in the last place, twice the largest bound
/// of the functions that are compared so.
pub const F32_FUNCTION: f64 = 4.0 * f32::EPSILON as f64;

/// `exp` of a device in precise mode, relative to the result: 2.5 units in the last place, with the error of `f64::exp`
/// of a rounded argument.
pub const F32_PRECISE_EXP: f64 = 3e-7;

/// `exp` of a device in fast mode, relative to the result, for arguments up to 8: an argument times log₂ e is off by
/// 2⁻²⁴ of up to 11.5, and the hardware's `exp2` by a few units.
pub const F32_FAST_EXP: f64 = 1e-5;

/// `exp` of the engine and of the standard library in `f32`, relative to the result, for arguments up to 64.
pub const F32_LIBRARY_EXP: f32 = 1e-5;

/// Formulas in `f64` of values up to 1 in two orders, absolute: 4 · 2⁻⁵².
pub const F64_FORMULA: f64 = 1e-15;

/// Norms of two values in `f64` that are scaled by up to 10³⁰⁰, relative to the scale, for a norm of 5: 11 · 2⁻⁵² of it.
pub const F64_SCALED_NORM: f64 = 1e-14;

/// Scores of eight products up to 36 of rotated values in `f64`, absolute: the angle of position 1,000 is off by 2⁻⁵³ of
/// itself.
pub const F64_ROTATED_SCORE: f64 = 1e-9;

/// A norm of rows with a mean of 10⁴ and a deviation of ½, absolute: the error of the mean is at most half an ulp of 10⁴,
/// 1/2,048, relative to the deviation twice that.
pub const NORM_OF_LARGE_MEAN: f64 = 1e-3;

/// Ops, and blocks of some ten ops, on one backend and another, relative to the result or 1: sums of some hundred
/// products in another order, through the exponent of a softmax.
pub const BACKENDS: f32 = 2e-5;

/// Softmax and norms of rows of 8,192 with a shuffled order of summation, relative to the largest result.
pub const SHUFFLED_ROWS: f32 = 1e-5;

/// Matmuls of up to 64 products of values between -1 and 1 through the device's own library, relative to the result or 1:
/// `f32` in any order, or results rounded to `f16`.
pub fn library_matmul(dtype: DType) -> f64 {
    if dtype == DType::F32 { 1e-5 } else { 2e-3 }
}

/// Sums of 40 products on the CPU and through the device's own library in several launches, absolute: two orders of
/// summation.
pub const SPLIT_LAUNCHES: f32 = 1e-3;

/// A fused epilogue on a device that rounds differently on purpose, absolute, for results up to 100: one ulp of the type,
/// followed by another rounding.
pub fn shuffled_epilogue(dtype: DType) -> f32 {
    if dtype == DType::F32 { 1e-4 } else { 0.1 }
}

/// Sums of products of quantised weights in `f32`, as a share of the error bound of rounding the activations to 8 bits,
/// which is about 1/254 of the magnitudes. One activation of 512 that is off by one is twice as much.
pub const QUANT_SUM_SHARE: f64 = 1e-3;

/// Sums of up to 768 products of the same integers, with scales, in another order, absolute, for values between -1 and 1.
pub const QUANT_ORDER: f32 = 1e-4;

/// Sums of 512 products with fixed-point activations of 13 bits against exact ones, absolute, for values between -1 and 1.
pub const FIXED_POINT: f32 = 1e-3;

/// Sums of 512 products with 8-bit activations against exact ones, absolute, for values between -1 and 1: half a step of
/// 1/127 of each activation, with signs that cancel.
pub const EIGHT_BIT: f32 = 0.1;

/// Relative error of quantised values against ggml's, absolute: some blocks have another scale of the same quality.
pub const QUANT_ROUND_TRIP: f64 = 1e-4;

/// Logits of a transformer against the reference in `f64`, relative to the largest: a dozen consecutive sums of some
/// hundred `f32` products, each with an error of 2⁻²⁴. With an `f16` cache a value near the middle of two `f16` values may
/// be rounded either way, by 2⁻¹¹ of itself; with an 8-bit cache a step is a 127th of the largest of 32.
pub fn logits(cache: CacheType) -> f64 {
    match cache {
        CacheType::F32 => 1e-5,
        CacheType::F16 => 5e-4,
        CacheType::Q8_0 => 1e-2,
    }
}

/// Probability by which a draw may differ between two devices: sums of weights, each exact to an ulp of `f32`.
pub const SAMPLING_MARGIN: f64 = 2e-7;

/// Moments of random values in half precision, absolute: the rounding of the values to 2⁻⁸ of themselves, averaged.
pub const HALF_MOMENT: f64 = 1e-3;

/// Share of 2¹⁸ normal values within some deviations, absolute: five standard deviations of a count of shares.
pub const NORMAL_SHARE: f64 = 5e-3;
