//! Shared by kernels that work on rows: element types and their compute types, sums and maxima of rows, and the
//! distribution of rows to the threads.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

use half::{bf16, f16};

use super::math::Math;
use super::math::half::Half;
use super::pool;
use super::simd::{self, Isa, MulAdd, Task};
use crate::dispatch::{Dense, Input, Output};
use crate::layout::Layout;
use crate::{Result, Shape};

/// Independent accumulators of a row's sum: enough vectors to hide the latency of an addition.
const SUM_LANES: usize = 32;

/// Elements that are summed in the compute type; the sums of these blocks are added in `f64`.
const SUM_BLOCK_LEN: usize = 1024;

/// Maximum number of elements of a row that is computed in place. A copy of it, 256 KB of `f32`, stays in the second-level
/// cache and costs less than the memory traffic that it saves.
pub(crate) const MAX_IN_PLACE_LEN: usize = 64 << 10;

/// Elements that are copied at a time when rows are computed in place; at least a row.
const IN_PLACE_COPY_LEN: usize = 2048;

/// A compute type: `f32` or `f64`.
pub(crate) trait Real:
    bytemuck::Pod
    + Default
    + Send
    + Sync
    + PartialOrd
    + MulAdd
    + Math
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// 0.
    const ZERO: Self;
    /// The maximum of an empty set.
    const LOWEST: Self;
    /// Rounds to the nearest value of this type.
    fn of(value: f64) -> Self;
    /// Converts to `f64`.
    fn wide(self) -> f64;
    /// Calls `body` with `len` elements of this thread's scratch memory.
    fn with_scratch<R>(len: usize, body: impl FnOnce(&mut [Self]) -> R) -> R;

    /// The greater of both; `self` if `other` is NaN.
    #[inline(always)]
    fn max_number(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
}

macro_rules! real {
    ($type:ident) => {
        impl Real for $type {
            const ZERO: Self = 0.0;
            const LOWEST: Self = Self::NEG_INFINITY;

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                self.into()
            }

            fn with_scratch<R>(len: usize, body: impl FnOnce(&mut [Self]) -> R) -> R {
                thread_local! {
                    static SCRATCH: RefCell<Vec<$type>> = const { RefCell::new(Vec::new()) };
                }
                // Taken for the duration of the call: a nested call allocates its own.
                let mut scratch = SCRATCH.take();
                if scratch.len() < len {
                    scratch.resize(len, 0.0);
                }
                let result = body(&mut scratch[..len]);
                SCRATCH.replace(scratch);
                result
            }
        }
    };
}

real!(f32);
real!(f64);

/// A float element type.
pub(crate) trait Float: bytemuck::Pod + Send + Sync {
    /// The compute type.
    type Real: Real;
    /// Whether the type is its own compute type.
    const IS_COMPUTE_TYPE: bool;
    /// Number of rows of scratch that [`Float::row`] needs.
    const SCRATCH_ROWS: usize = if Self::IS_COMPUTE_TYPE { 0 } else { 2 };
    /// Converts to the compute type; both slices have the same length.
    fn widen<I: Isa>(from: &[Self], to: &mut [Self::Real]);
    /// Converts from the compute type, rounding to nearest even; both slices have the same length.
    fn narrow<I: Isa>(from: &[Self::Real], to: &mut [Self]);
    /// Returns the elements in the compute type, converted into `scratch` if necessary.
    fn view<'a, I: Isa>(from: &'a [Self], scratch: &'a mut [Self::Real]) -> &'a [Self::Real];
    /// Runs a kernel on row `x`. `scratch` has [`Float::SCRATCH_ROWS`] rows.
    fn row<I: Isa, K: RowKernel<Self::Real>>(
        kernel: &K,
        index: usize,
        x: &[Self],
        y: &mut [Self],
        scratch: &mut [Self::Real],
    );
}

macro_rules! same {
    ($($type:ty),*) => {$(
        impl Float for $type {
            type Real = Self;
            const IS_COMPUTE_TYPE: bool = true;
            #[inline(always)]
            fn widen<I: Isa>(from: &[Self], to: &mut [Self]) {
                to.copy_from_slice(from);
            }
            #[inline(always)]
            fn narrow<I: Isa>(from: &[Self], to: &mut [Self]) {
                to.copy_from_slice(from);
            }
            #[inline(always)]
            fn view<'a, I: Isa>(from: &'a [Self], _: &'a mut [Self]) -> &'a [Self] {
                from
            }
            #[inline(always)]
            fn row<I: Isa, K: RowKernel<Self>>(
                kernel: &K,
                index: usize,
                x: &[Self],
                y: &mut [Self],
                _: &mut [Self],
            ) {
                kernel.row::<I>(index, x, y);
            }
        }
    )*};
}
same!(f32, f64);

