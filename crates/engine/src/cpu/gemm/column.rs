//! One row of activations times packed panels of half-precision weights (GEMV).
//!
//! Panels are multiplied one by one, so weights are read once, sequentially. Four panels at a time would have four
//! times as many independent sums, but two threads of Zen 4 then read a fifth less in the same time.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "intrinsics that the level in use has")
)]

use super::float::FloatElement;
use super::kernel::MicroKernel;
use crate::cpu::simd::{self, Isa, Level, MulAdd, Task};

/// Maximum columns of a panel.
const MAX_COLS: usize = 32;

/// PanelSums of all columns of a panel.
type PanelSums = [f32; MAX_COLS];

/// Adds the dot products of `x` with every column of `panels`, each summed in order, to `to`, which may end inside the
/// last panel. Panels are as long as `x`.
pub(super) fn add<B: FloatElement<Float = f32>, K: MicroKernel<Float = f32>>(
    panels: &[B],
    x: &[f32],
    to: &mut [f32],
) {
    const { assert!(K::COLS <= MAX_COLS) };
    let size = x.len() * K::COLS;
    let mut sums = [0.0; MAX_COLS];
    for (panel, to) in panels.chunks_exact(size).zip(to.chunks_mut(K::COLS)) {
        sum::<B, K>(panel, x, &mut sums);
        for (to, sum) in to.iter_mut().zip(&sums) {
            *to += sum;
        }
    }
}

/// The implementation for a kernel and a weight type, fixed at compile time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GemvPath {
    /// Intrinsics: panels of 16 columns in vectors of 8 lanes.
    Avx2,
    /// Intrinsics: panels of 32 columns in vectors of 16 lanes.
    Avx512,
    /// Plain loops, compiled for the kernel's level.
    Generic,
}

impl GemvPath {
    pub(super) fn of<B: FloatElement, K: MicroKernel>() -> Self {
        let is_half = half_format::<B>().is_some();
        match (K::LEVEL, K::COLS) {
            (Level::Avx2, 16) if is_half => Self::Avx2,
            (Level::Avx512, 32) if is_half => Self::Avx512,
            _ => Self::Generic,
        }
    }
}

/// Computes the sums of a panel.
fn sum<B: FloatElement<Float = f32>, K: MicroKernel<Float = f32>>(
    panel: &[B],
    x: &[f32],
    to: &mut PanelSums,
) {
    match (GemvPath::of::<B, K>(), half_format::<B>()) {
        // SAFETY: a level's kernel is used only on processors that have the level.
        #[cfg(target_arch = "x86_64")]
        (GemvPath::Avx2, Some(format)) => unsafe {
            let bits = bytemuck::cast_slice(panel);
            match format {
                HalfFormat::F16 => avx2::<true>(bits, x, to),
                HalfFormat::BF16 => avx2::<false>(bits, x, to),
            }
        },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        (GemvPath::Avx512, Some(format)) => unsafe {
            let bits = bytemuck::cast_slice(panel);
            match format {
                HalfFormat::F16 => avx512::<true>(bits, x, to),
                HalfFormat::BF16 => avx512::<false>(bits, x, to),
            }
        },
        _ => {
            let to = &mut to[..K::COLS];
            simd::run_at(K::LEVEL, Column { panel, x, to });
        }
    }
}

/// The half-precision formats.
#[derive(Clone, Copy)]
enum HalfFormat {
    F16,
    BF16,
}

/// The half-precision format of a type, if it is one.
fn half_format<B: FloatElement>() -> Option<HalfFormat> {
    use std::any::TypeId;
    let is_f16 = TypeId::of::<B>() == TypeId::of::<half::f16>();
    let is_bf16 = TypeId::of::<B>() == TypeId::of::<half::bf16>();
    match (is_f16, is_bf16) {
        (true, _) => Some(HalfFormat::F16),
        (_, true) => Some(HalfFormat::BF16),
        _ => None,
    }
}

