//! `sort` on the CPU: a radix sort of order-preserving integers, converted back to elements.

use std::sync::OnceLock;

use bytemuck::Pod;
use half::{bf16, f16};

use super::axis_split::AxisSplit;
use super::pool;
use super::radix::{self, Key64, RadixItem};
use super::sort_key::SortKey;
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::Rule;
use crate::ops::sort::Sort;
use crate::{Result, try_vec};

/// Sorts along the axis.
pub(crate) fn run(op: &Sort, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let split = AxisSplit::new(inputs[0].layout.shape(), op.axis);
    let data = Dense::new(op.name(), inputs[0])?;
    with_type!(inputs[0].dtype, T => {
        for_each_row::<T, T>(op.name(), data.all(), split, split.len, output.all(), sort_row)
    })
}

/// A function that computes the results of a row; it fails if it cannot allocate scratch memory.
pub(super) trait RowFunction<T, R>: Fn(&[T], &mut [R]) -> Result<()> + Sync {}

impl<T, R, F: Fn(&[T], &mut [R]) -> Result<()> + Sync> RowFunction<T, R> for F {}

/// Calls `body` with each row along an axis and its `results` output elements. Both are contiguous, wherever the axis
/// is.
pub(super) fn for_each_row<T: Pod + Send + Sync, R: Pod + Send + Sync>(
    op: &'static str,
    data: &[T],
    split: AxisSplit,
    results: usize,
    out: &mut [R],
    body: impl RowFunction<T, R>,
) -> Result<()> {
    let AxisSplit { outer, len, inner } = split;
    // The first error of any thread; the results are then discarded.
    let error = OnceLock::new();
    let keep = |result: Result<()>| {
        if let Err(e) = result {
            let _ = error.set(e);
        }
    };
    let step = pool::grain(len * size_of::<T>() * 8);
    if inner == 1 {
        pool::for_each_chunk(out, step * results, |i, out| {
            let rows = data[i * step * len..].chunks_exact(len);
            for (row, out) in rows.zip(out.chunks_exact_mut(results)) {
                keep(body(row, out));
            }
        });
        return error.into_inner().map_or(Ok(()), Err);
    }
    // Columns are copied to contiguous scratch and back; each task takes whole outer blocks.
    let columns = OuterBlock {
        len,
        count: inner,
        results,
    };
    let block = inner * results;
    let step = pool::grain(len * inner * size_of::<T>() * 8).min(outer.max(1));
    pool::for_each_chunk(out, step * block, |i, out| {
        let blocks = data[i * step * len * inner..].chunks_exact(len * inner);
        let blocks = blocks.zip(out.chunks_exact_mut(block));
        keep(columns.for_each(op, blocks, &body));
    });
    error.into_inner().map_or(Ok(()), Err)
}

/// The columns of an outer block.
struct OuterBlock {
    /// Elements of a column.
    len: usize,
    count: usize,
    /// Output elements of a column.
    results: usize,
}

impl OuterBlock {
    /// Calls `body` with contiguous copies of the columns of all blocks.
    fn for_each<'a, T: Pod, R: Pod>(
        &self,
        op: &'static str,
        blocks: impl Iterator<Item = (&'a [T], &'a mut [R])>,
        body: &impl RowFunction<T, R>,
    ) -> Result<()> {
        let mut row = try_vec::filled(op, self.len, T::zeroed())?;
        let mut result = try_vec::filled(op, self.results, R::zeroed())?;
        for (data, out) in blocks {
            for column in 0..self.count {
                let from = data[column..].iter().step_by(self.count);
                for (to, from) in row.iter_mut().zip(from) {
                    *to = *from;
                }
                body(&row, &mut result)?;
                let to = out[column..].iter_mut().step_by(self.count);
                for (to, from) in to.zip(&result) {
                    *to = *from;
                }
            }
        }
        Ok(())
    }
}

