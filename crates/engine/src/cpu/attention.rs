//! `attention` on the CPU: [`prefill`] for many queries, [`decode`] for few.

mod decode;
mod prefill;
mod tile;

use std::ops::Range;

use super::row::{Float, Real};
use super::simd::Isa;
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::attention::Attention;
use crate::{DType, Layout, Result};

/// Rows of queries that share a head of keys, up to which the keys are used as they lie: arranging them
/// for products of matrices takes longer than it saves. Measured with 128 dims.
const FEW: usize = 24;

/// Runs it.
pub(crate) fn run(op: &Attention, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    with_type!(floats output.dtype, T => {
        let dense = [0, 1, 2].map(|i| {
            let input = inputs[i];
            let shape = input.layout.shape();
            let in_place = shape[3] <= 1 || input.layout.strides()[3] == 1;
            if in_place { Ok(None) } else { Dense::new("attention", input).map(Some) }
        });
        let [q, k, v] = dense;
        let dense = [q?, k?, v?];
        let [q, k, v] = [0, 1, 2].map(|i| match &dense[i] {
            Some(copy) => Heads {
                data: copy.all::<T>(),
                layout: Layout::contiguous(*inputs[i].layout.shape()),
            },
            None => Heads { data: inputs[i].all::<T>(), layout: inputs[i].layout },
        });
        let shape = *q.layout.shape();
        let problem = Problem {
            op,
            heads: shape[1],
            group: shape[1] / k.layout.shape()[1].max(1),
            queries: shape[2],
            keys: k.layout.shape()[2],
            dim: shape[3],
            value_dim: v.layout.shape()[3],
            q,
            k,
            v,
            mask: inputs.get(3).copied(),
        };
        if problem.group * problem.queries <= FEW {
            decode::run(&problem, output.all::<T>())
        } else {
            prefill::run(&problem, output.all::<T>())
        }
    }, else unreachable!("the method converts to floats"))
}

/// `[batch, heads, length, dim]` with the last axis without gaps.
#[derive(Clone, Copy)]
struct Heads<'a, T> {
    data: &'a [T],
    layout: Layout,
}

impl<'a, T> Heads<'a, T> {
    /// A row.
    #[inline(always)]
    fn row(&self, batch: usize, head: usize, i: usize) -> &'a [T] {
        // Memory without elements has no place for a row, and strides that may lead past its end.
        if self.layout.shape()[3] == 0 {
            return &[];
        }
        let strides = self.layout.strides();
        let at = batch as isize * strides[0] + head as isize * strides[1] + i as isize * strides[2];
        &self.data[self.layout.offset().wrapping_add_signed(at)..][..self.layout.shape()[3]]
    }
}

/// An attention with all its inputs.
struct Problem<'a, T> {
    op: &'a Attention,
    q: Heads<'a, T>,
    k: Heads<'a, T>,
    v: Heads<'a, T>,
    mask: Option<Input<'a>>,
    /// Heads of queries.
    heads: usize,
    /// Heads of queries that share a head of keys.
    group: usize,
    queries: usize,
    keys: usize,
    dim: usize,
    value_dim: usize,
}

impl<T: Float> Problem<'_, T> {
    /// Bends and masks the scores of a query with the keys from `first` on.
    #[inline(always)]
    fn finish<I: Isa>(
        &self,
        (batch, head, query): (usize, usize, usize),
        first: usize,
        scores: &mut [T::Real],
    ) {
        if let Some(cap) = self.op.soft_cap() {
            tile::bend::<I, _>(scores, T::Real::of(cap));
        }
        if let Some(mask) = self.mask {
            self.mask::<I>(&mask, (batch, head, query), first, scores);
        }
        let reach = self.op.reach(query, self.queries, self.keys);
        hide(scores, first, reach);
    }

    #[inline(always)]
    fn mask<I: Isa>(
        &self,
        mask: &Input<'_>,
        (batch, head, query): (usize, usize, usize),
        first: usize,
        scores: &mut [T::Real],
    ) {
        let strides = mask.layout.strides();
        let count = scores.len().min(self.keys - first);
        let scores = &mut scores[..count];
        let at = [batch, head, query, first];
        let at = at.iter().zip(strides).map(|(&i, &s)| i as isize * s).sum();
        let start = mask.layout.offset().wrapping_add_signed(at);
        let step = strides[3];
        let places = (0..count as isize).map(|j| start.wrapping_add_signed(j * step));
        if mask.dtype == DType::Bool {
            let all = mask.all::<u8>();
            for (s, at) in scores.iter_mut().zip(places) {
                *s = if all[at] == 0 { T::Real::LOWEST } else { *s };
            }
            return;
        }
        let all = mask.all::<T>();
        let mut block = [T::Real::ZERO; tile::KEYS];
        if step == 1 {
            T::widen::<I>(&all[start..][..count], &mut block[..count]);
        } else {
            for (b, at) in block.iter_mut().zip(places) {
                T::widen::<I>(&all[at..=at], std::slice::from_mut(b));
            }
        }
        for (s, &b) in scores.iter_mut().zip(&block) {
            *s += b;
        }
    }
}

/// Hides the keys, from `first` on, that are not in `reach`.
#[inline(always)]
fn hide<R: Real>(scores: &mut [R], first: usize, reach: Range<usize>) {
    let low = reach.start.saturating_sub(first).min(scores.len());
    let high = reach.end.saturating_sub(first).clamp(low, scores.len());
    scores[..low].fill(R::LOWEST);
    scores[high..].fill(R::LOWEST);
}