/// One panel without intrinsics.
struct Column<'a, B> {
    panel: &'a [B],
    x: &'a [f32],
    /// One element per column of the panel.
    to: &'a mut [f32],
}

impl<B: FloatElement<Float = f32>> Task for Column<'_, B> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(self) {
        let cols = self.to.len();
        let (mut wide, mut sums) = ([0.0; MAX_COLS], [0.0; MAX_COLS]);
        for (step, &x) in self.panel.chunks_exact(cols).zip(self.x) {
            B::widen_slice::<I>(step, &mut wide[..cols]);
            for (sum, &w) in sums[..cols].iter_mut().zip(&wide) {
                *sum = x.mul_add_on::<I>(w, *sum);
            }
        }
        self.to.copy_from_slice(&sums[..cols]);
    }
}

/// Elements of a cache line.
#[cfg(target_arch = "x86_64")]
const CACHE_LINE_ELEMENTS: usize = 32;

/// Prefetch distance in elements: 4 KiB, as for quantised weights.
#[cfg(target_arch = "x86_64")]
const PREFETCH_ELEMENTS: usize = 2048;

/// Defines the sums of a panel of two vectors of columns.
#[cfg(target_arch = "x86_64")]
macro_rules! column {
    (
        $name:ident, $features:literal, lanes $lanes:literal, zero $zero:ident, splat $splat:ident,
        load $load:ident, store $store:ident, f16 $f16:ident, fma $fma:ident,
        bf16 $cast:ident $shift:ident $widen:ident
    ) => {
        #[target_feature(enable = $features)]
        fn $name<const F16: bool>(panel: &[u16], x: &[f32], to: &mut PanelSums) {
            use std::arch::x86_64::{
                _MM_HINT_T0, _mm_prefetch, $cast, $f16, $fma, $load, $shift, $splat, $store,
                $widen, $zero,
            };
            const COLS: usize = 2 * $lanes;
            const { assert!(COLS <= MAX_COLS && CACHE_LINE_ELEMENTS.is_multiple_of(COLS)) };
            assert!(
                panel.len() >= x.len() * COLS,
                "the panel is shorter than the row"
            );
            let mut sums = [$zero(); 2];
            for (step, &x) in x.iter().enumerate() {
                let at = panel.as_ptr().wrapping_add(step * COLS);
                if step.is_multiple_of(CACHE_LINE_ELEMENTS / COLS) {
                    // Past the last panel this has no effect.
                    _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(PREFETCH_ELEMENTS).cast());
                }
                let x = $splat(x);
                for (v, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: every step of the panel has two vectors of elements.
                    let bits = unsafe { $load(at.add(v * $lanes).cast()) };
                    let w = if F16 {
                        $f16(bits)
                    } else {
                        $cast($shift::<16>($widen(bits)))
                    };
                    *sum = $fma(x, w, *sum);
                }
            }
            for (v, sum) in sums.iter().enumerate() {
                // SAFETY: all columns fit.
                unsafe { $store(to.as_mut_ptr().add(v * $lanes), *sum) };
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
column!(
    avx2, "avx2,fma,f16c", lanes 8, zero _mm256_setzero_ps, splat _mm256_set1_ps,
    load _mm_loadu_si128, store _mm256_storeu_ps, f16 _mm256_cvtph_ps, fma _mm256_fmadd_ps,
    bf16 _mm256_castsi256_ps _mm256_slli_epi32 _mm256_cvtepu16_epi32
);
#[cfg(target_arch = "x86_64")]
column!(
    avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c", lanes 16, zero _mm512_setzero_ps,
    splat _mm512_set1_ps, load _mm256_loadu_si256, store _mm512_storeu_ps, f16 _mm512_cvtph_ps,
    fma _mm512_fmadd_ps, bf16 _mm512_castsi512_ps _mm512_slli_epi32 _mm512_cvtepu16_epi32
);
