//! Activations rounded to 8 bits.
#![expect(
    clippy::needless_range_loop,
    reason = "adapters of iterators are not always inlined into code for an instruction set"
)]

use super::shared_output;
use crate::cpu::pool;
use crate::cpu::simd::{self, Isa, Task};

/// Numbers that share a scale.
pub(super) const GROUP: usize = 32;

/// What belongs to 32 rounded numbers.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Scale {
    /// Number `i` is about `d * q[i]`.
    pub(super) d: f32,
    /// `d` times the sum of all `q`.
    pub(super) sum: f32,
    /// The sums of the first and of the second half.
    pub(super) halves: [i16; 2],
}

/// Rows of rounded numbers.
#[derive(Default)]
pub(super) struct Activations {
    q: Vec<i8>,
    /// The same, 128 more each, where they were asked for.
    raised: Vec<u8>,
    scales: Vec<Scale>,
    cols: usize,
    rows: usize,
    parts: usize,
    is_raised: bool,
}

/// One of those rows.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) q: &'a [i8],
    /// The same, 128 more each; empty where they were not asked for.
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "other processors multiply numbers with a sign")
    )]
    pub(super) raised: &'a [u8],
    pub(super) scales: &'a [Scale],
}

impl Activations {
    /// Rounds `x`, rows of `cols` numbers, which is a multiple of [`GROUP`]. In two parts, what rounding a row
    /// leaves over is rounded as well, into a row of its own after it. Where `raised`, the numbers are kept without sign
    /// too.
    pub(super) fn set(&mut self, x: &[f32], cols: usize, parts: usize, raised: bool) {
        (self.cols, self.parts, self.is_raised) = (cols, parts, raised);
        self.rows = x.len() / cols * parts;
        let len = x.len() * parts;
        if self.q.len() < len {
            self.q.resize(len, 0);
            self.scales.resize(len / GROUP, Scale::default());
        }
        let raised_len = if raised { len } else { 0 };
        if self.raised.len() < raised_len {
            self.raised.resize(raised_len, 0);
        }
        let (q, scales) = (&mut self.q[..len], &mut self.scales[..len / GROUP]);
        // Rows that are one after the other in one task: a single vector is not worth a thread.
        const TASK: usize = 16 << 10;
        let some = (TASK / cols.max(1)).max(1);
        let all = pool::DisjointSlice::new(q);
        let all_raised = pool::DisjointSlice::new(&mut self.raised[..raised_len]);
        pool::for_each_chunk(scales, some * parts * cols / GROUP, |i, scales| {
            let (first, len) = (i * some * parts * cols, scales.len() * GROUP);
            let q = shared_output::own(&all, first..first + len);
            let raised = if raised {
                shared_output::own(&all_raised, first..first + len)
            } else {
                &mut []
            };
            simd::run_narrow(Round {
                x: &x[first / parts..][..len / parts],
                cols,
                parts,
                q: &mut *q,
                scales,
            });
            for (to, q) in raised.iter_mut().zip(q) {
                *to = (*q as u8) ^ 0x80;
            }
        });
    }

    /// Rows for every vector: their products are added.
    pub(super) fn parts(&self) -> usize {
        self.parts
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers of all rows.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn len(&self) -> usize {
        self.rows * self.cols
    }

    /// Whether the numbers are there without sign too.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn is_raised(&self) -> bool {
        self.is_raised
    }

    /// Row `i`.
    #[inline]
    pub(super) fn row(&self, i: usize) -> Row<'_> {
        let groups = self.cols / GROUP;
        Row {
            q: &self.q[i * self.cols..][..self.cols],
            raised: if self.is_raised {
                &self.raised[i * self.cols..][..self.cols]
            } else {
                &[]
            },
            scales: &self.scales[i * groups..][..groups],
        }
    }
}

struct Round<'a> {
    x: &'a [f32],
    cols: usize,
    parts: usize,
    q: &'a mut [i8],
    scales: &'a mut [Scale],
}

impl Task for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let groups = self.cols / GROUP;
        let x = self.x.as_chunks::<GROUP>().0;
        let q = self.q.as_chunks_mut::<GROUP>().0;
        let rows = q.chunks_exact_mut(groups * self.parts);
        let scales = self.scales.chunks_exact_mut(groups * self.parts);
        for ((x, q), scales) in x.chunks_exact(groups).zip(rows).zip(scales) {
            for g in 0..groups {
                scales[g] = round(&x[g], &mut q[g]);
                if self.parts == 2 {
                    let mut rest = [0.0; GROUP];
                    for i in 0..GROUP {
                        rest[i] = x[g][i] - scales[g].d * f32::from(q[g][i]);
                    }
                    scales[groups + g] = round(&rest, &mut q[groups + g]);
                }
            }
        }
    }
}

#[inline(always)]
fn round(x: &[f32; GROUP], q: &mut [i8; GROUP]) -> Scale {
    // As integers: NaN is greater than all numbers and is not lost.
    let mut top = 0;
    for i in 0..GROUP {
        top = top.max(x[i].to_bits() & 0x7FFF_FFFF);
    }
    let top = f32::from_bits(top);
    let inverse = if top == 0.0 { 0.0 } else { 127.0 / top };
    let mut halves = [0_i32; 2];
    let mut whole = [0_i32; GROUP];
    for i in 0..GROUP {
        // To nearest: the last bits of a sum with 1.5 · 2²³ are the integer.
        let bits = (x[i] * inverse + 12_582_912.0).to_bits();
        // As wide as it is kept: numbers that are not finite have other bits too. By shifts, which vectors have.
        whole[i] = ((bits as i32).wrapping_sub(0x4B40_0000) << 24) >> 24;
    }
    for i in 0..GROUP {
        q[i] = whole[i] as i8;
    }
    for i in 0..GROUP / 2 {
        halves[0] += whole[i];
        halves[1] += whole[i + GROUP / 2];
    }
    let d = top / 127.0;
    let count = halves[0] + halves[1];
    Scale {
        d,
        sum: d * count as f32,
        halves: halves.map(|h| h as i16),
    }
}
