//! `sort` on the CPU: numbers as integers in their order, a radix sort of those, and back.

use std::sync::OnceLock;

use bytemuck::Pod;
use half::{bf16, f16};

use super::axis_split::AxisSplit;
use super::radix::{self, Item, Wide};
use super::sort_key::Key;
use super::{pool, try_vec};
use crate::Result;
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::Rule;
use crate::ops::sort::Sort;

/// Sorts along the axis.
pub(crate) fn run(op: &Sort, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let around = AxisSplit::new(inputs[0].layout.shape(), op.axis);
    let data = Dense::new(op.name(), inputs[0])?;
    with_type!(inputs[0].dtype, T => {
        rows::<T, T>(op.name(), data.all(), around, around.len, output.all(), sort_row)
    })
}

/// Makes the results of a row; an error where it has no memory for that.
pub(super) trait Row<T, R>: Fn(&[T], &mut [R]) -> Result<()> + Sync {}

impl<T, R, F: Fn(&[T], &mut [R]) -> Result<()> + Sync> Row<T, R> for F {}

/// Calls `body` with each row along an axis and the `results` elements to be made of it, both without gaps
/// whatever is around the axis.
pub(super) fn rows<T: Pod + Send + Sync, R: Pod + Send + Sync>(
    op: &'static str,
    data: &[T],
    around: AxisSplit,
    results: usize,
    out: &mut [R],
    body: impl Row<T, R>,
) -> Result<()> {
    let AxisSplit { outer, len, inner } = around;
    // The first error that a thread met: the results are thrown away.
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
    // Columns are copied out and back; blocks of them share the work.
    let block = inner * results;
    let step = pool::grain(len * inner * size_of::<T>() * 8).min(outer.max(1));
    pool::for_each_chunk(out, step * block, |i, out| {
        let blocks = data[i * step * len * inner..].chunks_exact(len * inner);
        let blocks = blocks.zip(out.chunks_exact_mut(block));
        keep(columns(op, (len, inner, results), blocks, &body));
    });
    error.into_inner().map_or(Ok(()), Err)
}

/// [`rows`] for blocks of `inner` columns.
fn columns<'a, T: Pod, R: Pod>(
    op: &'static str,
    (len, inner, results): (usize, usize, usize),
    blocks: impl Iterator<Item = (&'a [T], &'a mut [R])>,
    body: &impl Row<T, R>,
) -> Result<()> {
    let mut row = try_vec::filled(op, len, T::zeroed())?;
    let mut result = try_vec::filled(op, results, R::zeroed())?;
    for (data, out) in blocks {
        for column in 0..inner {
            for (to, from) in row.iter_mut().zip(data[column..].iter().step_by(inner)) {
                *to = *from;
            }
            body(&row, &mut result)?;
            for (to, from) in out[column..].iter_mut().step_by(inner).zip(&result) {
                *to = *from;
            }
        }
    }
    Ok(())
}

/// An element that comes back from its order.
trait Sortable: Key + Pod + Send + Sync + PartialEq {
    type Order: Item;
    /// As [`Key::key`], but of zeros the negative one comes first.
    fn order(self) -> Self::Order;
    /// The element of an order.
    fn of(order: Self::Order) -> Self;
    /// Whether it is 0, and below 0 at that.
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
                ($unwrap ^ FLIP as <Self as Key>::Bits) as Self
            }
            #[inline(always)]
            fn is_negative_zero(self) -> bool {
                false
            }
        }
    )*};
}
sortable_int!(u8 u8 |k| k, k; u16 u16 |k| k, k; u32 u32 |k| k, k; u64 Wide |k| Wide(k), k.0;
    i8 u8 |k| k, k; i16 u16 |k| k, k; i32 u32 |k| k, k; i64 Wide |k| Wide(k), k.0);

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
    f64 u64 i64 Wide |k| Wide(k), k.0);

fn sort_row<T: Sortable>(row: &[T], out: &mut [T]) -> Result<()> {
    let mut items = try_vec::empty("sort", row.len())?;
    items.extend(row.iter().map(|x| x.order()));
    // NaN go to the end, in the order they are in.
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
    // Zeros of both signs are together, but negative ones first: they are equal, so they get the order
    // they had.
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
