//! `conv1d`, `conv2d` on the CPU: im2col in blocks and GEMM. A 1×1 convolution is a GEMM on the image itself, and a
//! depthwise convolution sums shifted rows directly.

use super::gemm::{Gemm, Matrix, gemm};
use super::pool;
use super::pooling::WindowAxis;
use super::row::{Float, Real};
use super::simd::{self, Isa, MulAdd, Task};
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::conv::Conv;
use crate::storage::Storage;
use crate::{Element, Result};

/// Elements of an im2col block, which fits in the last-level cache beside the packed operands.
const IM2COL_BLOCK_LEN: usize = 512 << 10;

/// Runs the op.
pub(crate) fn run(op: &Conv, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let [_, channels, height, width] = inputs[0].layout.shape()[..] else {
        unreachable!("the rule wants four axes");
    };
    let [outputs, inner, kh, kw] = inputs[1].layout.shape()[..] else {
        unreachable!("the rule wants four axes");
    };
    let out_size = [output.shape[2], output.shape[3]];
    let dense: Vec<_> = inputs
        .iter()
        .map(|&i| Dense::new(op.name, i))
        .collect::<Result<_>>()?;
    with_type!(floats output.dtype, T => {
        let problem = ConvProblem {
            op,
            x: dense[0].all::<T>(),
            weight: dense[1].all::<T>(),
            bias: dense.get(2).map(Dense::all::<T>),
            channels,
            size: [height, width],
            outputs,
            inner,
            taps: [kh, kw],
            out_size,
        };
        if inner == 1 {
            problem.depthwise(output.all::<T>());
            return Ok(());
        }
        problem.im2col_gemm(output.all::<T>())
    }, else unreachable!("the rule takes floats only"))
}

/// A convolution with its inputs and dimensions.
struct ConvProblem<'a, T> {
    op: &'a Conv,
    x: &'a [T],
    weight: &'a [T],
    bias: Option<&'a [T]>,
    channels: usize,
    size: [usize; 2],
    outputs: usize,
    /// Input channels per group.
    inner: usize,
    /// Kernel height and width.
    taps: [usize; 2],
    out_size: [usize; 2],
}

impl<T> ConvProblem<'_, T> {
    /// The movement of the window along the width.
    fn columns_axis(&self) -> WindowAxis {
        WindowAxis {
            stride: self.op.stride[1],
            padding: self.op.padding[1],
            len: self.size[1],
            positions: self.out_size[1],
        }
    }
}

