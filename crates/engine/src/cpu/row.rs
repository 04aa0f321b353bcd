//! What kernels that work on rows share: element types and the types they are computed in, sums and
//! maxima of rows, and rows handed out to the threads.

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

/// Sums that a row is added up in, side by side: enough vectors to hide the latency of an addition.
const LANES: usize = 32;

/// Elements added up in the type itself; the sums of such blocks are added up in `f64`.
const BLOCK: usize = 1024;

/// A type that is computed in: `f32` or `f64`.
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
    /// The maximum of nothing.
    const LOWEST: Self;
    /// The nearest number of this type.
    fn of(value: f64) -> Self;
    /// As `f64`.
    fn wide(self) -> f64;
    /// Calls `body` with a scratch of this thread that has at least `len` numbers.
    fn with_scratch<R>(len: usize, body: impl FnOnce(&mut [Self]) -> R) -> R;

    /// The greater; `self` where `other` is NaN.
    #[inline(always)]
    fn above(self, other: Self) -> Self {
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
                // Taken out meanwhile, so that a call inside a call finds another one.
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
    /// What it is computed in.
    type Real: Real;
    /// Whether that is the type itself.
    const SAME: bool;
    /// Converts a run; both slices have the same length.
    fn widen<I: Isa>(from: &[Self], to: &mut [Self::Real]);
    /// Converts a run, to nearest even; both slices have the same length.
    fn narrow<I: Isa>(from: &[Self::Real], to: &mut [Self]);
    /// The run as numbers to compute with, converted into `space` where need be.
    fn view<'a, I: Isa>(from: &'a [Self], space: &'a mut [Self::Real]) -> &'a [Self::Real];
    /// Runs a kernel on a row. `space` has room for two rows where the type is not computed in itself.
    fn row<I: Isa, K: Kernel<Self::Real>>(
        kernel: &K,
        index: usize,
        x: &[Self],
        y: &mut [Self],
        space: &mut [Self::Real],
    );
}

macro_rules! same {
    ($($type:ty),*) => {$(
        impl Float for $type {
            type Real = Self;
            const SAME: bool = true;
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
            fn row<I: Isa, K: Kernel<Self>>(
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
            const SAME: bool = false;
            #[inline(always)]
            fn widen<I: Isa>(from: &[Self], to: &mut [f32]) {
                <Self as Half>::to_f32::<I>(from, to);
            }
            #[inline(always)]
            fn narrow<I: Isa>(from: &[f32], to: &mut [Self]) {
                <Self as Half>::from_f32::<I>(from, to);
            }
            #[inline(always)]
            fn view<'a, I: Isa>(from: &'a [Self], space: &'a mut [f32]) -> &'a [f32] {
                let space = &mut space[..from.len()];
                Self::widen::<I>(from, space);
                space
            }
            #[inline(always)]
            fn row<I: Isa, K: Kernel<f32>>(
                kernel: &K,
                index: usize,
                x: &[Self],
                y: &mut [Self],
                space: &mut [f32],
            ) {
                let (a, b) = space.split_at_mut(x.len());
                let b = &mut b[..y.len()];
                Self::widen::<I>(x, a);
                kernel.row::<I>(index, a, b);
                Self::narrow::<I>(b, y);
            }
        }
    )*};
}
half!(f16, bf16);

/// What is done with a row.
pub(crate) trait Kernel<R>: Sync {
    /// Whether it has the instructions for the widest vectors; else memory decides, and AVX2 is as fast.
    const IS_LONG: bool;

    /// Computes row `index` of the result from that of the input, of the same length. Implementations must be
    /// `#[inline(always)]`.
    fn row<I: Isa>(&self, index: usize, x: &[R], y: &mut [R]);
}

/// The greatest element that is not NaN; [`Real::LOWEST`] where there is none.
#[inline(always)]
pub(crate) fn maximum<R: Real>(x: &[R]) -> R {
    let mut lanes = [R::LOWEST; LANES];
    let chunks = x.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &v) in lanes.iter_mut().zip(chunk) {
            *lane = lane.above(v);
        }
    }
    let top = lanes.into_iter().fold(R::LOWEST, R::above);
    rest.iter().fold(top, |top, &v| top.above(v))
}

