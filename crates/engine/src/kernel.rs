//! Kernels on plain slices, for loops that know their memory.
//!
//! A language model makes the same few hundred calls for every token, thousands of times; recording them as a
//! graph each time would cost more than small ones take. These are the same kernels as the ops', or better
//! suited to one row at a time, with the threads and instruction sets of the CPU backend. Lengths that do not go
//! together are the caller's mistake: they panic.

mod cache;

use crate::cpu::math::Math;
use crate::cpu::pool;
use crate::cpu::row::sum_of;
use crate::cpu::simd::{self, Isa, MulAdd, Task};
use crate::{Result, RopeStyle, RopeTable, Tensor};

pub use cache::{Attend, CacheType, KvCache};

/// Numbers of a task: what one token has is not worth a second thread.
const TASK_LEN: usize = 16 << 10;

/// Rows of `weight.len()` numbers, divided by the root of their mean square and multiplied with `weight`, as
/// [`Tensor::rms_norm`].
///
/// # Panics
/// Where lengths do not go together.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, to: &mut [f32]) {
    assert_eq!(x.len(), to.len(), "rms_norm: as many results as numbers");
    struct Norm<'a>(&'a [f32], &'a [f32], f32, &'a mut [f32]);
    impl Task for Norm<'_> {
        type Output = ();
        #[inline(always)]
        fn run<I: Isa>(self) {
            let Self(x, weight, eps, to) = self;
            let len = weight.len();
            for (x, to) in x.chunks_exact(len).zip(to.chunks_exact_mut(len)) {
                let square = sum_of(x, |v, sum| v.mul_add_on::<I>(v, sum));
                let scale = (1.0 / (square / len as f64 + f64::from(eps)).sqrt()) as f32;
                for ((to, &x), &w) in to.iter_mut().zip(x).zip(weight) {
                    *to = x * scale * w;
                }
            }
        }
    }
    let piece = (TASK_LEN / weight.len().max(1)).max(1) * weight.len();
    pool::for_each_chunk(to, piece, |i, to| {
        simd::run_narrow(Norm(&x[i * piece..][..to.len()], weight, eps, to));
    });
}

/// Rows of `weight.len()` numbers with their mean taken off, divided by their deviation, multiplied with `weight`
/// and added to `bias`, in place.
///
/// # Panics
/// Where lengths do not go together.
pub fn layer_norm(x: &mut [f32], weight: &[f32], bias: &[f32], eps: f64) {
    assert_eq!(
        weight.len(),
        bias.len(),
        "layer_norm: as many biases as weights"
    );
    struct Norm<'a>(&'a mut [f32], &'a [f32], &'a [f32], f64);
    impl Task for Norm<'_> {
        type Output = ();
        #[inline(always)]
        fn run<I: Isa>(self) {
            let Self(x, weight, bias, eps) = self;
            let len = weight.len();
            for x in x.chunks_exact_mut(len) {
                let mean = (sum_of(x, |v, sum| sum + v) / len as f64) as f32;
                for v in x.iter_mut() {
                    *v -= mean;
                }
                let square = sum_of(x, |v, sum| v.mul_add_on::<I>(v, sum));
                let scale = (1.0 / (square / len as f64 + eps).sqrt()) as f32;
                for ((x, &w), &b) in x.iter_mut().zip(weight).zip(bias) {
                    *x = (*x * scale) * w + b;
                }
            }
        }
    }
    simd::run_narrow(Norm(x, weight, bias, eps));
}

/// Adds `y` to `x`.
///
/// # Panics
/// Where they have different lengths.
pub fn add(x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "add: as many of one as of the other");
    pool::for_each_chunk(x, TASK_LEN, |i, x| {
        for (x, &y) in x.iter_mut().zip(&y[i * TASK_LEN..]) {
            *x += y;
        }
    });
}

/// What a feed-forward part bends its numbers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// GELU with the error function.
    Gelu,
    /// GELU with its approximation by `tanh`.
    GeluTanh,
}

struct Activate<'a>(Activation, &'a mut [f32], Option<&'a [f32]>);

impl Task for Activate<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self(activation, x, factor) = self;
        match activation {
            Activation::Silu => x.iter_mut().for_each(|x| *x = x.silu_on::<I>()),
            Activation::Gelu => x.iter_mut().for_each(|x| *x = x.gelu_on::<I>()),
            Activation::GeluTanh => x.iter_mut().for_each(|x| *x = x.gelu_tanh_on::<I>()),
        }
        if let Some(factor) = factor {
            for (x, &f) in x.iter_mut().zip(factor) {
                *x *= f;
            }
        }
    }
}

