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
            ($($tile:ident $height:literal)*) => {$(
                while rows - row >= $height {
                    let c = &mut c[row * ldc + p * WIDTH..];
                    $tile::<I, R>((&a[row * lda..], lda), panel, k, (c, ldc), add);
                    row += $height;
                }
            )*};
        }
        tiles!(tile6 6 tile2 2 tile1 1);
    }
}

/// A row of a panel.
type Wide<R> = [R; WIDTH];

/// `x * b + sum`, by value: the compiler keeps such sums in registers.
#[inline(always)]
fn fused<I: Isa, R: Real>(x: R, b: &Wide<R>, mut sum: Wide<R>) -> Wide<R> {
    for w in 0..WIDTH {
        sum[w] = x.mul_add_on::<I>(b[w], sum[w]);
    }
    sum
}

/// A function for tiles of a product, with a variable for the sums of each row: the compiler does not
/// always unroll a loop over rows, and then the sums go through memory.
macro_rules! tile {
    ($name:ident $(($row:literal $x:ident $sum:ident))*) => {
        #[inline(always)]
        fn $name<I: Isa, R: Real>(
            (a, lda): (&[R], usize),
            panel: &[R],
            k: usize,
            (c, ldc): (&mut [R], usize),
            add: bool,
        ) {
            let (panel, _) = panel.as_chunks::<WIDTH>();
            let panel = &panel[..k];
            $(let $x = &a[$row * lda..][..k];)*
            $(let mut $sum = [R::ZERO; WIDTH];)*
            if add {
                $($sum.copy_from_slice(&c[$row * ldc..][..WIDTH]);)*
            }
            for i in 0..k {
                let b = &panel[i];
                $($sum = fused::<I, R>($x[i], b, $sum);)*
            }
            $(c[$row * ldc..][..WIDTH].copy_from_slice(&$sum);)*
        }
    };
}

tile!(tile6 (0 x0 s0) (1 x1 s1) (2 x2 s2) (3 x3 s3) (4 x4 s4) (5 x5 s5));
tile!(tile2 (0 x0 s0) (1 x1 s1));
tile!(tile1 (0 x0 s0));

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
            *s = (*s - shift).exp_on::<I>();
        }
        let factor = (self.top - shift).exp_on::<I>();
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
    for s in scores {
        *s = cap * (*s / cap).tanh_on::<I>();
    }
}

/// Dot products of four rows, as long as `x`, with `x`.
#[inline(always)]
pub(super) fn dots<I: Isa, R: Real>(rows: [&[R]; 4], x: &[R]) -> [R; 4] {
    let [a, b, c, d] = rows.map(|row| &row[..x.len()]);
    let (wide, rest) = x.as_chunks::<WIDTH>();
    let [aw, bw, cw, dw] = [a, b, c, d].map(|row| &row.as_chunks::<WIDTH>().0[..wide.len()]);
    let mut sums = [[R::ZERO; WIDTH]; 4];
    let [mut sa, mut sb, mut sc, mut sd] = sums;
    for (i, x) in wide.iter().enumerate() {
        sa = products::<I, R>(&aw[i], x, sa);
        sb = products::<I, R>(&bw[i], x, sb);
        sc = products::<I, R>(&cw[i], x, sc);
        sd = products::<I, R>(&dw[i], x, sd);
    }
    sums.copy_from_slice(&[sa, sb, sc, sd]);
    let start = wide.len() * WIDTH;
    let mut out = sums.map(total);
    for (out, row) in out.iter_mut().zip([a, b, c, d]) {
        for (&a, &b) in row[start..].iter().zip(rest) {
            *out = a.mul_add_on::<I>(b, *out);
        }
    }
    out
}

/// The dot product of two rows of the same length.
#[inline(always)]
pub(super) fn dot<I: Isa, R: Real>(row: &[R], x: &[R]) -> R {
    let (wide, rest) = x.as_chunks::<WIDTH>();
    let (row, row_rest) = row.as_chunks::<WIDTH>();
    // Two sums, so that one addition need not wait for the other.
    let (mut even, mut odd) = ([R::ZERO; WIDTH], [R::ZERO; WIDTH]);
    let (pairs, last) = wide.as_chunks::<2>();
    let (row_pairs, row_last) = row.as_chunks::<2>();
    for (a, b) in row_pairs.iter().zip(pairs) {
        even = products::<I, R>(&a[0], &b[0], even);
        odd = products::<I, R>(&a[1], &b[1], odd);
    }
    for (a, b) in row_last.iter().zip(last) {
        even = products::<I, R>(a, b, even);
    }
    for w in 0..WIDTH {
        even[w] += odd[w];
    }
    let mut out = total(even);
    for (&a, &b) in row_rest.iter().zip(rest) {
        out = a.mul_add_on::<I>(b, out);
    }
    out
}

/// `a * b + sum`, element by element.
#[inline(always)]
fn products<I: Isa, R: Real>(a: &Wide<R>, b: &Wide<R>, mut sum: Wide<R>) -> Wide<R> {
    for w in 0..WIDTH {
        sum[w] = a[w].mul_add_on::<I>(b[w], sum[w]);
    }
    sum
}

/// The sum of the elements, always in the same order.
#[inline(always)]
fn total<R: Real>(mut sums: Wide<R>) -> R {
    let mut width = WIDTH / 2;
    while width > 0 {
        for w in 0..width {
            sums[w] += sums[w + width];
        }
        width /= 2;
    }
    sums[0]
}
