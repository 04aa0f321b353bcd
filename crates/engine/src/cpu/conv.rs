//! `conv1d`, `conv2d` on the CPU: a product of the weights with the windows, written out side by side in
//! blocks; where windows are single elements, with the image as it lies; and where every channel is on its
//! own, sums of shifted rows.

use super::gemm::{Gemm, Matrix, gemm};
use super::pool;
use super::pooling::inside;
use super::row::{Float, Real};
use super::simd::{self, Isa, MulAdd, Task};
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::conv::Conv;
use crate::storage::Storage;
use crate::{Element, Result};

/// Elements of a block of windows: what the last cache holds beside the factors' packed parts.
const BLOCK: usize = 512 << 10;

/// Runs it.
pub(crate) fn run(op: &Conv, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let [_, channels, height, width] = inputs[0].layout.shape()[..] else {
        unreachable!("the rule wants four axes");
    };
    let [outputs, inner, kh, kw] = inputs[1].layout.shape()[..] else {
        unreachable!("the rule wants four axes");
    };
    let places = [output.shape[2], output.shape[3]];
    let dense: Vec<_> = inputs
        .iter()
        .map(|&i| Dense::new(op.name, i))
        .collect::<Result<_>>()?;
    with_type!(floats output.dtype, T => {
        let problem = Problem {
            op,
            x: dense[0].all::<T>(),
            weight: dense[1].all::<T>(),
            bias: dense.get(2).map(Dense::all::<T>),
            channels,
            size: [height, width],
            outputs,
            inner,
            taps: [kh, kw],
            places,
        };
        if inner == 1 {
            problem.each_on_its_own(output.all::<T>());
            return Ok(());
        }
        problem.products(output.all::<T>())
    }, else unreachable!("the rule takes floats only"))
}

struct Problem<'a, T> {
    op: &'a Conv,
    x: &'a [T],
    weight: &'a [T],
    bias: Option<&'a [T]>,
    channels: usize,
    size: [usize; 2],
    outputs: usize,
    /// Channels of a group.
    inner: usize,
    taps: [usize; 2],
    places: [usize; 2],
}

