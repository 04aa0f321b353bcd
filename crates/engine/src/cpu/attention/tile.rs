//! Micro-kernels of attention: tile GEMM, dot products, and online softmax.

use crate::cpu::row::{self, Real};
use crate::cpu::simd::Isa;

/// Columns of a panel: two AVX2 vectors, one AVX-512 vector. The accumulators of six such rows fit in the registers
/// with some to spare for the operands.
pub(super) const PANEL_WIDTH: usize = 16;

/// Keys of a tile.
pub(super) const TILE_KEYS: usize = 64;

/// The left operand of [`gemm`]: a row-major matrix and its leading dimension.
#[derive(Clone, Copy)]
pub(super) struct TileInput<'a, R> {
    pub(super) data: &'a [R],
    pub(super) lda: usize,
}

/// The result of [`gemm`]: a row-major matrix and its leading dimension.
pub(super) struct TileOutput<'a, R> {
    pub(super) data: &'a mut [R],
    pub(super) ldc: usize,
    /// Whether to add to the matrix instead of overwriting it.
    pub(super) accumulate: bool,
}

/// `c[rows, n] (+)= a[rows, k] * b`, where `b` is a sequence of panels of `k` × [`PANEL_WIDTH`] elements, and `n` is
/// their number times [`PANEL_WIDTH`].
#[inline(always)]
pub(super) fn gemm<I: Isa, R: Real>(
    a: TileInput<'_, R>,
    b: &[R],
    k: usize,
    c: TileOutput<'_, R>,
    rows: usize,
) {
    let TileInput { data: a, lda } = a;
    for (p, panel) in b.chunks_exact((k * PANEL_WIDTH).max(1)).enumerate() {
        let mut row = 0;
        macro_rules! tiles {
            ($($tile:ident $height:literal)*) => {$(
                while rows - row >= $height {
                    let c = TileOutput { data: &mut c.data[row * c.ldc + p * PANEL_WIDTH..], ..c };
                    $tile::<I, R>(TileInput { data: &a[row * lda..], lda }, panel, k, c);
                    row += $height;
                }
            )*};
        }
        tiles!(tile6 6 tile2 2 tile1 1);
    }
}

/// A row of a panel.
type PanelRow<R> = [R; PANEL_WIDTH];

/// `x * b + sum`, by value: the compiler keeps such sums in registers.
#[inline(always)]
fn broadcast_mul_add<I: Isa, R: Real>(x: R, b: &PanelRow<R>, mut sum: PanelRow<R>) -> PanelRow<R> {
    for w in 0..PANEL_WIDTH {
        sum[w] = x.mul_add_on::<I>(b[w], sum[w]);
    }
    sum
}

/// Defines a GEMM micro-kernel of a fixed number of rows, with one variable per row of accumulators: the compiler does
/// not always unroll a loop over rows, and then the accumulators spill to memory.
macro_rules! tile {
    ($name:ident $(($row:literal $x:ident $sum:ident))*) => {
        #[inline(always)]
        fn $name<I: Isa, R: Real>(a: TileInput<'_, R>, panel: &[R], k: usize, c: TileOutput<'_, R>) {
            let (panel, _) = panel.as_chunks::<PANEL_WIDTH>();
            let panel = &panel[..k];
            $(let $x = &a.data[$row * a.lda..][..k];)*
            $(let mut $sum = [R::ZERO; PANEL_WIDTH];)*
            if c.accumulate {
                $($sum.copy_from_slice(&c.data[$row * c.ldc..][..PANEL_WIDTH]);)*
            }
            for i in 0..k {
                let b = &panel[i];
                $($sum = broadcast_mul_add::<I, R>($x[i], b, $sum);)*
            }
            $(c.data[$row * c.ldc..][..PANEL_WIDTH].copy_from_slice(&$sum);)*
        }
    };
}

tile!(tile6 (0 x0 s0) (1 x1 s1) (2 x2 s2) (3 x3 s3) (4 x4 s4) (5 x5 s5));
tile!(tile2 (0 x0 s0) (1 x1 s1));
tile!(tile1 (0 x0 s0));

/// The running state of a row's online softmax.
#[derive(Clone, Copy)]
pub(super) struct OnlineSoftmax<R> {
    /// Running maximum of the scores.
    pub(super) max: R,
    /// Running sum of `exp(score - max)`.
    pub(super) sum: R,
}

