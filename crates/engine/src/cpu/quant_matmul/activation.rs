//! Activations quantised to 8 bits.
#![expect(
    clippy::needless_range_loop,
    reason = "adapters of iterators are not always inlined into code for an instruction set"
)]

use super::shared_output;
use crate::cpu::pool;
use crate::cpu::simd::{self, Isa, Task};

/// Activations that share a scale.
pub(super) const GROUP_LEN: usize = 32;

/// Scale and sums of a group of 32 quantised activations.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Scale {
    /// Activation `i` is about `d * q[i]`.
    pub(super) d: f32,
    /// `d` times the sum of all `q`.
    pub(super) sum: f32,
    /// The sums of `q` in the first and in the second half.
    pub(super) half_sums: [i16; 2],
}

/// Rows of quantised activations.
#[derive(Default)]
pub(super) struct Activations {
    q: Vec<i8>,
    /// `q + 128` as unsigned bytes, if requested.
    biased: Vec<u8>,
    scales: Vec<Scale>,
    cols: usize,
    rows: usize,
    terms: usize,
    has_biased: bool,
}

/// A row of [`Activations`].
#[derive(Clone, Copy)]
pub(super) struct ActivationRow<'a> {
    pub(super) q: &'a [i8],
    /// `q + 128` as unsigned bytes; empty if not requested.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "other processors multiply signed bytes")
    )]
    pub(super) biased: &'a [u8],
    pub(super) scales: &'a [Scale],
}

impl Activations {
    /// Quantises `x`, rows of `cols` activations, a multiple of [`GROUP_LEN`]. With two terms, the rounding errors of a
    /// row are quantised as well, into the row after it. If `biased`, also stores `q + 128` as unsigned bytes.
    pub(super) fn set(&mut self, x: &[f32], cols: usize, terms: usize, biased: bool) {
        (self.cols, self.terms, self.has_biased) = (cols, terms, biased);
        self.rows = x.len() / cols * terms;
        let len = x.len() * terms;
        if self.q.len() < len {
            self.q.resize(len, 0);
            self.scales.resize(len / GROUP_LEN, Scale::default());
        }
        let biased_len = if biased { len } else { 0 };
        if self.biased.len() < biased_len {
            self.biased.resize(biased_len, 0);
        }
        let (q, scales) = (&mut self.q[..len], &mut self.scales[..len / GROUP_LEN]);
        // Groups consecutive rows into a task: a single vector is not worth a thread.
        const TASK_LEN: usize = 16 << 10;
        let task_rows = (TASK_LEN / cols.max(1)).max(1);
        let all = pool::DisjointSlice::new(q);
        let all_biased = pool::DisjointSlice::new(&mut self.biased[..biased_len]);
        pool::for_each_chunk(scales, task_rows * terms * cols / GROUP_LEN, |i, scales| {
            let (first, len) = (i * task_rows * terms * cols, scales.len() * GROUP_LEN);
            let q = shared_output::own(&all, first..first + len);
            let biased = if biased {
                shared_output::own(&all_biased, first..first + len)
            } else {
                &mut []
            };
            simd::run_narrow(RoundRows {
                x: &x[first / terms..][..len / terms],
                cols,
                terms,
                q: &mut *q,
                scales,
            });
            for (to, q) in biased.iter_mut().zip(q) {
                *to = (*q as u8) ^ 0x80;
            }
        });
    }

    /// Rows per vector, whose products are added.
    pub(super) fn terms(&self) -> usize {
        self.terms
    }

    /// Number of rows, counting terms.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Number of elements of all rows.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn len(&self) -> usize {
        self.rows * self.cols
    }

    /// Returns true if `q + 128` is stored.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn has_biased(&self) -> bool {
        self.has_biased
    }

    /// ActivationRow `i`.
    #[inline]
    pub(super) fn row(&self, i: usize) -> ActivationRow<'_> {
        let groups = self.cols / GROUP_LEN;
        ActivationRow {
            q: &self.q[i * self.cols..][..self.cols],
            biased: if self.has_biased {
                &self.biased[i * self.cols..][..self.cols]
            } else {
                &[]
            },
            scales: &self.scales[i * groups..][..groups],
        }
    }
}

struct RoundRows<'a> {
    x: &'a [f32],
    cols: usize,
    terms: usize,
    q: &'a mut [i8],
    scales: &'a mut [Scale],
}

impl Task for RoundRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let groups = self.cols / GROUP_LEN;
        let x = self.x.as_chunks::<GROUP_LEN>().0;
        let q = self.q.as_chunks_mut::<GROUP_LEN>().0;
        let rows = q.chunks_exact_mut(groups * self.terms);
        let scales = self.scales.chunks_exact_mut(groups * self.terms);
        for ((x, q), scales) in x.chunks_exact(groups).zip(rows).zip(scales) {
            for g in 0..groups {
                scales[g] = round(&x[g], &mut q[g]);
                if self.terms == 2 {
                    let mut rest = [0.0; GROUP_LEN];
                    for i in 0..GROUP_LEN {
                        rest[i] = x[g][i] - scales[g].d * f32::from(q[g][i]);
                    }
                    scales[groups + g] = round(&rest, &mut q[groups + g]);
                }
            }
        }
    }
}

/// Quantises a group.
#[inline(always)]
fn round(x: &[f32; GROUP_LEN], q: &mut [i8; GROUP_LEN]) -> Scale {
    // Compares bits as integers, in which NaN exceeds every number, so it is not lost.
    let mut max = 0;
    for i in 0..GROUP_LEN {
        max = max.max(x[i].to_bits() & 0x7FFF_FFFF);
    }
    let max = f32::from_bits(max);
    let inverse = if max == 0.0 { 0.0 } else { 127.0 / max };
    let mut half_sums = [0_i32; 2];
    let mut whole = [0_i32; GROUP_LEN];
    for i in 0..GROUP_LEN {
        // Rounds to nearest: the low bits of a sum with 1.5 · 2²³ are the integer.
        let bits = (x[i] * inverse + 12_582_912.0).to_bits();
        // Sign-extends the low byte, since non-finite values set higher bits. Uses shifts, which vectorise.
        whole[i] = ((bits as i32).wrapping_sub(0x4B40_0000) << 24) >> 24;
    }
    for i in 0..GROUP_LEN {
        q[i] = whole[i] as i8;
    }
    for i in 0..GROUP_LEN / 2 {
        half_sums[0] += whole[i];
        half_sums[1] += whole[i + GROUP_LEN / 2];
    }
    let d = max / 127.0;
    let sum = half_sums[0] + half_sums[1];
    Scale {
        d,
        sum: d * sum as f32,
        half_sums: half_sums.map(|h| h as i16),
    }
}
