//! Keys and values of 8 bits, as `q8_0`: a scale of `f16` for every [`GROUP_LEN`] numbers of a head, the largest of
//! which becomes 127.
//!
//! Numbers lie as in the other caches, `[head, panel, dim, LANES]` and `[head, position, dim]`; scales lie beside
//! them in the same order, `[head, panel, group, LANES]` and `[head, position, group]`. Where a head is no whole
//! number of groups, its last one is shorter.

use std::ops::Range;

use half::f16;

use super::{LANES, KvLayout, KvView, zeros};
use crate::cpu::row::Float;
use crate::cpu::simd::{Isa, Task};

/// Numbers that share a scale.
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
    /// Zeros; `place` was found to be countable.
    pub(super) fn new(place: KvLayout) -> Self {
        let rows = place.heads * place.capacity;
        let (numbers, scales) = (rows * place.dim, rows * groups(place.dim));
        Self {
            keys: vec![0; numbers],
            values: vec![0; numbers],
            key_scales: zeros(scales),
            value_scales: zeros(scales),
        }
    }

    /// The keys and values of a head.
    pub(super) fn head(&self, place: KvLayout, head: usize) -> (Keys<'_>, Values<'_>) {
        let KvLayout { dim, capacity, .. } = place;
        let numbers = head * capacity * dim..(head + 1) * capacity * dim;
        let count = capacity * groups(dim);
        let scales = head * count..(head + 1) * count;
        (
            Keys(Q8Head {
                numbers: &self.keys[numbers.clone()],
                scales: &self.key_scales[scales.clone()],
                dim,
            }),
            Values(Q8Head {
                numbers: &self.values[numbers],
                scales: &self.value_scales[scales],
                dim,
            }),
        )
    }
}

/// Numbers of a head and their scales.
#[derive(Clone, Copy)]
struct Q8Head<'a> {
    numbers: &'a [i8],
    scales: &'a [f16],
    dim: usize,
}

/// The keys of a head.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a>(Q8Head<'a>);

/// The values of a head.
#[derive(Clone, Copy)]
pub(super) struct Values<'a>(Q8Head<'a>);

impl KvView for Keys<'_> {
    #[inline(always)]
    fn view<'a, I: Isa>(&'a self, range: Range<usize>, space: &'a mut [f32]) -> &'a [f32] {
        let Q8Head {
            numbers,
            scales,
            dim,
        } = self.0;
        let space = &mut space[..range.len()];
        let panel = dim * LANES;
        let first = range.start / panel;
        let numbers = numbers[range].chunks_exact(panel);
        let scales = scales[first * groups(dim) * LANES..].chunks_exact(groups(dim) * LANES);
        for ((numbers, scales), to) in numbers.zip(scales).zip(space.chunks_exact_mut(panel)) {
            let parts = numbers
                .chunks(GROUP_LEN * LANES)
                .zip(to.chunks_mut(GROUP_LEN * LANES));
            for ((numbers, to), scales) in parts.zip(scales.as_chunks::<LANES>().0) {
                let mut scale = [0.0; LANES];
                f16::widen::<I>(scales, &mut scale);
                let rows = numbers.as_chunks::<LANES>().0.iter();
                for (numbers, to) in rows.zip(to.as_chunks_mut::<LANES>().0) {
                    for lane in 0..LANES {
                        to[lane] = f32::from(numbers[lane]) * scale[lane];
                    }
                }
            }
        }
        space
    }
}

impl KvView for Values<'_> {
    #[inline(always)]
    fn view<'a, I: Isa>(&'a self, range: Range<usize>, space: &'a mut [f32]) -> &'a [f32] {
        /// Scales that are widened at a time.
        const SCALE_BATCH: usize = 64;
        let Q8Head {
            numbers,
            scales,
            dim,
        } = self.0;
        let space = &mut space[..range.len()];
        let groups = groups(dim);
        let rows = range.start / dim..range.end / dim;
        let numbers = &numbers[range];
        let scales = &scales[rows.start * groups..rows.end * groups];
        let mut scale = [0.0; SCALE_BATCH];
        for (batch, scales) in scales.chunks(SCALE_BATCH).enumerate() {
            f16::widen::<I>(scales, &mut scale[..scales.len()]);
            for (i, &scale) in scale[..scales.len()].iter().enumerate() {
                let group = batch * SCALE_BATCH + i;
                let start = group / groups * dim + group % groups * GROUP_LEN;
                let end = (start + GROUP_LEN).min((group / groups + 1) * dim);
                for (to, &n) in space[start..end].iter_mut().zip(&numbers[start..end]) {
                    *to = f32::from(n) * scale;
                }
            }
        }
        space
    }
}

/// Writes keys and values, `[positions, heads, dim]`.
pub(super) struct WriteQ8<'a> {
    pub(super) place: KvLayout,
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
        } = self.place;
        let groups = groups(dim);
        let store = self.store;
        let mut numbers = [0_i8; GROUP_LEN];
        let rows = self.k.chunks_exact(dim).zip(self.v.chunks_exact(dim));
        for (i, (k, v)) in rows.enumerate() {
            let (position, head) = (self.first + i / heads, i % heads);
            let (panel, lane) = (position / LANES, position % LANES);
            for (group, (k, v)) in k.chunks(GROUP_LEN).zip(v.chunks(GROUP_LEN)).enumerate() {
                let at = (head * capacity + position) * dim + group * GROUP_LEN;
                let to = &mut store.values[at..][..v.len()];
                let scale = (head * capacity + position) * groups + group;
                store.value_scales[scale] = narrow(v, to);

                let numbers = &mut numbers[..k.len()];
                let scale = (head * capacity / LANES + panel) * groups + group;
                store.key_scales[scale * LANES + lane] = narrow(k, numbers);
                let at = head * capacity * dim + (panel * dim + group * GROUP_LEN) * LANES + lane;
                for (d, &n) in numbers.iter().enumerate() {
                    store.keys[at + d * LANES] = n;
                }
            }
        }
    }
}

/// Rounds a group as `q8_0` does, and returns its scale.
#[inline(always)]
fn narrow(x: &[f32], to: &mut [i8]) -> f16 {
    let largest = x.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
    let scale = largest / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let mut is_number = true;
    for (to, &x) in to.iter_mut().zip(x) {
        *to = (x * inverse).round() as i8;
        is_number &= x.is_finite();
    }
    // What is no number spoils its group, as it would spoil a sum.
    f16::from_f32(if is_number { scale } else { f32::NAN })
}