impl<R: Real> OnlineSoftmax<R> {
    pub(super) const EMPTY: Self = Self {
        max: R::LOWEST,
        sum: R::ZERO,
    };

    /// Replaces further scores by their weights, and returns the factor that rescales the running sum of values to the
    /// new maximum.
    #[inline(always)]
    pub(super) fn update<I: Isa>(&mut self, scores: &mut [R]) -> R {
        let max = self.max.max_number(row::maximum(scores));
        // While all keys are masked, weights are 0 whatever is subtracted, and a NaN stays one.
        let shift = if max == R::LOWEST { R::ZERO } else { max };
        for s in scores.iter_mut() {
            *s = (*s - shift).exp_on::<I>();
        }
        let factor = (self.max - shift).exp_on::<I>();
        self.sum = self.sum * factor + R::of(row::sum(scores));
        self.max = max;
        factor
    }

    /// Returns the factor that normalises the weighted sum of values: 0 if all keys were masked.
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
pub(super) fn soft_cap<I: Isa, R: Real>(scores: &mut [R], cap: R) {
    for s in scores {
        *s = cap * (*s / cap).tanh_on::<I>();
    }
}

/// Dot products of four rows, as long as `x`, with `x`.
#[inline(always)]
pub(super) fn dots<I: Isa, R: Real>(rows: [&[R]; 4], x: &[R]) -> [R; 4] {
    let [a, b, c, d] = rows.map(|row| &row[..x.len()]);
    let (wide, rest) = x.as_chunks::<PANEL_WIDTH>();
    let [aw, bw, cw, dw] = [a, b, c, d].map(|row| &row.as_chunks::<PANEL_WIDTH>().0[..wide.len()]);
    let mut sums = [[R::ZERO; PANEL_WIDTH]; 4];
    let [mut sa, mut sb, mut sc, mut sd] = sums;
    for (i, x) in wide.iter().enumerate() {
        sa = mul_add::<I, R>(&aw[i], x, sa);
        sb = mul_add::<I, R>(&bw[i], x, sb);
        sc = mul_add::<I, R>(&cw[i], x, sc);
        sd = mul_add::<I, R>(&dw[i], x, sd);
    }
    sums.copy_from_slice(&[sa, sb, sc, sd]);
    let start = wide.len() * PANEL_WIDTH;
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
    let (wide, rest) = x.as_chunks::<PANEL_WIDTH>();
    let (row, row_rest) = row.as_chunks::<PANEL_WIDTH>();
    // Two independent accumulators, to hide the latency of the addition.
    let (mut even, mut odd) = ([R::ZERO; PANEL_WIDTH], [R::ZERO; PANEL_WIDTH]);
    let (pairs, last) = wide.as_chunks::<2>();
    let (row_pairs, row_last) = row.as_chunks::<2>();
    for (a, b) in row_pairs.iter().zip(pairs) {
        even = mul_add::<I, R>(&a[0], &b[0], even);
        odd = mul_add::<I, R>(&a[1], &b[1], odd);
    }
    for (a, b) in row_last.iter().zip(last) {
        even = mul_add::<I, R>(a, b, even);
    }
    for w in 0..PANEL_WIDTH {
        even[w] += odd[w];
    }
    let mut out = total(even);
    for (&a, &b) in row_rest.iter().zip(rest) {
        out = a.mul_add_on::<I>(b, out);
    }
    out
}

/// `a * b + sum`, elementwise.
#[inline(always)]
fn mul_add<I: Isa, R: Real>(a: &PanelRow<R>, b: &PanelRow<R>, mut sum: PanelRow<R>) -> PanelRow<R> {
    for w in 0..PANEL_WIDTH {
        sum[w] = a[w].mul_add_on::<I>(b[w], sum[w]);
    }
    sum
}

/// The sum of the elements, always in the same order.
#[inline(always)]
fn total<R: Real>(mut sums: PanelRow<R>) -> R {
    let mut width = PANEL_WIDTH / 2;
    while width > 0 {
        for w in 0..width {
            sums[w] += sums[w + width];
        }
        width /= 2;
    }
    sums[0]
}
