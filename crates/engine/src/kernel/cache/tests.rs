//! Tests of 8-bit caches.

use super::*;
use crate::quant::{self, BlockFormat};

fn numbers(count: usize, mut seed: u64) -> Vec<f32> {
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Rounds to `q8_0` and back; the last block of a head may be partial.
fn rounded(x: &[f32], dim: usize) -> Vec<f32> {
    let mut all = Vec::new();
    for head in x.chunks_exact(dim) {
        let mut padded = head.to_vec();
        padded.resize(dim.next_multiple_of(32), 0.0);
        let blocks = quant::quantize(BlockFormat::Q8_0, &padded).unwrap();
        quant::dequantize(BlockFormat::Q8_0, &blocks, &mut padded).unwrap();
        all.extend(&padded[..dim]);
    }
    all
}

const HEADS: usize = 2;
const GROUP: usize = 3;
const LEN: usize = 150;

/// Attention of the last queries of a sequence.
fn attend(cache: &KvCache, q: &[f32], dim: usize, window: Option<usize>) -> Vec<f32> {
    let count = q.len() / (HEADS * GROUP * dim);
    let mut to = vec![0.0; q.len()];
    let a = Attend {
        q,
        first: LEN - count,
        len: LEN,
        scale: 1.0 / (dim as f32).sqrt(),
        soft_cap: None,
        window,
        causal: true,
    };
    cache.attend(&a, &mut to);
    to
}

#[test]
fn eight_bits_round_as_q8_0_for_any_head_size() {
    for dim in [8, 32, 48, 64, 80] {
        let k = numbers(LEN * HEADS * dim, 1);
        let v = numbers(LEN * HEADS * dim, 2);
        let mut narrow = KvCache::new(CacheType::Q8_0, HEADS, dim, LEN).unwrap();
        let mut wide = KvCache::new(CacheType::F32, HEADS, dim, LEN).unwrap();
        // In several writes, some positions twice.
        let row = HEADS * dim;
        narrow.write(0, &k[..100 * row], &k[..100 * row]);
        narrow.write(0, &k[..70 * row], &v[..70 * row]);
        narrow.write(70, &k[70 * row..], &v[70 * row..]);
        wide.write(0, &rounded(&k, dim), &rounded(&v, dim));
        for (count, window) in [(1, None), (7, None), (LEN, None), (9, Some(20))] {
            let q = numbers(count * HEADS * GROUP * dim, 3);
            let expected = attend(&wide, &q, dim, window);
            assert_eq!(attend(&narrow, &q, dim, window), expected, "heads of {dim}");
        }
    }
}

#[test]
fn eight_bits_stay_within_the_error_bound_of_the_format() {
    let dim = 64;
    let k = numbers(LEN * HEADS * dim, 4);
    let v = numbers(LEN * HEADS * dim, 5);
    let q = numbers(5 * HEADS * GROUP * dim, 6);
    let run = |kind| {
        let mut cache = KvCache::new(kind, HEADS, dim, LEN).unwrap();
        cache.write(0, &k, &v);
        assert_eq!(
            cache.bytes(),
            2 * HEADS * cache.capacity() * kind.row_bytes(dim)
        );
        attend(&cache, &q, dim, None)
    };
    // Half of 1/127, and the rounding of the scale to 11 bits, for values below 1.
    let step = 0.5 / 127.0 + 1.0 / 2048.0;
    // Bounds the error of a score, then of its weight, then of a sum of values below 1.
    let longest = q
        .chunks_exact(dim)
        .map(|q| q.iter().map(|v| v.abs()).sum::<f32>());
    let score = longest.fold(0.0, f32::max) * step / (dim as f32).sqrt();
    let bound = step + ((2.0 * score).exp() - 1.0);
    let off = run(CacheType::F32)
        .iter()
        .zip(run(CacheType::Q8_0))
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max);
    assert!(off <= bound, "{off} exceeds {bound}");
    assert!(off > 0.0, "nothing was rounded");
    assert_eq!(CacheType::Q8_0.row_bytes(64), 68);
    assert_eq!(CacheType::Q8_0.row_bytes(48), 52);
}

#[test]
fn a_non_finite_value_makes_its_group_nan_and_no_other() {
    for wrong in [f32::NAN, f32::INFINITY] {
        let mut cache = KvCache::new(CacheType::Q8_0, 1, 64, 4).unwrap();
        let mut v = vec![1.0; 64];
        v[8] = wrong;
        cache.write(0, &[0.5; 64], &v);
        let mut to = vec![0.0; 64];
        let a = Attend {
            q: &[1.0; 64],
            first: 0,
            len: 1,
            scale: 1.0,
            soft_cap: None,
            window: None,
            causal: true,
        };
        cache.attend(&a, &mut to);
        assert!(to[..32].iter().all(|x| x.is_nan()), "{to:?}");
        assert!(to[32..].iter().all(|&x| (x - 1.0).abs() < 1e-3), "{to:?}");
    }
}

#[test]
fn a_cache_beyond_the_address_space_is_an_error() {
    for kind in CacheType::ALL {
        for positions in [usize::MAX, usize::MAX / 12 / 128] {
            assert!(KvCache::new(kind, 2, 64, positions).is_err(), "{kind:?}");
        }
    }
}
