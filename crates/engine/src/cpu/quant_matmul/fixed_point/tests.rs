use half::{bf16, f16};

use super::*;
use crate::cpu::gemm::Matrix;
use crate::cpu::pool::DisjointSlice;

/// Pseudo-random numbers from -1 to 1, some of them much smaller, with runs of zeros.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |i: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let x = (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0;
        match state % 11 {
            0 => x * 1e-6,
            1 => x * 0.01,
            _ if i / 300 % 5 == 3 => 0.0,
            _ => x,
        }
    };
    (0..count).map(next).collect()
}

fn pack<B: FloatElement<Float = f32>>(weights: &[f32], rows: usize, cols: usize) -> GemmPanels<B> {
    let halves: Vec<B> = weights.iter().map(|&w| B::narrow(w)).collect();
    GemmPanels::new_at(Level::Avx2, Matrix::contiguous(&halves[..], rows, cols).t()).unwrap()
}

fn product<B: FloatElement<Float = f32>>(level: Level, x: &[f32], b: &GemmPanels<B>) -> Vec<f32> {
    let mut fixed_point_x = FixedPointActivations::default();
    assert!(fixed_point_x.set(x, KBlocking::of(b)) && suits(b));
    let (vectors, rows) = (fixed_point_x.rows, b.cols());
    let mut to = vec![f32::NAN; vectors * rows];
    let all = &DisjointSlice::new(&mut to);
    let output = SharedOutput { all, vectors, rows };
    // In ranges, as tasks do.
    for first in (0..rows).step_by(2 * TILE_COLS) {
        let range = first..rows.min(first + 2 * TILE_COLS);
        multiply(level, b, &fixed_point_x, range, &output);
    }
    to
}

/// Compares with sums in `f64`, and bit by bit with the loops without intrinsics. Weights of at least `exact` times the
/// largest magnitude in their block are exact.
fn check<B: FloatElement<Float = f32>>(vectors: usize, cols: usize, rows: usize, exact: f64) {
    let x = numbers(vectors * cols, 3);
    let b = pack::<B>(&numbers(rows * cols, 5), rows, cols);
    let weights: Vec<f32> = numbers(rows * cols, 5)
        .iter()
        .map(|&w| B::narrow(w).widen())
        .collect();
    let actual = product(Level::Avx2, &x, &b);
    let plain = product(Level::Scalar, &x, &b);
    let blocking = KBlocking::of(&b);
    for (v, x) in x.chunks(cols).enumerate() {
        for (r, w) in weights.chunks(cols).enumerate() {
            let (mut sum, mut size, mut bound) = (0.0, 0.0, 0.0);
            for block in 0..blocking.depth_blocks() {
                let steps = blocking.steps(block);
                for (x, w) in x[steps.clone()]
                    .chunks(BLOCK_LEN)
                    .zip(w[steps].chunks(BLOCK_LEN))
                {
                    let max = |n: &[f32]| f64::from(n.iter().fold(0.0_f32, |t, n| t.max(n.abs())));
                    let (max_x, max_w) = (max(x), max(w));
                    for (&x, &w) in x.iter().zip(w) {
                        let (x, w) = (f64::from(x), f64::from(w));
                        let off_x = max_x / 8190.0 * 1.001;
                        let off_w = if w.abs() >= max_w * exact {
                            0.0
                        } else {
                            max_w / 4096.0
                        };
                        sum += x * w;
                        size += (x.abs() + off_x) * (w.abs() + off_w);
                        bound += x.abs() * off_w + (w.abs() + off_w) * off_x;
                    }
                }
            }
            // The sum of a block is rounded three times, and the total once per block.
            bound += size * (blocking.row_blocks() + 3) as f64 * f64::from(f32::EPSILON) / 2.0;
            let (a, p) = (actual[v * rows + r], plain[v * rows + r]);
            assert_eq!(a.to_bits(), p.to_bits(), "{vectors} {cols} {rows}: {a} {p}");
            let off = (f64::from(a) - sum).abs();
            assert!(
                off <= bound,
                "{vectors} {cols} {rows}: {a} {sum}, off by {off} of {bound}"
            );
        }
    }
}

