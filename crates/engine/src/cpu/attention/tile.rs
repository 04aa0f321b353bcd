//! The small products and softmaxes that attention is made of.

use crate::cpu::row::{self, Real};
use crate::cpu::simd::Isa;

/// Numbers of a panel's row: two vectors of AVX2, one of AVX-512. Six rows of these are the accumulators
/// that registers hold, with room for what is multiplied.
pub(super) const WIDTH: usize = 16;

/// Keys of a block.
pub(super) const KEYS: usize = 64;

/// `c[rows, n] (+)= a[rows, k] * b`, where `b` is panels of `k` times [`WIDTH`] numbers, one after the other,
/// and `n` is their number times [`WIDTH`]. The rows of `a` and `c` are `lda` and `ldc` apart.
#[inline(always)]
pub(super) fn product<I: Isa, R: Real>(
    (a, lda): (&[R], usize),
    b: &[R],
    k: usize,
    (c, ldc): (&mut [R], usize),
    rows: usize,
    add: bool,
) {
    for (p, panel) in b.chunks_exact((k * WIDTH).max(1)).enumerate() {
        let mut row = 0;
        macro_rules! tiles {
            ($($height:literal)*) => {$(
                while rows - row >= $height {
                    let c = &mut c[row * ldc + p * WIDTH..];
                    tile::<I, R, $height>((&a[row * lda..], lda), panel, k, (c, ldc), add);
                    row += $height;
                }
            )*};
        }
        tiles!(6 4 2 1);
    }
}

/// A tile of `M` rows of a product.
#[inline(always)]
fn tile<I: Isa, R: Real, const M: usize>(
    (a, lda): (&[R], usize),
    panel: &[R],
    k: usize,
    (c, ldc): (&mut [R], usize),
    add: bool,
) {
    let mut sums = [[R::ZERO; WIDTH]; M];
    if add {
        for (m, sum) in sums.iter_mut().enumerate() {
            sum.copy_from_slice(&c[m * ldc..][..WIDTH]);
        }
    }
    let rows: [&[R]; M] = std::array::from_fn(|m| &a[m * lda..][..k]);
    // Four at a time, so that the lengths of the rows are checked once for all of them.
    let fours: [&[[R; 4]]; M] = rows.map(|row| row.as_chunks::<4>().0);
    let (panel, _) = panel.as_chunks::<WIDTH>();
    let (panel_fours, rest) = panel.as_chunks::<4>();
    for (i, b) in panel_fours.iter().enumerate() {
        let x: [&[R; 4]; M] = std::array::from_fn(|m| &fours[m][i]);
        for u in 0..4 {
            for m in 0..M {
                for w in 0..WIDTH {
                    sums[m][w] = x[m][u].mul_add_on::<I>(b[u][w], sums[m][w]);
                }
            }
        }
    }
    for (i, b) in rest.iter().enumerate() {
        for m in 0..M {
            let x = rows[m][k / 4 * 4 + i];
            for w in 0..WIDTH {
                sums[m][w] = x.mul_add_on::<I>(b[w], sums[m][w]);
            }
        }
    }
    for (m, sum) in sums.iter().enumerate() {
        c[m * ldc..][..WIDTH].copy_from_slice(sum);
    }
}

/// A running softmax of a row: what has been seen so far.
#[derive(Clone, Copy)]
pub(super) struct Seen<R> {
    /// The greatest score.
    pub(super) top: R,
    /// The sum of `exp(score - top)`.
    pub(super) sum: R,
}

impl<R: Real> Seen<R> {
    pub(super) const NOTHING: Self = Self {
        top: R::LOWEST,
        sum: R::ZERO,
    };

    /// Takes in more scores and replaces them by their weights. Returns what to multiply the values
    /// summed up so far with.
    #[inline(always)]
    pub(super) fn take_in<I: Isa>(&mut self, scores: &mut [R]) -> R {
        let top = self.top.above(row::maximum(scores));
        // Where nothing is visible yet, weights are 0 whatever is subtracted, and a NaN stays one.
        let shift = if top == R::LOWEST { R::ZERO } else { top };
        for s in scores.iter_mut() {
            *s = (*s - shift).exp_negative::<I>();
        }
        let factor = (self.top - shift).exp_negative::<I>();
        self.sum = self.sum * factor + R::of(row::sum(scores));
        self.top = top;
        factor
    }

    /// What to multiply the weighted sum with at the end: 0 where nothing was visible.
    pub(super) fn scale(self) -> R {
        if self.sum == R::ZERO {
            R::ZERO
        } else {
            R::of(1.0) / self.sum
        }
    }
}

/// `cap * tanh(s / cap)` of each score.
#[inline(always)]
pub(super) fn bend<I: Isa, R: Real>(scores: &mut [R], cap: R) {
    let two = R::of(2.0);
    for s in scores {
        let x = *s / cap;
        let size = if x < R::ZERO { -x } else { x };
        let e = (-(two * size)).exp_negative::<I>();
        let y = cap * ((R::of(1.0) - e) / (R::of(1.0) + e));
        *s = if x < R::ZERO { -y } else { y };
    }
}

/// Dot products of `M` rows, each as long as `x`, with `x`.
#[inline(always)]
pub(super) fn dots<I: Isa, R: Real, const M: usize>(rows: [&[R]; M], x: &[R]) -> [R; M] {
    let mut sums = [[R::ZERO; WIDTH]; M];
    let (wide, rest) = x.as_chunks::<WIDTH>();
    let rows_wide = rows.map(|row| row.as_chunks::<WIDTH>().0);
    for (i, x) in wide.iter().enumerate() {
        for m in 0..M {
            let row = &rows_wide[m][i];
            for w in 0..WIDTH {
                sums[m][w] = row[w].mul_add_on::<I>(x[w], sums[m][w]);
            }
        }
    }
    let start = wide.len() * WIDTH;
    let mut out = [R::ZERO; M];
    for m in 0..M {
        let mut width = WIDTH / 2;
        while width > 0 {
            for w in 0..width {
                sums[m][w] += sums[m][w + width];
            }
            width /= 2;
        }
        out[m] = sums[m][0];
        for (a, &b) in rows[m][start..].iter().zip(rest) {
            out[m] = a.mul_add_on::<I>(b, out[m]);
        }
    }
    out
}