impl<T: Float + Gemm<Acc = <T as Float>::Real> + Element> ConvProblem<'_, T> {
    fn im2col_gemm(&self, to: &mut [T]) -> Result<()> {
        let groups = self.op.groups;
        let (area, plane) = (
            self.out_size[0] * self.out_size[1],
            self.size[0] * self.size[1],
        );
        let depth = self.inner * self.taps[0] * self.taps[1];
        let rows = self.outputs / groups;
        let pointwise =
            self.taps == [1, 1] && self.op.stride == [1, 1] && self.op.padding == [0, 0];
        // As many whole output rows as fit in a block.
        let rows_per_block = (IM2COL_BLOCK_LEN / depth.max(1) / self.out_size[1].max(1))
            .clamp(1, self.out_size[0].max(1));
        let width = rows_per_block * self.out_size[1];
        let block_len = if pointwise { 0 } else { depth * width };
        let mut block = Storage::new(self.op.name, block_len * size_of::<T>())?;
        let block = bytemuck::cast_slice_mut::<u8, T>(block.bytes_mut().expect("newly allocated"));
        for (i, to) in to.chunks_exact_mut(rows * area).enumerate() {
            let (image, group) = (i / groups, i % groups);
            let x = (image * self.channels + group * self.inner) * plane;
            let x = &self.x[x..][..self.inner * plane];
            let weight = &self.weight[group * rows * depth..][..rows * depth];
            let weight = Matrix::contiguous(weight, rows, depth);
            let beta = self.fill_bias(group * rows, area, to);
            let one = T::Real::of(1.0);
            if pointwise {
                gemm(
                    one,
                    weight,
                    Matrix::contiguous(x, depth, area),
                    beta,
                    to,
                    area,
                );
                continue;
            }
            for first in (0..self.out_size[0]).step_by(rows_per_block) {
                let out_rows = rows_per_block.min(self.out_size[0] - first);
                let width = out_rows * self.out_size[1];
                let block = &mut block[..depth * width];
                self.im2col(x, first, width, block);
                let windows = Matrix::contiguous(&*block, depth, width);
                let to = &mut to[first * self.out_size[1]..];
                gemm(one, weight, windows, beta, to, area);
            }
        }
        Ok(())
    }

    /// Fills the rows of output channels from `first` on with their bias, if any, and returns the `beta` of the GEMM.
    fn fill_bias(&self, first: usize, area: usize, to: &mut [T]) -> T::Real {
        let Some(bias) = self.bias else {
            return T::Real::ZERO;
        };
        for (to, &bias) in to.chunks_exact_mut(area).zip(&bias[first..]) {
            to.fill(bias);
        }
        T::Real::of(1.0)
    }

    /// Writes the im2col matrix of the output rows from `first` on: a row for each channel and tap, a column for each
    /// output position.
    fn im2col(&self, x: &[T], first: usize, width: usize, block: &mut [T]) {
        let taps = self.taps[0] * self.taps[1];
        let plane = self.size[0] * self.size[1];
        let grain = pool::grain(2 * width * size_of::<T>());
        pool::for_each_chunk(block, grain * width, |piece, rows| {
            for (r, row) in rows.chunks_exact_mut(width).enumerate() {
                let r = piece * grain + r;
                let (channel, tap) = (r / taps, r % taps);
                let tap = [tap / self.taps[1], tap % self.taps[1]];
                let x = &x[channel * plane..][..plane];
                for (i, line) in row.chunks_exact_mut(self.out_size[1]).enumerate() {
                    self.im2col_row(x, first + i, tap, line);
                }
            }
        });
    }

    /// Writes the elements that a tap reads along output row `line`, with zeros for the padding.
    fn im2col_row(&self, x: &[T], line: usize, tap: [usize; 2], to: &mut [T]) {
        let op = self.op;
        let zero = T::default();
        let y = line * op.stride[0] + tap[0] * op.dilation[0];
        let Some(y) = y.checked_sub(op.padding[0]).filter(|&y| y < self.size[0]) else {
            to.fill(zero);
            return;
        };
        let x = &x[y * self.size[1]..][..self.size[1]];
        let tap = tap[1] * op.dilation[1];
        let axis = self.columns_axis();
        let positions = axis.inside(tap);
        to[..positions.start].fill(zero);
        to[positions.end..].fill(zero);
        if positions.is_empty() {
            return;
        }
        let stride = axis.stride;
        let from = &x[positions.start * stride + tap - axis.padding..];
        let to = &mut to[positions];
        if stride == 1 {
            to.copy_from_slice(&from[..to.len()]);
        } else {
            for (to, &from) in to.iter_mut().zip(from.iter().step_by(stride)) {
                *to = from;
            }
        }
    }

    /// Depthwise convolution: every output channel depends on one input channel.
    fn depthwise(&self, to: &mut [T]) {
        let (area, plane) = (
            self.out_size[0] * self.out_size[1],
            self.size[0] * self.size[1],
        );
        let grain = pool::grain(2 * (area + plane) * size_of::<T>());
        pool::for_each_chunk(to, grain * area, |piece, to| {
            let scratch = self.out_size[1] + if T::IS_COMPUTE_TYPE { 0 } else { plane };
            T::Real::with_scratch(scratch, |scratch| {
                for (i, to) in to.chunks_exact_mut(area).enumerate() {
                    let i = piece * grain + i;
                    simd::run(Depthwise {
                        problem: self,
                        image: i / self.outputs,
                        output: i % self.outputs,
                        scratch,
                        to,
                    });
                }
            });
        });
    }
}

/// One output channel of one image, from one input channel.
struct Depthwise<'a, 'b, T: Float> {
    problem: &'a ConvProblem<'b, T>,
    image: usize,
    output: usize,
    scratch: &'a mut [T::Real],
    to: &'a mut [T],
}

impl<T: Float> Task for Depthwise<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let p = self.problem;
        let op = p.op;
        let [height, width] = p.size;
        let axis = p.columns_axis();
        let plane = height * width;
        let channel = self.output / (p.outputs / op.groups);
        let x = &p.x[(self.image * p.channels + channel) * plane..][..plane];
        let (sums, scratch) = self.scratch.split_at_mut(p.out_size[1]);
        let x = T::view::<I>(x, scratch);
        let one = |v: &[T]| {
            let mut wide = [T::Real::ZERO];
            T::widen::<I>(v, &mut wide);
            wide[0]
        };
        let taps = p.taps[0] * p.taps[1];
        let weights = &p.weight[self.output * taps..][..taps];
        let bias = p
            .bias
            .map_or(T::Real::ZERO, |b| one(&b[self.output..=self.output]));
        for (line, to) in self.to.chunks_exact_mut(p.out_size[1]).enumerate() {
            sums.fill(bias);
            for ky in 0..p.taps[0] {
                let y = line * op.stride[0] + ky * op.dilation[0];
                let Some(y) = y.checked_sub(op.padding[0]).filter(|&y| y < height) else {
                    continue;
                };
                let x = &x[y * width..][..width];
                for kx in 0..p.taps[1] {
                    let at = ky * p.taps[1] + kx;
                    let weight = one(&weights[at..=at]);
                    let (tap, stride) = (kx * op.dilation[1], op.stride[1]);
                    let positions = axis.inside(tap);
                    if positions.is_empty() {
                        continue;
                    }
                    let x = &x[positions.start * stride + tap - op.padding[1]..];
                    let sums = &mut sums[positions];
                    if stride == 1 {
                        for (sum, &x) in sums.iter_mut().zip(x) {
                            *sum = x.mul_add_on::<I>(weight, *sum);
                        }
                    } else {
                        for (sum, &x) in sums.iter_mut().zip(x.iter().step_by(stride)) {
                            *sum = x.mul_add_on::<I>(weight, *sum);
                        }
                    }
                }
            }
            T::narrow::<I>(sums, to);
        }
    }
}