/// The sum of `f(x)`, the same for every number of threads and, but for fused multiply-adds, every
/// instruction set.
#[inline(always)]
pub(crate) fn sum_of<R: Real>(x: &[R], f: impl Fn(R, R) -> R) -> f64 {
    let mut total = 0.0;
    for block in x.chunks(BLOCK) {
        let mut lanes = [R::ZERO; LANES];
        let chunks = block.chunks_exact(LANES);
        let rest = chunks.remainder();
        for chunk in chunks {
            for (lane, &v) in lanes.iter_mut().zip(chunk) {
                *lane = f(v, *lane);
            }
        }
        for (lane, &v) in lanes.iter_mut().zip(rest) {
            *lane = f(v, *lane);
        }
        let mut width = LANES / 2;
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

/// Where the rows of a layout, whose last axis has no gaps, begin.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    layout: Layout,
    len: usize,
    /// Whether each row begins where the one before ends.
    joined: bool,
}

impl Rows {
    /// The rows along the last axis, if their elements lie one after the other.
    pub(crate) fn new(layout: &Layout) -> Option<Self> {
        let axis = layout.shape().rank().checked_sub(1)?;
        let len = layout.shape()[axis];
        let dense = len <= 1 || layout.strides()[axis] == 1;
        dense.then(|| Self {
            layout: layout.without(axis),
            len,
            joined: layout.is_contiguous(),
        })
    }

    /// The elements of row `index`.
    pub(crate) fn get<'a, T>(&self, data: &'a [T], index: usize) -> &'a [T] {
        &data[self.start(index)..][..self.len]
    }

    /// Where row `index` begins.
    pub(crate) fn start(&self, mut index: usize) -> usize {
        let mut at = self.layout.offset();
        // Rows can be so short that the divisions below would be most of the work.
        if self.joined {
            return at + index * self.len;
        }
        for (&len, &stride) in self.layout.shape().iter().zip(self.layout.strides()).rev() {
            at = at.wrapping_add_signed((index % len) as isize * stride);
            index /= len;
        }
        at
    }
}

/// Computes every row along the last axis of an input with a kernel. The shape of input and output is the
/// same and not empty.
pub(crate) fn map<T: Float, K: Kernel<T::Real>>(
    op: &'static str,
    input: Input<'_>,
    mut output: Output<'_>,
    kernel: K,
) -> Result<()> {
    let len = output.shape.last().copied().unwrap_or(1);
    let rows = Rows::new(&input.layout);
    let copy;
    let (data, rows) = match rows {
        Some(rows) => (input.all::<T>(), rows),
        None => {
            copy = Dense::new(op, input)?;
            let rows = Rows::new(&Layout::contiguous(matrix(output.shape.count() / len, len)));
            (copy.all::<T>(), rows.expect("made without gaps"))
        }
    };
    // A row costs several passes over cached data: a task is worth its while with fewer bytes.
    let count = pool::grain(4 * len * size_of::<T>());
    pool::for_each_chunk(output.all::<T>(), count * len, |i, piece| {
        let space = if T::SAME { 0 } else { 2 * len };
        T::Real::with_scratch(space, |space| {
            let task = Map {
                kernel: &kernel,
                data,
                rows,
                first: i * count,
                piece,
                space,
            };
            if K::IS_LONG {
                simd::run(task);
            } else {
                simd::run_narrow(task);
            }
        });
    });
    Ok(())
}

/// The shape of a matrix of elements that exist.
fn matrix(rows: usize, cols: usize) -> Shape {
    Shape::new("rows", &[rows, cols]).expect("as many elements as the output has")
}

struct Map<'a, T: Float, K> {
    kernel: &'a K,
    data: &'a [T],
    rows: Rows,
    first: usize,
    piece: &'a mut [T],
    space: &'a mut [T::Real],
}

impl<T: Float, K: Kernel<T::Real>> Task for Map<'_, T, K> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let len = self.rows.len;
        for (i, y) in self.piece.chunks_exact_mut(len).enumerate() {
            let x = self.rows.get(self.data, self.first + i);
            T::row::<I, K>(self.kernel, self.first + i, x, y, self.space);
        }
    }
}

/// A vector of parameters (weights, biases) in the type that elements `T` are computed in.
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
    simd::run(Widen {
        from: values,
        to: &mut out,
    });
    Ok(Cow::Owned(out))
}

struct Widen<'a, T: Float> {
    from: &'a [T],
    to: &'a mut [T::Real],
}

impl<T: Float> Task for Widen<'_, T> {
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
            let top = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(maximum(&x), top);
        }
    }
}
