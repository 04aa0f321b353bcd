//! Scores and weighted sums with accumulators in registers: the code compiled from the portable loops spills them. The
//! operations and their order are those of the portable loops.
#![expect(
    clippy::needless_range_loop,
    reason = "adapters of iterators are calls here, for which every register is saved"
)]
#![expect(unsafe_code, reason = "intrinsics that the level in use has")]

use std::arch::x86_64::{
    _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps,
};

use super::{BLOCK_POSITIONS, LANES};
use crate::cpu::simd::{Isa, Level};

/// Returns true if a task compiled for `I` may use AVX2: it then runs on a processor that has it.
#[inline(always)]
fn available<I: Isa>() -> bool {
    matches!(I::LEVEL, Level::Avx2 | Level::Avx512)
}

/// Elements of a register.
const WIDTH: usize = 8;
const VECTORS: usize = LANES / WIDTH;

/// Computes the scores of `R` queries with the keys of a block. Returns false, and does nothing, without AVX2.
#[inline(always)]
pub(super) fn score<I: Isa, const R: usize>(
    q: &[f32],
    dim: usize,
    k: &[f32],
    scores: &mut [f32],
) -> bool {
    if !available::<I>() {
        return false;
    }
    assert!(
        q.len() >= R * dim
            && k.len() <= BLOCK_POSITIONS * dim
            && scores.len() >= R * BLOCK_POSITIONS
    );
    for (panel, k) in k.chunks_exact(dim * LANES).enumerate() {
        // SAFETY: both levels have AVX2 and FMA; a panel has `LANES` keys of `dim` elements, there are `R` queries of
        // as many, and a block of scores is long enough for those of a panel.
        unsafe {
            let mut sums = [[_mm256_setzero_ps(); VECTORS]; R];
            for d in 0..dim {
                let at = k.as_ptr().add(d * LANES);
                let k: [_; VECTORS] = [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(WIDTH))];
                for r in 0..R {
                    let q = _mm256_set1_ps(*q.as_ptr().add(r * dim + d));
                    for v in 0..VECTORS {
                        sums[r][v] = _mm256_fmadd_ps(q, k[v], sums[r][v]);
                    }
                }
            }
            for r in 0..R {
                for v in 0..VECTORS {
                    let to = scores
                        .as_mut_ptr()
                        .add(r * BLOCK_POSITIONS + panel * LANES + v * WIDTH);
                    _mm256_storeu_ps(to, sums[r][v]);
                }
            }
        }
    }
    true
}

/// Adds the weighted values of a block to the sums of `R` queries, for the elements of a head that fill whole lanes, and
/// returns their number.
#[inline(always)]
pub(super) fn mix<I: Isa, const R: usize>(
    weights: &[f32],
    v: &[f32],
    dim: usize,
    sums: &mut [f32],
) -> usize {
    if !available::<I>() {
        return 0;
    }
    let positions = v.len() / dim;
    assert!(
        positions <= BLOCK_POSITIONS
            && weights.len() >= R * BLOCK_POSITIONS
            && sums.len() >= R * dim
    );
    let mut d = 0;
    while d + LANES <= dim {
        // SAFETY: both levels have AVX2 and FMA; every row of values and sums has `LANES` elements from `d` on, and
        // every query has a weight for every position of a block.
        unsafe {
            let mut lanes = [[_mm256_setzero_ps(); VECTORS]; R];
            for r in 0..R {
                for i in 0..VECTORS {
                    lanes[r][i] = _mm256_loadu_ps(sums.as_ptr().add(r * dim + d + i * WIDTH));
                }
            }
            for j in 0..positions {
                let at = v.as_ptr().add(j * dim + d);
                let v: [_; VECTORS] = [_mm256_loadu_ps(at), _mm256_loadu_ps(at.add(WIDTH))];
                for r in 0..R {
                    let w = _mm256_set1_ps(*weights.as_ptr().add(r * BLOCK_POSITIONS + j));
                    for i in 0..VECTORS {
                        lanes[r][i] = _mm256_fmadd_ps(w, v[i], lanes[r][i]);
                    }
                }
            }
            for r in 0..R {
                for i in 0..VECTORS {
                    let to = sums.as_mut_ptr().add(r * dim + d + i * WIDTH);
                    _mm256_storeu_ps(to, lanes[r][i]);
                }
            }
        }
        d += LANES;
    }
    d
}
