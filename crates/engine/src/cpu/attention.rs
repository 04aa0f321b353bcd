//! `attention` on the CPU: [`prefill`] for many queries per KV head, [`decode`] for few.

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

/// Up to this many query rows per KV head, keys are read in place: packing them into GEMM panels takes longer than it
/// saves. Measured with 128 dims.
const MAX_DECODE_ROWS: usize = 24;

/// Runs the op.
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
            Some(copy) => HeadsView {
                data: copy.all::<T>(),
                layout: Layout::contiguous(*inputs[i].layout.shape()),
            },
            None => HeadsView { data: inputs[i].all::<T>(), layout: inputs[i].layout },
        });
        let shape = *q.layout.shape();
        let problem = AttentionProblem {
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
        if problem.group * problem.queries <= MAX_DECODE_ROWS {
            decode::run(&problem, output.all::<T>())
        } else {
            prefill::run(&problem, output.all::<T>())
        }
    }, else unreachable!("the method converts to floats"))
}

/// A `[batch, heads, length, dim]` tensor whose last axis is contiguous.
#[derive(Clone, Copy)]
struct HeadsView<'a, T> {
    data: &'a [T],
    layout: Layout,
}

/// The position of a row in a [`HeadsView`], or of a row of scores.
#[derive(Clone, Copy)]
struct RowIndex {
    batch: usize,
    head: usize,
    /// Index of the query, key or value within its sequence.
    token: usize,
}

impl<'a, T> HeadsView<'a, T> {
    /// Returns the `dim` elements of a row.
    #[inline(always)]
    fn row(&self, index: RowIndex) -> &'a [T] {
        // Without elements, the strides may point past the end of the storage.
        if self.layout.shape()[3] == 0 {
            return &[];
        }
        let strides = self.layout.strides();
        let at = index.batch as isize * strides[0]
            + index.head as isize * strides[1]
            + index.token as isize * strides[2];
        &self.data[self.layout.offset().wrapping_add_signed(at)..][..self.layout.shape()[3]]
    }
}

/// An attention op with its inputs and dimensions.
struct AttentionProblem<'a, T> {
    op: &'a Attention,
    q: HeadsView<'a, T>,
    k: HeadsView<'a, T>,
    v: HeadsView<'a, T>,
    mask: Option<Input<'a>>,
    /// Query heads.
    heads: usize,
    /// Query heads per KV head.
    group: usize,
    queries: usize,
    keys: usize,
    dim: usize,
    value_dim: usize,
}

impl<T: Float> AttentionProblem<'_, T> {
    /// Applies the soft cap and the masks to a query's scores for the keys from `first` on.
    #[inline(always)]
    fn cap_and_mask<I: Isa>(&self, query: RowIndex, first: usize, scores: &mut [T::Real]) {
        if let Some(cap) = self.op.soft_cap() {
            tile::soft_cap::<I, _>(scores, T::Real::of(cap));
        }
        if let Some(mask) = self.mask {
            self.mask::<I>(&mask, query, first, scores);
        }
        let reach = self.op.reach(query.token, self.queries, self.keys);
        mask_outside(scores, first, reach);
    }

    #[inline(always)]
    fn mask<I: Isa>(
        &self,
        mask: &Input<'_>,
        query: RowIndex,
        first: usize,
        scores: &mut [T::Real],
    ) {
        let strides = mask.layout.strides();
        let count = scores.len().min(self.keys - first);
        let scores = &mut scores[..count];
        let at = [query.batch, query.head, query.token, first];
        let at = at.iter().zip(strides).map(|(&i, &s)| i as isize * s).sum();
        let start = mask.layout.offset().wrapping_add_signed(at);
        let stride = strides[3];
        let offsets = (0..count as isize).map(|j| start.wrapping_add_signed(j * stride));
        if mask.dtype == DType::Bool {
            let all = mask.all::<u8>();
            for (s, at) in scores.iter_mut().zip(offsets) {
                *s = if all[at] == 0 { T::Real::LOWEST } else { *s };
            }
            return;
        }
        let all = mask.all::<T>();
        let mut block = [T::Real::ZERO; tile::TILE_KEYS];
        if stride == 1 {
            T::widen::<I>(&all[start..][..count], &mut block[..count]);
        } else {
            for (b, at) in block.iter_mut().zip(offsets) {
                T::widen::<I>(&all[at..=at], std::slice::from_mut(b));
            }
        }
        for (s, &b) in scores.iter_mut().zip(&block) {
            *s += b;
        }
    }
}

/// Masks the scores of the keys outside `reach`; the first score is that of key `first`.
#[inline(always)]
fn mask_outside<R: Real>(scores: &mut [R], first: usize, reach: Range<usize>) {
    let low = reach.start.saturating_sub(first).min(scores.len());
    let high = reach.end.saturating_sub(first).clamp(low, scores.len());
    scores[..low].fill(R::LOWEST);
    scores[high..].fill(R::LOWEST);
}
