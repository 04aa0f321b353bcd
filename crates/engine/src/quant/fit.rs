//! Searches for the scales of small groups of weights.
//!
//! These are ggml's searches, step for step: which of many nearly equal candidates wins depends on the order of the sums,
//! and files made here must be bit-identical to ggml's. Levels are returned too, since they are kept if a scale is later
//! rounded to zero.

/// Groups whose magnitudes are all below this are quantised to zeros.
pub(super) const MIN_GROUP_MAGNITUDE: f32 = 1e-15;

/// The nearest integer, ties to even.
pub(super) fn nearest(value: f32) -> i32 {
    value.round_ties_even() as i32
}

/// The value with the largest magnitude; `None` if all are below [`MIN_GROUP_MAGNITUDE`].
fn largest_by_magnitude(x: &[f32]) -> Option<f32> {
    let (mut size, mut max) = (0.0, 0.0);
    for &v in x {
        if v.abs() > size {
            (size, max) = (v.abs(), v);
        }
    }
    (size >= MIN_GROUP_MAGNITUDE).then_some(max)
}

/// A scale for `q` from `-half` to `half - 1` that minimises the squared errors, weighted by the squares of the values.
/// Tries nineteen scales around the obvious one, each improved by least squares.
pub(super) fn symmetric(half: i32, x: &[f32], levels: &mut [u8]) -> f32 {
    let Some(max) = largest_by_magnitude(x) else {
        levels.fill(0);
        return 0.0;
    };
    let sums = |inverse: f32| {
        let (mut product, mut square) = (0.0_f32, 0.0_f32);
        for &v in x {
            let l = nearest(inverse * v).clamp(-half, half - 1) as f32;
            let weight = v * v;
            product += weight * v * l;
            square += weight * l * l;
        }
        (product, square)
    };
    let mut chosen = -(half as f32) / max;
    let (product, square) = sums(chosen);
    let mut scale = if square != 0.0 { product / square } else { 0.0 };
    let mut best = scale * product;
    for step in -9..=9 {
        if step == 0 {
            continue;
        }
        let inverse = -(half as f32 + 0.1 * step as f32) / max;
        let (product, square) = sums(inverse);
        if square > 0.0 && product * product > best * square {
            chosen = inverse;
            scale = product / square;
            best = scale * product;
        }
    }
    for (level, &v) in levels.iter_mut().zip(x) {
        *level = (nearest(chosen * v).clamp(-half, half - 1) + half) as u8;
    }
    scale
}

/// As [`symmetric`], by coordinate descent: moves one weight at a time to its best level.
pub(super) fn symmetric_by_moves(half: i32, x: &[f32], to: &mut [u8]) -> f32 {
    let Some(max) = largest_by_magnitude(x) else {
        to.fill(0);
        return 0.0;
    };
    let inverse = -(half as f32) / max;
    let (mut product, mut square) = (0.0_f32, 0.0_f32);
    let mut levels = [0; 16];
    for (level, &v) in levels.iter_mut().zip(x) {
        *level = nearest(inverse * v).clamp(-half, half - 1);
        let l = *level as f32;
        let weight = v * v;
        product += weight * v * l;
        square += weight * l * l;
    }
    for _ in 0..5 {
        let mut moved = false;
        for (level, &v) in levels.iter_mut().zip(x) {
            let weight = v * v;
            let l = *level as f32;
            let mut rest = product - weight * v * l;
            if rest <= 0.0 {
                continue;
            }
            let mut rest_square = square - weight * l * l;
            let new = nearest(v * rest_square / rest).clamp(-half, half - 1);
            if new == *level {
                continue;
            }
            let l = new as f32;
            rest += weight * v * l;
            rest_square += weight * l * l;
            if rest_square > 0.0 && rest * rest * square > product * product * rest_square {
                (*level, product, square) = (new, rest, rest_square);
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    for (to, level) in to.iter_mut().zip(levels) {
        *to = (level + half) as u8;
    }
    if square > 0.0 { product / square } else { 0.0 }
}

/// Parameters of the search of [`affine`].
pub(super) struct Search {
    /// The highest level.
    pub(super) max_level: i32,
    /// The scales tried have `max_level + first + 0.1 * i` levels between the minimum and the maximum.
    pub(super) first: f32,
    /// The last `i`.
    pub(super) steps: i32,
    /// True for absolute errors instead of squared ones.
    pub(super) use_absolute_error: bool,
}

/// The scale and offset that minimise the weighted errors of `x ≈ scale q - offset`, with `q` and the offset
/// non-negative.
pub(super) fn affine(search: &Search, x: &[f32], weights: &[f32], levels: &mut [u8]) -> (f32, f32) {
    let (mut low, mut high) = (x[0], x[0]);
    let mut weight_sum = weights[0];
    let mut value_sum = weight_sum * x[0];
    for (&v, &w) in x.iter().zip(weights).skip(1) {
        low = if v < low { v } else { low };
        high = if v > high { v } else { high };
        weight_sum += w;
        value_sum += w * v;
    }
    low = if low > 0.0 { 0.0 } else { low };
    if high == low {
        levels.fill(0);
        return (0.0, -low);
    }
    let max = search.max_level as f32;
    let level = |inverse: f32, low: f32, v: f32| {
        nearest(inverse * (v - low)).clamp(0, search.max_level) as f32
    };
    // The error of levels chosen with `inverse` and `low`, but dequantised with `scale` and `min`.
    let error = |inverse: f32, low: f32, scale: f32, min: f32| {
        let mut sum = 0.0_f32;
        for (&v, &w) in x.iter().zip(weights) {
            let off = scale * level(inverse, low, v) + min - v;
            sum += w * if search.use_absolute_error {
                off.abs()
            } else {
                off * off
            };
        }
        sum
    };
    let inverse = max / (high - low);
    let mut chosen = (inverse, low);
    let mut scale = 1.0 / inverse;
    let mut best = error(inverse, low, scale, low);
    for step in 0..=search.steps {
        let inverse = (search.first + 0.1 * step as f32 + max) / (high - low);
        let (mut sum, mut square, mut product) = (0.0_f32, 0.0_f32, 0.0_f32);
        for (&v, &w) in x.iter().zip(weights) {
            let l = level(inverse, low, v);
            sum += w * l;
            square += w * l * l;
            product += w * l * v;
        }
        let determinant = weight_sum * square - sum * sum;
        if determinant <= 0.0 {
            continue;
        }
        let mut new_scale = (weight_sum * product - value_sum * sum) / determinant;
        let mut new_min = (square * value_sum - sum * product) / determinant;
        if new_min > 0.0 {
            new_min = 0.0;
            new_scale = product / square;
        }
        let new = error(inverse, low, new_scale, new_min);
        if new < best {
            chosen = (inverse, low);
            // The following steps start from the new offset.
            (best, scale, low) = (new, new_scale, new_min);
        }
    }
    for (to, &v) in levels.iter_mut().zip(x) {
        *to = level(chosen.0, chosen.1, v) as u8;
    }
    (scale, -low)
}
