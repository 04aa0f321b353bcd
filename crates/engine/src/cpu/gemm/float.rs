//! The accumulator types of floating-point GEMM, and the element types that are widened to them.

use std::ops::{Add, AddAssign, Mul};

use half::{bf16, f16};

use super::Mix;
use super::kernel::MicroKernel;
use super::kernel_scalar::ScalarKernel;
use crate::cpu::simd::{self, Isa, Level, MulAdd, Task};

/// An accumulator type: `f32` or `f64`.
pub(crate) trait GemmFloat:
    Copy
    + Default
    + Send
    + Sync
    + PartialEq
    + bytemuck::Pod
    + MulAdd
    + Mul<Output = Self>
    + Add<Output = Self>
    + AddAssign
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Calls `job` with the micro-kernel of `level`, which the processor must have.
    fn with_kernel<J: WithKernel<Self>>(level: Level, job: J) -> J::Output;
}

/// A function that is generic over the micro-kernel.
pub(crate) trait WithKernel<F> {
    /// Its return type.
    type Output;
    /// Calls it.
    fn call<K: MicroKernel<Float = F>>(self) -> Self::Output;
}

macro_rules! float {
    ($type:ty, $avx2:ident, $avx512:ident, $neon:ident) => {
        impl GemmFloat for $type {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            fn with_kernel<J: WithKernel<Self>>(level: Level, job: J) -> J::Output {
                match level {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => job.call::<super::kernel_avx2::$avx2>(),
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => job.call::<super::kernel_avx512::$avx512>(),
                    #[cfg(target_arch = "aarch64")]
                    Level::Neon => job.call::<super::kernel_neon::$neon>(),
                    _ => job.call::<ScalarKernel<$type>>(),
                }
            }
        }
    };
}
float!(f32, Avx2F32, Avx512F32, NeonF32);
float!(f64, Avx2F64, Avx512F64, NeonF64);

/// A floating-point element type.
pub(crate) trait FloatElement:
    Copy + Default + Send + Sync + bytemuck::Pod + 'static
{
    /// The accumulator type of its products.
    type Float: GemmFloat;
    /// True if that is the type itself, so no conversion is needed.
    const SAME: bool;
    /// The value of one element.
    fn widen(self) -> Self::Float;
    /// The element nearest to a value, ties to even.
    fn narrow(value: Self::Float) -> Self;
    /// Converts a slice of elements; both slices have the same length.
    fn widen_slice<I: Isa>(from: &[Self], to: &mut [Self::Float]);
    /// Converts a slice of values; both slices have the same length.
    fn narrow_slice<I: Isa>(from: &[Self::Float], to: &mut [Self]);
}

macro_rules! same {
    ($($type:ty),*) => {$(
        impl FloatElement for $type {
            type Float = Self;
            const SAME: bool = true;
            #[inline(always)]
            fn widen(self) -> Self {
                self
            }
            #[inline(always)]
            fn narrow(value: Self) -> Self {
                value
            }
            #[inline(always)]
            fn widen_slice<I: Isa>(from: &[Self], to: &mut [Self]) {
                to.copy_from_slice(from);
            }
            #[inline(always)]
            fn narrow_slice<I: Isa>(from: &[Self], to: &mut [Self]) {
                to.copy_from_slice(from);
            }
        }
    )*};
}
same!(f32, f64);

impl FloatElement for bf16 {
    type Float = f32;
    const SAME: bool = false;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        let bits = value.to_bits();
        let nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        // Keeps a NaN a NaN: its payload may be in the truncated bits.
        let nan = bits >> 16 | 0x40;
        let bits = if value.is_nan() { nan } else { nearest };
        Self::from_bits(bits as u16)
    }

    #[inline(always)]
    fn widen_slice<I: Isa>(from: &[Self], to: &mut [f32]) {
        for (x, y) in from.iter().zip(to) {
            *y = x.widen();
        }
    }

    #[inline(always)]
    fn narrow_slice<I: Isa>(from: &[f32], to: &mut [Self]) {
        for (x, y) in from.iter().zip(to) {
            *y = Self::narrow(*x);
        }
    }
}

impl FloatElement for f16 {
    type Float = f32;
    const SAME: bool = false;

    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let (sign, rest) = (bits << 16 & 0x8000_0000, bits << 13 & 0x0fff_e000);
        // The exponent of a finite value, subnormal or not, is too small by 112; an infinity or NaN needs the
        // remaining exponent bits.
        let finite = f32::from_bits(rest) * f32::from_bits((112 + 127) << 23);
        let bits = if rest >= 0x0f80_0000 {
            rest | 0x7f80_0000
        } else {
            finite.to_bits()
        };
        f32::from_bits(sign | bits)
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        Self::from_f32(value)
    }

    #[inline(always)]
    fn widen_slice<I: Isa>(from: &[Self], to: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        let (from, to) = super::f16c::widen::<I>(from, to);
        for (x, y) in from.iter().zip(to) {
            *y = x.widen();
        }
    }

    #[inline(always)]
    fn narrow_slice<I: Isa>(from: &[f32], to: &mut [Self]) {
        #[cfg(target_arch = "x86_64")]
        let (from, to) = super::f16c::narrow::<I>(from, to);
        for (x, y) in from.iter().zip(to) {
            *y = Self::narrow(*x);
        }
    }
}

struct WidenSlice<'a, T: FloatElement>(&'a [T], &'a mut [T::Float]);

impl<T: FloatElement> Task for WidenSlice<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self) {
        T::widen_slice::<I>(self.0, self.1);
    }
}

/// Converts a slice at a level that the processor has.
pub(super) fn widen<T: FloatElement>(level: Level, from: &[T], to: &mut [T::Float]) {
    simd::run_at(level, WidenSlice(from, to));
}

struct FinishSums<'a, T: FloatElement> {
    mix: Mix<T::Float>,
    sums: &'a mut [T::Float],
    c: &'a mut [T],
}

impl<T: FloatElement> Task for FinishSums<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self) {
        const CHUNK_LEN: usize = 64;
        let zero = T::Float::ZERO;
        let Mix { alpha, beta, .. } = self.mix;
        let mut old = [zero; CHUNK_LEN];
        for (sums, c) in self
            .sums
            .chunks_mut(CHUNK_LEN)
            .zip(self.c.chunks_mut(CHUNK_LEN))
        {
            for x in sums.iter_mut() {
                *x = alpha * *x;
            }
            if beta != zero {
                let old = &mut old[..c.len()];
                T::widen_slice::<I>(c, old);
                for (x, old) in sums.iter_mut().zip(old) {
                    *x = beta.mul_add_on::<I>(*old, *x);
                }
            }
            T::narrow_slice::<I>(sums, c);
        }
    }
}

/// The GEMM epilogue: `c = alpha * sums + beta * c`, narrowed if `c` has a narrower type. Overwrites `sums`. If
/// `beta` is zero, `c` is not read.
pub(super) fn finish<T: FloatElement>(mix: Mix<T::Float>, sums: &mut [T::Float], c: &mut [T]) {
    simd::run_at(mix.level, FinishSums { mix, sums, c });
}