#[test]
fn awkward_sizes_stay_within_the_rounding_error_and_match_the_portable_loops() {
    if !Level::Avx2.is_available() {
        return;
    }
    let cols = [1, 2, 3, 31, 127, 128, 129, 383, 385, 576, 769, 1153];
    let rows = [1, 15, 16, 17, 37, 97];
    for (i, vectors) in [1, 5, 6, 7, 13, 24, 31].into_iter().enumerate() {
        for (j, cols) in cols.into_iter().enumerate() {
            let rows = rows[(i + j) % rows.len()];
            check::<f16>(vectors, cols, rows, 0.5);
            check::<bf16>(vectors, cols, rows, 1.0 / 16.0);
        }
    }
    // More rows than are multiplied with a panel in one pass.
    check::<f16>(L2_ROWS + 5, 130, 19, 0.5);
}

#[test]
fn the_largest_integers_do_not_overflow() {
    if !Level::Avx2.is_available() {
        return;
    }
    // The largest significand of an `f16`, in whole blocks.
    let (vectors, cols, rows) = (7, 3 * BLOCK_LEN, 17);
    let (x, w) = (vec![-3.0; vectors * cols], vec![2047.0; rows * cols]);
    let expected = -3.0 * 2047.0 * cols as f32;
    for level in [Level::Scalar, Level::Avx2] {
        for y in product(level, &x, &pack::<f16>(&w, rows, cols)) {
            assert!((y / expected - 1.0).abs() < 1e-6, "{y} {expected}");
        }
    }
}

#[test]
fn integers_of_few_bits_are_exact() {
    if !Level::Avx2.is_available() {
        return;
    }
    let (vectors, cols, rows) = (9, 200, 21);
    // Multiples of 4095 / 15, including the largest, so that the scale of activations is 1.
    let x: Vec<f32> = (0..vectors * cols)
        .map(|i| 273.0 * ((i * 7 % 31) as f32 - 15.0))
        .collect();
    let w: Vec<f32> = (0..rows * cols)
        .map(|i| (i * 5 % 23) as f32 - 11.0)
        .collect();
    let y = product(Level::Avx2, &x, &pack::<bf16>(&w, rows, cols));
    for (v, x) in x.chunks(cols).enumerate() {
        for (r, w) in w.chunks(cols).enumerate() {
            let sum: f64 = x
                .iter()
                .zip(w)
                .map(|(x, w)| f64::from(*x) * f64::from(*w))
                .sum();
            assert_eq!(f64::from(y[v * rows + r]), sum);
        }
    }
}

#[test]
fn values_out_of_range_are_found() {
    let wild = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        1e-36,
        -1e-39,
        2e30,
    ];
    for k in [1, 2, 129, 500] {
        let blocking = KBlocking {
            cols: k,
            depth: k.next_multiple_of(4).min(384),
        };
        let zeros = vec![0.0; 8 * k];
        assert!(FixedPointActivations::default().set(&zeros, blocking));
        for bad in wild {
            for at in [0, 7 * k - 1, 8 * k - 1] {
                let mut x = zeros.clone();
                x[at] = bad;
                assert!(
                    !FixedPointActivations::default().set(&x, blocking),
                    "{bad} at {at}"
                );
            }
        }
        if !Level::Avx2.is_available() {
            continue;
        }
        assert!(suits(&pack::<bf16>(&zeros, 8, k)) && suits(&pack::<f16>(&zeros, 8, k)));
        for bad in wild {
            let mut w = zeros.clone();
            w[7 * k - 1] = bad;
            assert!(!suits(&pack::<bf16>(&w, 8, k)), "{bad}");
            // The smallest of `f16` are in range, or 0; the largest are infinite.
            assert_eq!(suits(&pack::<f16>(&w, 8, k)), bad.abs() < 1.0, "{bad}");
        }
        let mut w = zeros.clone();
        w[k / 2] = f16::from_bits(1).to_f32();
        assert!(suits(&pack::<f16>(&w, 8, k)));
    }
}