macro_rules! half {
    ($($type:ty),*) => {$(
        impl Float for $type {
            type Real = f32;
            const IS_COMPUTE_TYPE: bool = false;
            #[inline(always)]
            fn widen<I: Isa>(from: &[Self], to: &mut [f32]) {
                <Self as Half>::to_f32::<I>(from, to);
            }
            #[inline(always)]
            fn narrow<I: Isa>(from: &[f32], to: &mut [Self]) {
                <Self as Half>::from_f32::<I>(from, to);
            }
            #[inline(always)]
            fn view<'a, I: Isa>(from: &'a [Self], scratch: &'a mut [f32]) -> &'a [f32] {
                let scratch = &mut scratch[..from.len()];
                Self::widen::<I>(from, scratch);
                scratch
            }
            #[inline(always)]
            fn row<I: Isa, K: RowKernel<f32>>(
                kernel: &K,
                index: usize,
                x: &[Self],
                y: &mut [Self],
                scratch: &mut [f32],
            ) {
                let (a, b) = scratch.split_at_mut(x.len());
                let b = &mut b[..y.len()];
                Self::widen::<I>(x, a);
                kernel.row::<I>(index, a, b);
                Self::narrow::<I>(b, y);
            }
        }
    )*};
}
half!(f16, bf16);

/// A computation on a row.
pub(crate) trait RowKernel<R>: Sync {
    /// Whether the kernel is compute-bound and so worth AVX-512; a memory-bound kernel is as fast with AVX2.
    const IS_COMPUTE_BOUND: bool;

    /// Computes row `index` of the result from the same row of the input, of the same length. Implementations must
    /// be `#[inline(always)]`.
    fn row<I: Isa>(&self, index: usize, x: &[R], y: &mut [R]);
}

/// The maximum of all elements that are not NaN; [`Real::LOWEST`] if there is none.
#[inline(always)]
pub(crate) fn maximum<R: Real>(x: &[R]) -> R {
    let mut lanes = [R::LOWEST; SUM_LANES];
    let chunks = x.chunks_exact(SUM_LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane = lane.max_number(v);
        }
    }
    let max = lanes.into_iter().fold(R::LOWEST, R::max_number);
    rest.iter().fold(max, |max, &v| max.max_number(v))
}

/// Accumulates `f(element, sum)` over a row: the result has the same bits for every number of threads and, apart from
/// fused multiply-adds, for every instruction set.
#[inline(always)]
pub(crate) fn sum_of<R: Real>(x: &[R], f: impl Fn(R, R) -> R) -> f64 {
    let mut total = 0.0;
    for block in x.chunks(SUM_BLOCK_LEN) {
        let mut lanes = [R::ZERO; SUM_LANES];
        let chunks = block.chunks_exact(SUM_LANES);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (lane, &v) in lanes.iter_mut().zip(chunk) {
                *lane = f(v, *lane);
            }
        }
        for (lane, &v) in lanes.iter_mut().zip(rest) {
            *lane = f(v, *lane);
        }
        let mut width = SUM_LANES / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
            width /= 2;
        }
        total += lanes[0].wide();
    }
    total
}

/// The sum of a row.
#[inline(always)]
pub(crate) fn sum<R: Real>(x: &[R]) -> f64 {
    sum_of(x, |v, sum| sum + v)
}

/// The rows of a layout whose last axis is contiguous.
#[derive(Clone, Copy)]
pub(crate) struct RowLayout {
    layout: Layout,
    len: usize,
    /// Whether each row begins where the previous one ends.
    is_contiguous: bool,
}

impl RowLayout {
    /// The rows along the last axis, if it is contiguous.
    pub(crate) fn new(layout: &Layout) -> Option<Self> {
        let axis = layout.shape().rank().checked_sub(1)?;
        let len = layout.shape()[axis];
        let dense = len <= 1 || layout.strides()[axis] == 1;
        dense.then(|| Self {
            layout: layout.without(axis),
            len,
            is_contiguous: layout.is_contiguous(),
        })
    }

    /// The rows of a matrix without gaps.
    fn contiguous(rows: usize, len: usize) -> Self {
        Self::new(&Layout::contiguous(matrix(rows, len))).expect("made without gaps")
    }

    /// Returns the elements of row `index`.
    pub(crate) fn get<'a, T>(&self, data: &'a [T], index: usize) -> &'a [T] {
        &data[self.start(index)..][..self.len]
    }

    /// Returns the offset of row `index`.
    pub(crate) fn start(&self, mut index: usize) -> usize {
        let mut at = self.layout.offset();
        // For short rows, the divisions below would dominate.
        if self.is_contiguous {
            return at + index * self.len;
        }
        for (&len, &stride) in self.layout.shape().iter().zip(self.layout.strides()).rev() {
            at = at.wrapping_add_signed((index % len) as isize * stride);
            index /= len;
        }
        at
    }
}

