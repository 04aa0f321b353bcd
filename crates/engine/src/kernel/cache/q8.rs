//! Keys and values quantised to 8 bits as `q8_0`: an `f16` scale for every [`GROUP_LEN`] elements of a head, whose largest
//! magnitude becomes 127.
//!
//! The layout is that of the other caches, `[head, panel, dim, LANES]` and `[head, position, dim]`; scales have
//! their own arrays in the same order, `[head, panel, group, LANES]` and `[head, position, group]`. If a head is not a
//! whole number of groups, its last group is shorter.

use std::ops::Range;

use half::f16;

use super::{KvLayout, KvView, LANES, OP, zeros};
use crate::cpu::row::Float;
use crate::cpu::simd::{Isa, Task};
use crate::{Result, try_vec};

/// Elements that share a scale.
const GROUP_LEN: usize = 32;

/// Scales of a head.
pub(super) const fn groups(dim: usize) -> usize {
    dim.div_ceil(GROUP_LEN)
}

/// Keys and values of all heads.
pub(super) struct Q8Store {
    keys: Vec<i8>,
    values: Vec<i8>,
    key_scales: Vec<f16>,
    value_scales: Vec<f16>,
}

impl Q8Store {
    /// A store of zeros; the caller has checked that sizes do not overflow.
    pub(super) fn new(layout: KvLayout) -> Result<Self> {
        let rows = layout.heads * layout.capacity;
        let (elements, scales) = (rows * layout.dim, rows * groups(layout.dim));
        Ok(Self {
            keys: try_vec::zeros(OP, elements)?,
            values: try_vec::zeros(OP, elements)?,
            key_scales: zeros(scales)?,
            value_scales: zeros(scales)?,
        })
    }

    /// The keys and values of a head.
    pub(super) fn head(&self, layout: KvLayout, head: usize) -> (Q8Keys<'_>, Q8Values<'_>) {
        let KvLayout { dim, capacity, .. } = layout;
        let range = head * capacity * dim..(head + 1) * capacity * dim;
        let count = capacity * groups(dim);
        let scales = head * count..(head + 1) * count;
        (
            Q8Keys(Q8Head {
                levels: &self.keys[range.clone()],
                scales: &self.key_scales[scales.clone()],
                dim,
            }),
            Q8Values(Q8Head {
                levels: &self.values[range],
                scales: &self.value_scales[scales],
                dim,
            }),
        )
    }
}

/// The keys or values of a head, and their scales.
#[derive(Clone, Copy)]
struct Q8Head<'a> {
    levels: &'a [i8],
    scales: &'a [f16],
    dim: usize,
}

/// The keys of a head.
#[derive(Clone, Copy)]
pub(super) struct Q8Keys<'a>(Q8Head<'a>);

/// The values of a head.
#[derive(Clone, Copy)]
pub(super) struct Q8Values<'a>(Q8Head<'a>);

impl KvView for Q8Keys<'_> {
    #[inline(always)]
    fn view<'a, I: Isa>(&'a self, range: Range<usize>, scratch: &'a mut [f32]) -> &'a [f32] {
        let Q8Head {
            levels,
            scales,
            dim,
        } = self.0;
        let scratch = &mut scratch[..range.len()];
        let panel = dim * LANES;
        let first = range.start / panel;
        let levels = levels[range].chunks_exact(panel);
        let scales = scales[first * groups(dim) * LANES..].chunks_exact(groups(dim) * LANES);
        for ((levels, scales), to) in levels.zip(scales).zip(scratch.chunks_exact_mut(panel)) {
            let groups_of_panel = levels
                .chunks(GROUP_LEN * LANES)
                .zip(to.chunks_mut(GROUP_LEN * LANES));
            for ((levels, to), scales) in groups_of_panel.zip(scales.as_chunks::<LANES>().0) {
                let mut scale = [0.0; LANES];
                f16::widen::<I>(scales, &mut scale);
                let rows = levels.as_chunks::<LANES>().0.iter();
                for (levels, to) in rows.zip(to.as_chunks_mut::<LANES>().0) {
                    for lane in 0..LANES {
                        to[lane] = f32::from(levels[lane]) * scale[lane];
                    }
                }
            }
        }
        scratch
    }
}

impl KvView for Q8Values<'_> {
    #[inline(always)]
    fn view<'a, I: Isa>(&'a self, range: Range<usize>, scratch: &'a mut [f32]) -> &'a [f32] {
        /// Number of scales that are widened at a time.
        const MAX_WIDENED_SCALES: usize = 64;
        let Q8Head {
            levels,
            scales,
            dim,
        } = self.0;
        let scratch = &mut scratch[..range.len()];
        let groups = groups(dim);
        let rows = range.start / dim..range.end / dim;
        let levels = &levels[range];
        let scales = &scales[rows.start * groups..rows.end * groups];
        let mut scale = [0.0; MAX_WIDENED_SCALES];
        for (batch, scales) in scales.chunks(MAX_WIDENED_SCALES).enumerate() {
            f16::widen::<I>(scales, &mut scale[..scales.len()]);
            for (i, &scale) in scale[..scales.len()].iter().enumerate() {
                let group = batch * MAX_WIDENED_SCALES + i;
                let start = group / groups * dim + group % groups * GROUP_LEN;
                let end = (start + GROUP_LEN).min((group / groups + 1) * dim);
                for (to, &n) in scratch[start..end].iter_mut().zip(&levels[start..end]) {
                    *to = f32::from(n) * scale;
                }
            }
        }
        scratch
    }
}

/// Writes keys and values, `[positions, heads, dim]`.
pub(super) struct WriteQ8<'a> {
    pub(super) layout: KvLayout,
    pub(super) first: usize,
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) store: &'a mut Q8Store,
}

impl Task for WriteQ8<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let KvLayout {
            heads,
            dim,
            capacity,
        } = self.layout;
        let groups = groups(dim);
        let store = self.store;
        let mut levels = [0_i8; GROUP_LEN];
        let rows = self.k.chunks_exact(dim).zip(self.v.chunks_exact(dim));
        for (i, (k, v)) in rows.enumerate() {
            let (position, head) = (self.first + i / heads, i % heads);
            let (panel, lane) = (position / LANES, position % LANES);
            for (group, (k, v)) in k.chunks(GROUP_LEN).zip(v.chunks(GROUP_LEN)).enumerate() {
                let at = (head * capacity + position) * dim + group * GROUP_LEN;
                let to = &mut store.values[at..][..v.len()];
                let scale = (head * capacity + position) * groups + group;
                store.value_scales[scale] = narrow(v, to);

                let levels = &mut levels[..k.len()];
                let scale = (head * capacity / LANES + panel) * groups + group;
                store.key_scales[scale * LANES + lane] = narrow(k, levels);
                let at = head * capacity * dim + (panel * dim + group * GROUP_LEN) * LANES + lane;
                for (d, &n) in levels.iter().enumerate() {
                    store.keys[at + d * LANES] = n;
                }
            }
        }
    }
}

/// Quantises a group as `q8_0` does, and returns its scale.
#[inline(always)]
fn narrow(x: &[f32], to: &mut [i8]) -> f16 {
    let largest = x.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
    let scale = largest / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let mut is_finite = true;
    for (to, &x) in to.iter_mut().zip(x) {
        *to = (x * inverse).round() as i8;
        is_finite &= x.is_finite();
    }
    // A non-finite element makes its whole group NaN, as it would a sum.
    f16::from_f32(if is_finite { scale } else { f32::NAN })
}
