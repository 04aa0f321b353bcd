//! CPU kernels on slices, for callers that manage their own memory.
//!
//! A language model makes the same few hundred calls for every token; recording them as a graph each time would cost
//! more than the small ones take. These are the kernels of the ops, or variants for one row at a time, with the threads
//! and instruction sets of the CPU backend. They panic if lengths do not match.

mod cache;

pub use cache::{Attend, CacheType, KvCache};

use crate::cpu::math::Math;
use crate::cpu::pool;
use crate::cpu::row::sum_of;
use crate::cpu::simd::{self, Isa, MulAdd, Task};
use crate::{Result, RopeStyle, RopeTable, Tensor};

/// Elements of a task: the hidden state of one token is not worth a second thread.
const TASK_LEN: usize = 16 << 10;

/// RMS norm: divides rows of `weight.len()` elements by their root mean square and multiplies them with `weight`, as
/// [`Tensor::rms_norm`].
///
/// # Panics
/// If lengths do not match.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, to: &mut [f32]) {
    assert_eq!(
        x.len(),
        to.len(),
        "rms_norm: input and output differ in length"
    );
    struct RmsNormRows<'a>(&'a [f32], &'a [f32], f32, &'a mut [f32]);
    impl Task for RmsNormRows<'_> {
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
        simd::run_narrow(RmsNormRows(&x[i * piece..][..to.len()], weight, eps, to));
    });
}

/// Layer norm in place: subtracts the mean of rows of `weight.len()` elements, divides by the standard deviation,
/// multiplies with `weight` and adds `bias`.
///
/// # Panics
/// If lengths do not match.
pub fn layer_norm(x: &mut [f32], weight: &[f32], bias: &[f32], eps: f64) {
    assert_eq!(
        weight.len(),
        bias.len(),
        "layer_norm: weight and bias differ in length"
    );
    struct LayerNormRows<'a>(&'a mut [f32], &'a [f32], &'a [f32], f64);
    impl Task for LayerNormRows<'_> {
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
    simd::run_narrow(LayerNormRows(x, weight, bias, eps));
}

/// Adds `y` to `x` in place.
///
/// # Panics
/// If the lengths differ.
pub fn add(x: &mut [f32], y: &[f32]) {
    assert_eq!(x.len(), y.len(), "add: x and y differ in length");
    pool::for_each_chunk(x, TASK_LEN, |i, x| {
        for (x, &y) in x.iter_mut().zip(&y[i * TASK_LEN..]) {
            *x += y;
        }
    });
}

/// FFN activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `x * sigmoid(x)`
    Silu,
    /// GELU with the error function.
    Gelu,
    /// GELU approximated with `tanh`.
    GeluTanh,
}

/// [`activate`] for the elements of a task.
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

/// Applies an activation to `x` in place, and multiplies it with `factor` if given (GLU).
///
/// # Panics
/// If the lengths differ.
pub fn activate(activation: Activation, x: &mut [f32], factor: Option<&[f32]>) {
    assert!(
        factor.is_none_or(|f| f.len() == x.len()),
        "activate: x and factor differ in length"
    );
    pool::for_each_chunk(x, TASK_LEN, |i, x| {
        let factor = factor.map(|f| &f[i * TASK_LEN..][..x.len()]);
        simd::run_narrow(Activate(activation, x, factor));
    });
}

/// Soft-caps `x` in place: `cap * tanh(x / cap)`.
pub fn soft_cap(x: &mut [f32], cap: f32) {
    struct SoftCap<'a>(&'a mut [f32], f32);
    impl Task for SoftCap<'_> {
        type Output = ();
        #[inline(always)]
        fn run<I: Isa>(self) {
            for x in self.0 {
                *x = self.1 * (*x / self.1).tanh_on::<I>();
            }
        }
    }
    simd::run_narrow(SoftCap(x, cap));
}

/// Rotary embedding on slices, with the frequencies of a [`RopeTable`], read once.
#[derive(Clone, Debug)]
pub struct Rotation {
    style: RopeStyle,
    frequencies: Vec<f64>,
    factor: f64,
}

impl Rotation {
    /// Reads the frequencies of a table.
    pub fn new(table: &RopeTable) -> Result<Self> {
        let frequencies: &Tensor = table.frequencies();
        Ok(Self {
            style: table.style(),
            frequencies: frequencies.to_vec()?,
            factor: table.attention_factor(),
        })
    }

    /// Number of elements that [`Rotation::angles`] writes.
    pub fn len(&self) -> usize {
        2 * self.frequencies.len()
    }

    /// Returns true if nothing is rotated.
    pub fn is_empty(&self) -> bool {
        self.frequencies.is_empty()
    }

    /// Writes the cosines, then the sines, of a position.
    ///
    /// # Panics
    /// If the length of `to` is not [`Rotation::len`].
    pub fn angles(&self, position: usize, to: &mut [f32]) {
        let (cos, sin) = to.split_at_mut(self.frequencies.len());
        for ((c, s), f) in cos.iter_mut().zip(sin).zip(&self.frequencies) {
            let (sine, cosine) = (position as f64 * f).sin_cos();
            *c = (cosine * self.factor) as f32;
            *s = (sine * self.factor) as f32;
        }
    }

    /// Rotates `rows` rows of heads of `dim` elements, each row by its own angles.
    ///
    /// # Panics
    /// If lengths do not match.
    pub fn rotate_rows(&self, x: &mut [f32], rows: usize, dim: usize, angles: &[f32]) {
        let row = x.len() / rows.max(1);
        assert!(
            row * rows == x.len() && angles.len() >= rows * self.len(),
            "rotate_rows: rows or angles do not match"
        );
        if row == 0 {
            return;
        }
        let task_rows = (TASK_LEN / row).max(1);
        pool::for_each_chunk(x, task_rows * row, |i, x| {
            for (j, x) in x.chunks_exact_mut(row).enumerate() {
                let angles = &angles[(i * task_rows + j) * self.len()..][..self.len()];
                self.rotate(x, dim, angles);
            }
        });
    }

    /// Rotates all heads of `dim` elements in `x` by angles from [`Rotation::angles`].
    ///
    /// # Panics
    /// If lengths do not match.
    pub fn rotate(&self, x: &mut [f32], dim: usize, angles: &[f32]) {
        let half = self.frequencies.len();
        let (cos, sin) = angles.split_at(half);
        assert_eq!(
            sin.len(),
            half,
            "rotate: cosines and sines do not match the frequencies"
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