/// Applies a kernel to every row along the last axis. Input and output have the same shape, which is not empty, and may be
/// the same memory ([`Output::aliases_input`]).
pub(crate) fn map<T: Float, K: RowKernel<T::Real>>(
    op: &'static str,
    input: Input<'_>,
    mut output: Output<'_>,
    kernel: K,
) -> Result<()> {
    let len = output.shape.last().copied().unwrap_or(1);
    // A row costs several passes over cached data, so a task needs fewer bytes to be worth scheduling.
    let count = pool::grain(4 * len * size_of::<T>());
    if output.aliases_input == Some(0) {
        pool::for_each_chunk(output.all::<T>(), count * len, |i, piece| {
            map_in_place(&kernel, len, i * count, piece);
        });
        return Ok(());
    }
    let copy;
    let (data, rows) = match RowLayout::new(&input.layout) {
        Some(rows) => (input.all::<T>(), rows),
        None => {
            copy = Dense::new(op, input)?;
            (
                copy.all::<T>(),
                RowLayout::contiguous(output.shape.count() / len, len),
            )
        }
    };
    pool::for_each_chunk(output.all::<T>(), count * len, |i, piece| {
        T::Real::with_scratch(T::SCRATCH_ROWS * len, |scratch| {
            let task = RowMap {
                kernel: &kernel,
                data,
                rows,
                first_source: i * count,
                first: i * count,
                piece,
                scratch,
            };
            task.run_at_level();
        });
    });
    Ok(())
}

/// Applies a kernel to rows of `len` elements in place, `first` being the index of the first one. Kernels read a copy, a few rows
/// at a time: that both are never the same memory is what lets them be vectorised.
fn map_in_place<T: Float, K: RowKernel<T::Real>>(
    kernel: &K,
    len: usize,
    first: usize,
    piece: &mut [T],
) {
    let count = (IN_PLACE_COPY_LEN / len).max(1);
    let copied = (count * len).min(piece.len());
    T::Real::with_scratch(copied + T::SCRATCH_ROWS * len, |scratch| {
        let (copy, scratch) = scratch.split_at_mut(copied);
        let copy = bytemuck::cast_slice_mut::<T::Real, T>(copy);
        for (i, piece) in piece.chunks_mut(copied).enumerate() {
            let data = &mut copy[..piece.len()];
            data.copy_from_slice(piece);
            let task = RowMap {
                kernel,
                data,
                rows: RowLayout::contiguous(piece.len() / len, len),
                first_source: 0,
                first: first + i * count,
                piece,
                scratch,
            };
            task.run_at_level();
        }
    });
}

/// The shape of a matrix that has as many elements as an existing tensor.
fn matrix(rows: usize, cols: usize) -> Shape {
    Shape::new("rows", &[rows, cols]).expect("as many elements as the output has")
}

struct RowMap<'a, T: Float, K> {
    kernel: &'a K,
    data: &'a [T],
    rows: RowLayout,
    /// Index in `rows` of the first row that is read.
    first_source: usize,
    /// Index of the first row for the kernel.
    first: usize,
    piece: &'a mut [T],
    scratch: &'a mut [T::Real],
}

impl<T: Float, K: RowKernel<T::Real>> RowMap<'_, T, K> {
    /// Runs the task with the instruction set that the kernel is worth.
    fn run_at_level(self) {
        if K::IS_COMPUTE_BOUND {
            simd::run(self);
        } else {
            simd::run_narrow(self);
        }
    }
}

impl<T: Float, K: RowKernel<T::Real>> Task for RowMap<'_, T, K> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        for (i, y) in self.piece.chunks_exact_mut(self.rows.len).enumerate() {
            let x = self.rows.get(self.data, self.first_source + i);
            T::row::<I, K>(self.kernel, self.first + i, x, y, self.scratch);
        }
    }
}

/// Returns a vector of parameters (weights, biases) in the compute type of `T`.
pub(crate) fn parameters<'a, T: Float>(
    op: &'static str,
    input: Input<'a>,
) -> Result<Cow<'a, [T::Real]>> {
    let wide = input.dtype.size() == size_of::<T::Real>();
    if wide {
        if let Some(values) = input.dense() {
            return Ok(Cow::Borrowed(values));
        }
        return Ok(Cow::Owned(Dense::new(op, input)?.all().to_vec()));
    }
    let values = Dense::new(op, input)?;
    let values = values.all::<T>();
    let mut out = vec![T::Real::ZERO; values.len()];
    simd::run(WidenRow {
        from: values,
        to: &mut out,
    });
    Ok(Cow::Owned(out))
}

struct WidenRow<'a, T: Float> {
    from: &'a [T],
    to: &'a mut [T::Real],
}

impl<T: Float> Task for WidenRow<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        T::widen::<I>(self.from, self.to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_maxima_cover_every_element() {
        for len in [0, 1, 31, 32, 33, 1023, 1025, 5000] {
            let x: Vec<f32> = (0..len).map(|i| (i % 17) as f32 - 8.0).collect();
            assert_eq!(sum(&x), x.iter().map(|&v| f64::from(v)).sum::<f64>());
            let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(maximum(&x), max);
        }
    }
}