impl<T: Float + Gemm<Acc = <T as Float>::Real> + Element> Problem<'_, T> {
    fn products(&self, to: &mut [T]) -> Result<()> {
        let groups = self.op.groups;
        let (area, plane) = (self.places[0] * self.places[1], self.size[0] * self.size[1]);
        let depth = self.inner * self.taps[0] * self.taps[1];
        let rows = self.outputs / groups;
        let single = self.taps == [1, 1] && self.op.stride == [1, 1] && self.op.padding == [0, 0];
        // Whole rows of places, as many as a block has room for.
        let lines = (BLOCK / depth.max(1) / self.places[1].max(1)).clamp(1, self.places[0].max(1));
        let width = lines * self.places[1];
        let room = if single { 0 } else { depth * width };
        let mut block = Storage::new(self.op.name, room * size_of::<T>())?;
        let block = bytemuck::cast_slice_mut::<u8, T>(block.bytes_mut().expect("just made"));
        for (i, to) in to.chunks_exact_mut(rows * area).enumerate() {
            let (image, group) = (i / groups, i % groups);
            let x = (image * self.channels + group * self.inner) * plane;
            let x = &self.x[x..][..self.inner * plane];
            let weight = &self.weight[group * rows * depth..][..rows * depth];
            let weight = Matrix::contiguous(weight, rows, depth);
            let beta = self.begin(group * rows, area, to);
            let one = T::Real::of(1.0);
            if single {
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
            for first in (0..self.places[0]).step_by(lines) {
                let lines = lines.min(self.places[0] - first);
                let width = lines * self.places[1];
                let block = &mut block[..depth * width];
                self.write_out(x, first, width, block);
                let windows = Matrix::contiguous(&*block, depth, width);
                let to = &mut to[first * self.places[1]..];
                gemm(one, weight, windows, beta, to, area);
            }
        }
        Ok(())
    }

    /// Fills the rows of outputs from `first` on with their bias, and returns what to multiply them with
    /// when the products are added.
    fn begin(&self, first: usize, area: usize, to: &mut [T]) -> T::Real {
        let Some(bias) = self.bias else {
            return T::Real::ZERO;
        };
        for (to, &bias) in to.chunks_exact_mut(area).zip(&bias[first..]) {
            to.fill(bias);
        }
        T::Real::of(1.0)
    }

    /// Writes the windows of the lines of places from `first` on side by side: a row for each channel and
    /// tap, a column for each place.
    fn write_out(&self, x: &[T], first: usize, width: usize, block: &mut [T]) {
        let taps = self.taps[0] * self.taps[1];
        let plane = self.size[0] * self.size[1];
        let grain = pool::grain(2 * width * size_of::<T>());
        pool::for_each_chunk(block, grain * width, |piece, rows| {
            for (r, row) in rows.chunks_exact_mut(width).enumerate() {
                let r = piece * grain + r;
                let (channel, tap) = (r / taps, r % taps);
                let tap = [tap / self.taps[1], tap % self.taps[1]];
                let x = &x[channel * plane..][..plane];
                for (i, line) in row.chunks_exact_mut(self.places[1]).enumerate() {
                    self.line(x, first + i, tap, line);
                }
            }
        });
    }

    /// The elements that a tap meets at a line of places.
    fn line(&self, x: &[T], line: usize, tap: [usize; 2], to: &mut [T]) {
        let op = self.op;
        let zero = T::default();
        let y = line * op.stride[0] + tap[0] * op.dilation[0];
        let Some(y) = y.checked_sub(op.padding[0]).filter(|&y| y < self.size[0]) else {
            to.fill(zero);
            return;
        };
        let x = &x[y * self.size[1]..][..self.size[1]];
        let tap = tap[1] * op.dilation[1];
        let (stride, padding) = (op.stride[1], op.padding[1]);
        let places = inside(tap, (stride, padding), self.size[1], to.len());
        to[..places.start].fill(zero);
        to[places.end..].fill(zero);
        if places.is_empty() {
            return;
        }
        let from = &x[places.start * stride + tap - padding..];
        let to = &mut to[places];
        if stride == 1 {
            to.copy_from_slice(&from[..to.len()]);
        } else {
            for (to, &from) in to.iter_mut().zip(from.iter().step_by(stride)) {
                *to = from;
            }
        }
    }

    /// Every output from one channel: depthwise.
    fn each_on_its_own(&self, to: &mut [T]) {
        let (area, plane) = (self.places[0] * self.places[1], self.size[0] * self.size[1]);
        let grain = pool::grain(2 * (area + plane) * size_of::<T>());
        pool::for_each_chunk(to, grain * area, |piece, to| {
            let space = self.places[1] + if T::SAME { 0 } else { plane };
            T::Real::with_scratch(space, |space| {
                for (i, to) in to.chunks_exact_mut(area).enumerate() {
                    let i = piece * grain + i;
                    simd::run(Depthwise {
                        problem: self,
                        image: i / self.outputs,
                        output: i % self.outputs,
                        space,
                        to,
                    });
                }
            });
        });
    }
}

/// One output of one image, from one channel.
struct Depthwise<'a, 'b, T: Float> {
    problem: &'a Problem<'b, T>,
    image: usize,
    output: usize,
    space: &'a mut [T::Real],
    to: &'a mut [T],
}

impl<T: Float> Task for Depthwise<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let p = self.problem;
        let op = p.op;
        let [height, width] = p.size;
        let plane = height * width;
        let channel = self.output / (p.outputs / op.groups);
        let x = &p.x[(self.image * p.channels + channel) * plane..][..plane];
        let (sums, space) = self.space.split_at_mut(p.places[1]);
        let x = T::view::<I>(x, space);
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
        for (line, to) in self.to.chunks_exact_mut(p.places[1]).enumerate() {
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
                    let places = inside(tap, (stride, op.padding[1]), width, p.places[1]);
                    if places.is_empty() {
                        continue;
                    }
                    let x = &x[places.start * stride + tap - op.padding[1]..];
                    let sums = &mut sums[places];
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