/// Bends `x`, and multiplies it with `factor` if there is one.
///
/// # Panics
/// Where they have different lengths.
pub fn activate(activation: Activation, x: &mut [f32], factor: Option<&[f32]>) {
    assert!(
        factor.is_none_or(|f| f.len() == x.len()),
        "activate: x and factor have different lengths"
    );
    pool::for_each_chunk(x, TASK_LEN, |i, x| {
        let factor = factor.map(|f| &f[i * TASK_LEN..][..x.len()]);
        simd::run_narrow(Activate(activation, x, factor));
    });
}

/// `cap * tanh(x / cap)` for all.
pub fn soft_cap(x: &mut [f32], cap: f32) {
    struct Cap<'a>(&'a mut [f32], f32);
    impl Task for Cap<'_> {
        type Output = ();
        #[inline(always)]
        fn run<I: Isa>(self) {
            for x in self.0 {
                *x = self.1 * (*x / self.1).tanh_on::<I>();
            }
        }
    }
    simd::run_narrow(Cap(x, cap));
}

/// Rotary embeddings on slices: the frequencies of a [`RopeTable`], read once.
#[derive(Clone, Debug)]
pub struct Rotation {
    style: RopeStyle,
    frequencies: Vec<f64>,
    factor: f64,
}

impl Rotation {
    /// The rotation of a table.
    pub fn new(table: &RopeTable) -> Result<Self> {
        let frequencies: &Tensor = table.frequencies();
        Ok(Self {
            style: table.style(),
            frequencies: frequencies.to_vec()?,
            factor: table.attention_factor(),
        })
    }

    /// Numbers that [`Rotation::angles`] writes.
    pub fn len(&self) -> usize {
        2 * self.frequencies.len()
    }

    /// Whether nothing is turned.
    pub fn is_empty(&self) -> bool {
        self.frequencies.is_empty()
    }

    /// Cosines and sines at a position, in that order.
    ///
    /// # Panics
    /// Where `to` has not [`Rotation::len`] numbers.
    pub fn angles(&self, position: usize, to: &mut [f32]) {
        let (cos, sin) = to.split_at_mut(self.frequencies.len());
        for ((c, s), f) in cos.iter_mut().zip(sin).zip(&self.frequencies) {
            let (sine, cosine) = (position as f64 * f).sin_cos();
            *c = (cosine * self.factor) as f32;
            *s = (sine * self.factor) as f32;
        }
    }

    /// Turns `rows` of heads of `dim` numbers, each by its own angles.
    ///
    /// # Panics
    /// Where lengths do not go together.
    pub fn rotate_rows(&self, x: &mut [f32], rows: usize, dim: usize, angles: &[f32]) {
        let row = x.len() / rows.max(1);
        assert!(
            row * rows == x.len() && angles.len() >= rows * self.len(),
            "rotate_rows: angles for every row"
        );
        if row == 0 {
            return;
        }
        let some = (TASK_LEN / row).max(1);
        pool::for_each_chunk(x, some * row, |i, x| {
            for (j, x) in x.chunks_exact_mut(row).enumerate() {
                self.rotate(x, dim, &angles[(i * some + j) * self.len()..][..self.len()]);
            }
        });
    }

    /// Turns all heads of `dim` numbers in `x` by angles that [`Rotation::angles`] wrote.
    ///
    /// # Panics
    /// Where lengths do not go together.
    pub fn rotate(&self, x: &mut [f32], dim: usize, angles: &[f32]) {
        let half = self.frequencies.len();
        let (cos, sin) = angles.split_at(half);
        assert_eq!(
            sin.len(),
            half,
            "rotate: a cosine and a sine for every pair"
        );
        for head in x.chunks_exact_mut(dim) {
            match self.style {
                RopeStyle::Interleaved => {
                    let pairs = head.as_chunks_mut::<2>().0.iter_mut();
                    for ((pair, &c), &s) in pairs.zip(cos).zip(sin) {
                        let [a, b] = *pair;
                        *pair = [a * c - b * s, b * c + a * s];
                    }
                }
                _ => {
                    let (first, rest) = head.split_at_mut(half);
                    for (((a, b), &c), &s) in first.iter_mut().zip(rest).zip(cos).zip(sin) {
                        (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
                    }
                }
            }
        }
    }
}
