//! One row times a few packed panels.
#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "intrinsics that the level in use has")
)]

use super::float::{Wide, widen};
use super::kernel::Kernel;
#[cfg(target_arch = "x86_64")]
use crate::cpu::simd::Level;

/// Adds the products of `x` with every column of some panels, summed in the order of steps, to `to`: a number for
/// every column, the last of which may be missing. Panels are as long as `x`.
pub(super) fn add<B: Wide<Float = f32>, K: Kernel<Float = f32>>(
    panels: &[B],
    x: &[f32],
    to: &mut [f32],
) {
    let size = x.len() * K::COLS;
    #[cfg(target_arch = "x86_64")]
    if K::COLS == 16
        && matches!(K::LEVEL, Level::Avx2 | Level::Avx512)
        && let Some((bits, is_f16)) = half_bits(panels)
    {
        let mut sums = [0.0; 64];
        let mut four = bits.chunks_exact(4 * size);
        let mut at = 0;
        for panels in &mut four {
            // SAFETY: the kernel of these levels is used only on processors that have them.
            unsafe { avx2::<4>(panels, is_f16, x, &mut sums) };
            add_to(to, at, &sums);
            at += 64;
        }
        for panels in four.remainder().chunks_exact(size) {
            // SAFETY: as above.
            unsafe { avx2::<1>(panels, is_f16, x, &mut sums) };
            add_to(to, at, &sums[..16]);
            at += 16;
        }
        return;
    }
    const MOST: usize = 64;
    let mut wide = [0.0; MOST];
    let mut sums = [0.0; MOST];
    for (i, panel) in panels.chunks_exact(size).enumerate() {
        sums[..K::COLS].fill(0.0);
        for (step, &x) in panel.chunks_exact(K::COLS).zip(x) {
            widen(K::LEVEL, step, &mut wide[..K::COLS]);
            for (sum, w) in sums.iter_mut().zip(&wide[..K::COLS]) {
                *sum = x.mul_add(*w, *sum);
            }
        }
        add_to(to, i * K::COLS, &sums[..K::COLS]);
    }
}

fn add_to(to: &mut [f32], at: usize, sums: &[f32]) {
    for (to, sum) in to[at..].iter_mut().zip(sums) {
        *to += sum;
    }
}

/// The bits of halves, where that is what they are, and whether they are `f16` and not `bf16`.
#[cfg(target_arch = "x86_64")]
fn half_bits<B: Wide>(panels: &[B]) -> Option<(&[u16], bool)> {
    use std::any::TypeId;
    let is_f16 = TypeId::of::<B>() == TypeId::of::<half::f16>();
    let is_bf16 = TypeId::of::<B>() == TypeId::of::<half::bf16>();
    let bits = (is_f16 || is_bf16).then(|| bytemuck::try_cast_slice(panels).ok());
    Some((bits??, is_f16))
}

/// The sums of `P` panels of 16 columns.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn avx2<const P: usize>(panels: &[u16], is_f16: bool, x: &[f32], to: &mut [f32; 64]) {
    if is_f16 {
        avx2_of::<P, true>(panels, x, to);
    } else {
        avx2_of::<P, false>(panels, x, to);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn avx2_of<const P: usize, const F16: bool>(panels: &[u16], x: &[f32], to: &mut [f32; 64]) {
    use std::arch::x86_64::{
        _mm_loadu_si128, _mm256_castsi256_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps,
        _mm256_fmadd_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_slli_epi32, _mm256_storeu_ps,
    };
    const { assert!(P <= 4) };
    let size = x.len() * 16;
    assert!(panels.len() >= P * size);
    let mut sums = [[_mm256_setzero_ps(); 2]; P];
    for (step, &x) in x.iter().enumerate() {
        let x = _mm256_set1_ps(x);
        for (p, sums) in sums.iter_mut().enumerate() {
            for (v, sum) in sums.iter_mut().enumerate() {
                // SAFETY: step `step` of panel `p` has 16 elements.
                let bits = unsafe {
                    let at = panels.as_ptr().add(p * size + step * 16 + v * 8);
                    _mm_loadu_si128(at.cast())
                };
                let w = if F16 {
                    _mm256_cvtph_ps(bits)
                } else {
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits)))
                };
                *sum = _mm256_fmadd_ps(x, w, *sum);
            }
        }
    }
    for (p, sums) in sums.iter().enumerate() {
        for (v, sum) in sums.iter().enumerate() {
            // SAFETY: four panels of 16 columns fit.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr().add(p * 16 + v * 8), *sum) };
        }
    }
}