/// An element type with an invertible mapping to order-preserving integers.
trait Sortable: SortKey + Pod + Send + Sync + PartialEq {
    type Order: RadixItem;
    /// As [`SortKey::key`], but -0 comes before 0.
    fn order(self) -> Self::Order;
    /// The inverse of [`Sortable::order`].
    fn of(order: Self::Order) -> Self;
    /// Whether it is -0.
    fn is_negative_zero(self) -> bool;
}

macro_rules! sortable_int {
    ($($type:ident $bits:ident |$k:ident| $wrap:expr, $unwrap:expr);*) => {$(
        impl Sortable for $type {
            type Order = $bits;
            #[inline(always)]
            fn order(self) -> $bits {
                let $k = self.key();
                $wrap
            }
            #[inline(always)]
            fn of($k: $bits) -> Self {
                const FLIP: u64 = if $type::MIN == 0 { 0 } else { 1 << ($type::BITS - 1) };
                ($unwrap ^ FLIP as <Self as SortKey>::Bits) as Self
            }
            #[inline(always)]
            fn is_negative_zero(self) -> bool {
                false
            }
        }
    )*};
}
sortable_int!(u8 u8 |k| k, k; u16 u16 |k| k, k; u32 u32 |k| k, k; u64 Key64 |k| Key64(k), k.0;
    i8 u8 |k| k, k; i16 u16 |k| k, k; i32 u32 |k| k, k; i64 Key64 |k| Key64(k), k.0);

macro_rules! sortable_float {
    ($($type:ident $bits:ident $signed:ident $order:ident |$k:ident| $wrap:expr, $unwrap:expr);*) => {$(
        impl Sortable for $type {
            type Order = $order;
            #[inline(always)]
            fn order(self) -> $order {
                let bits = self.to_bits();
                let negative = (bits as $signed >> ($bits::BITS - 1)) as $bits;
                let $k = bits ^ (negative | 1 << ($bits::BITS - 1));
                $wrap
            }
            #[inline(always)]
            fn of($k: $order) -> Self {
                let bits = $unwrap;
                let positive = (bits as $signed >> ($bits::BITS - 1)) as $bits;
                Self::from_bits(bits ^ (!positive | 1 << ($bits::BITS - 1)))
            }
            #[inline(always)]
            fn is_negative_zero(self) -> bool {
                self.to_bits() == 1 << ($bits::BITS - 1)
            }
        }
    )*};
}
sortable_float!(f16 u16 i16 u16 |k| k, k; bf16 u16 i16 u16 |k| k, k; f32 u32 i32 u32 |k| k, k;
    f64 u64 i64 Key64 |k| Key64(k), k.0);

fn sort_row<T: Sortable>(row: &[T], out: &mut [T]) -> Result<()> {
    let mut items = try_vec::empty("sort", row.len())?;
    items.extend(row.iter().map(|x| x.order()));
    // NaNs go to the end, in their original order.
    let nans = row.iter().filter(|x| x.is_nan()).count();
    if nans > 0 {
        items.clear();
        items.extend(row.iter().filter(|x| !x.is_nan()).map(|x| x.order()));
        let nans = row.iter().filter(|x| x.is_nan());
        for (to, &nan) in out[items.len()..].iter_mut().zip(nans) {
            *to = nan;
        }
    }
    let mut spare = try_vec::filled("sort", items.len(), T::Order::default())?;
    let numbers = row.len() - nans;
    for (to, &item) in out
        .iter_mut()
        .zip(&*radix::sort("sort", &mut items, &mut spare)?)
    {
        *to = T::of(item);
    }
    // Zeros of both signs are adjacent, but negative ones first. They compare equal, so restore their original order to
    // keep the sort stable.
    let sorted = &mut out[..numbers];
    let zero = T::zeroed();
    let first = sorted.partition_point(|x| x.key() < zero.key());
    if sorted.get(first).is_some_and(|x| x.is_negative_zero()) {
        let zeros = row.iter().filter(|x| **x == zero);
        for (to, &x) in sorted[first..].iter_mut().zip(zeros) {
            *to = x;
        }
    }
    Ok(())
}
