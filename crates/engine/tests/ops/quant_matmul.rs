//! `quant_matmul` against products of the dequantised weights in `f64`.

use bessemer::quant::{self, BlockFormat, Precision, Product, QuantMatrix, Weights};
use bessemer::{DType, Error, Tensor, pool, simd};
use bessemer_testing::Array;
use bessemer_testing::layout::agree;
use bessemer_testing::tolerance::bound;

/// Pseudo-random values between -1 and 1.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    };
    (0..count).map(next).collect()
}

fn matrix(format: BlockFormat, rows: usize, cols: usize) -> QuantMatrix {
    let blocks = quant::quantize(format, &numbers(rows * cols, 7)).unwrap();
    QuantMatrix::from_bytes(format, [rows, cols], blocks).unwrap()
}

fn product(x: &[f32], matrix: &QuantMatrix, precision: Precision) -> Vec<f32> {
    let mut to = vec![f32::NAN; x.len() / matrix.cols() * matrix.rows()];
    let products = &mut [Product {
        matrix,
        to: &mut to,
    }];
    quant::multiply(x, precision, products).unwrap();
    to
}

/// The reference for an element of a product.
#[derive(Clone, Copy, Debug, Default)]
struct Truth {
    /// Product with the exact activations.
    exact: f64,
    /// Product with activations rounded to the nearest 127th of the largest of their block of 32.
    rounded: f64,
    /// Maximum error of this rounding: half a step of each activation, with the sign of its weight.
    bound: f64,
    /// Standard deviation of this rounding: the error is uniform between -½ and ½ steps, with variance 1/12.
    deviation: f64,
}

fn reference(x: &[f32], matrix: &QuantMatrix) -> Vec<Truth> {
    let cols = matrix.cols();
    let mut weights = vec![0.0; cols];
    let mut all = vec![Truth::default(); x.len() / cols * matrix.rows()];
    for r in 0..matrix.rows() {
        matrix.row(r, &mut weights);
        for (v, x) in x.chunks(cols).enumerate() {
            let truth = &mut all[v * matrix.rows() + r];
            let mut variance = 0.0_f64;
            for (w, x) in weights.chunks(32).zip(x.chunks(32)) {
                let top = x.iter().fold(0.0_f32, |top, v| top.max(v.abs()));
                let inverse = if top == 0.0 { 0.0 } else { 127.0 / top };
                let step = f64::from(top / 127.0);
                for (&w, &x) in w.iter().zip(x) {
                    let whole = f64::from((x * inverse).round_ties_even());
                    let w = f64::from(w);
                    truth.exact += w * f64::from(x);
                    truth.rounded += w * step * whole;
                    truth.bound += w.abs() * step / 2.0;
                    variance += (w * step).powi(2) / 12.0;
                }
            }
            truth.deviation = variance.sqrt();
        }
    }
    all
}

/// Compares all elements of a product; the lengths too.
#[track_caller]
fn compare(actual: &[f32], truth: &[Truth], right: impl Fn(f64, Truth) -> bool, what: &str) {
    assert_eq!(actual.len(), truth.len(), "{what}");
    for (i, (&a, &t)) in actual.iter().zip(truth).enumerate() {
        assert!(right(a.into(), t), "{what}: element {i} is {a}, not {t:?}");
    }
}

#[test]
fn exact_precision_matches_dequantised_weights() {
    for format in BlockFormat::ALL {
        // A full and a partial panel, more than one tile, few and many vectors.
        for (rows, vectors) in [(1, 1), (13, 3), (70, 9), (8, 40)] {
            let (cols, matrix) = (512, matrix(format, rows, 512));
            let x = numbers(vectors * cols, 3);
            let actual = product(&x, &matrix, Precision::Exact);
            let right = |a: f64, t: Truth| (a - t.exact).abs() <= t.bound * bound::QUANT_SUM_SHARE;
            let what = format!("{format} {rows}x{vectors}");
            compare(&actual, &reference(&x, &matrix), right, &what);
        }
    }
}

#[test]
fn fast_precision_only_adds_activation_rounding() {
    for format in BlockFormat::ALL {
        let (mut squares, mut count) = (0.0, 0);
        for (rows, vectors) in [(1, 1), (13, 3), (40, 9), (40, 19)] {
            let matrix = matrix(format, rows, 512);
            let x = numbers(vectors * 512, 5);
            let truth = reference(&x, &matrix);
            for matrix in [matrix.clone(), matrix.repacked()] {
                let actual = product(&x, &matrix, Precision::Fast);
                let what = format!("{format} {rows}x{vectors}");
                // The same integers: the remaining error is of sums in f32. One activation of 512 that is off by one is
                // twice as much.
                let right =
                    |a: f64, t: Truth| (a - t.rounded).abs() <= t.bound * bound::QUANT_SUM_SHARE;
                compare(&actual, &truth, right, &what);
                // The error of rounding is one standard deviation, that of truncation would be two.
                for (&a, t) in actual.iter().zip(&truth) {
                    squares += ((f64::from(a) - t.exact) / t.deviation).powi(2);
                    count += 1;
                }
            }
        }
        let deviations = (squares / f64::from(count)).sqrt();
        assert!((0.85..1.15).contains(&deviations), "{format}: {deviations}");
    }
}

#[test]
fn bits_do_not_depend_on_batch_size_or_threads() {
    for format in BlockFormat::ALL {
        let matrix = matrix(format, 200, 512).repacked();
        let mut x = numbers(19 * 512, 11);
        // The maximum magnitude of rounded activations.
        x[..512].fill(1.0);
        x[512..1024].fill(-1.0);
        let all = product(&x, &matrix, Precision::Fast);
        let threads = pool::threads();
        for (i, x) in x.chunks(512).enumerate() {
            pool::set_threads(if i % 2 == 0 { 1 } else { threads });
            let one = product(x, &matrix, Precision::Fast);
            assert_eq!(one, all[i * 200..(i + 1) * 200], "{format}");
        }
        pool::set_threads(threads);
    }
}

#[test]
fn repacked_weights_match_unpacked_rows() {
    for format in BlockFormat::ALL {
        let plain = matrix(format, 21, 768);
        let x = numbers(5 * 768, 13);
        let (a, b) = (
            product(&x, &plain, Precision::Fast),
            product(&x, &plain.repacked(), Precision::Fast),
        );
        assert_eq!((a.len(), b.len()), (5 * 21, 5 * 21));
        for (a, b) in a.iter().zip(b) {
            // The same integers; floats are summed in another order.
            assert!((a - b).abs() < bound::QUANT_ORDER, "{format}: {a} {b}");
        }
    }
}

#[test]
fn float_weights_are_supported() {
    let values = numbers(9 * 40, 17);
    let wide: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let half = |f: fn(f32) -> [u8; 2]| values.iter().flat_map(|&v| f(v)).collect::<Vec<u8>>();
    let f16 = half(|v| half::f16::from_f32(v).to_le_bytes());
    let bf16 = half(|v| half::bf16::from_f32(v).to_le_bytes());
    for (weights, bytes) in [
        (Weights::F32, wide),
        (Weights::F16, f16),
        (Weights::BF16, bf16),
    ] {
        let matrix = QuantMatrix::from_bytes(weights, [9, 40], bytes).unwrap();
        for vectors in [1, 8] {
            let x = numbers(vectors * 40, 19);
            for precision in [Precision::Exact, Precision::Fast] {
                let actual = product(&x, &matrix, precision);
                let right =
                    |a: f64, t: Truth| (a - t.exact).abs() <= t.bound * bound::QUANT_SUM_SHARE;
                compare(
                    &actual,
                    &reference(&x, &matrix),
                    right,
                    &format!("{weights}"),
                );
            }
        }
    }
}

/// Rows of half-precision weights, repacked.
fn half_matrix(weights: Weights, rows: usize, values: &[f32]) -> QuantMatrix {
    let half = |&v: &f32| match weights {
        Weights::F16 => half::f16::from_f32(v).to_le_bytes(),
        _ => half::bf16::from_f32(v).to_le_bytes(),
    };
    let shape = [rows, values.len() / rows];
    let bytes = values.iter().flat_map(half).collect();
    let matrix = QuantMatrix::from_bytes(weights, shape, bytes).unwrap();
    matrix.repacked()
}

/// The product vector by vector, for which half-precision weights are multiplied in `f32`.
fn one_by_one(x: &[f32], matrix: &QuantMatrix) -> Vec<f32> {
    let vectors = x.chunks(matrix.cols());
    vectors
        .flat_map(|x| product(x, matrix, Precision::Fast))
        .collect()
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn half_weights_in_fixed_point_stay_within_16_bit_rounding() {
    let threads = pool::threads();
    for weights in [Weights::F16, Weights::BF16] {
        let matrix = half_matrix(weights, 83, &numbers(83 * 700, 17));
        let x = numbers(70 * 700, 19);
        let actual = product(&x, &matrix, Precision::Fast);
        let truth = reference(&x, &matrix);
        // The maximum of a block is about 1, so that the errors of both factors are about equal.
        let right = |a: f64, t: Truth| (a - t.exact).abs() <= t.bound * 254.0 / 2000.0;
        compare(&actual, &truth, right, &format!("{weights}"));
        // The bits do not depend on the number of vectors, if it is large enough, or of threads.
        pool::set_threads(1);
        let some = product(&x[..31 * 700], &matrix, Precision::Fast);
        assert_eq!(bits(&some), bits(&actual[..31 * 83]), "{weights}");
        pool::set_threads(threads);
        // Exact precision uses `f32`.
        let alone = one_by_one(&x, &matrix);
        let mut fine = vec![0.0; alone.len()];
        let products = &mut [Product {
            matrix: &matrix,
            to: &mut fine,
        }];
        quant::multiply_fine(&x, products).unwrap();
        assert_eq!(bits(&fine), bits(&alone), "{weights}");
    }
}

#[test]
fn values_out_of_fixed_point_range_use_f32() {
    let (vectors, cols, rows) = (33, 300, 20);
    let (x, w) = (numbers(vectors * cols, 3), numbers(rows * cols, 5));
    for weights in [Weights::F16, Weights::BF16] {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e38] {
            let (mut bad_x, mut bad_w) = (x.clone(), w.clone());
            (bad_x[5 * cols + 7], bad_w[3 * cols + 299]) = (bad, bad);
            for (x, w) in [(&bad_x, &w), (&x, &bad_w), (&bad_x, &bad_w)] {
                let matrix = half_matrix(weights, rows, w);
                let all = product(x, &matrix, Precision::Fast);
                let alone = one_by_one(x, &matrix);
                assert_eq!(bits(&all), bits(&alone), "{weights} {bad}");
                assert!(!all.iter().all(|y| y.abs() < 1e30), "{weights} {bad}");
            }
        }
        // So small that scales would be subnormal or zero.
        let small: Vec<f32> = x.iter().map(|x| x * 1e-36).collect();
        let matrix = half_matrix(weights, rows, &w);
        let all = product(&small, &matrix, Precision::Fast);
        assert_eq!(bits(&all), bits(&one_by_one(&small, &matrix)), "{weights}");
        assert!(all.iter().any(|&y| y != 0.0));
    }
}

#[test]
fn grouped_products_match_single_calls() {
    let (a, b) = (matrix(BlockFormat::Q4_0, 20, 256).repacked(), {
        let bytes = numbers(30 * 256, 3);
        let bytes = bytes.iter().flat_map(|v| v.to_le_bytes()).collect();
        QuantMatrix::from_bytes(Weights::F32, [30, 256], bytes).unwrap()
    });
    let x = numbers(2 * 256, 23);
    let (mut to_a, mut to_b) = (vec![0.0; 40], vec![0.0; 60]);
    let products = &mut [
        Product {
            matrix: &a,
            to: &mut to_a,
        },
        Product {
            matrix: &b,
            to: &mut to_b,
        },
    ];
    quant::multiply(&x, Precision::Fast, products).unwrap();
    assert_eq!(to_a, product(&x, &a, Precision::Fast));
    assert_eq!(to_b, product(&x, &b, Precision::Fast));
}

#[test]
fn nan_and_infinity_propagate() {
    let matrix = matrix(BlockFormat::Q4_0, 8, 64).repacked();
    for bad in [f32::NAN, f32::INFINITY] {
        let mut x = numbers(64, 29);
        x[40] = bad;
        for precision in [Precision::Exact, Precision::Fast] {
            let y = product(&x, &matrix, precision);
            assert!(y.iter().all(|v| !v.is_finite()), "{precision:?} {y:?}");
        }
    }
}

#[test]
fn every_simd_level_gives_the_same_integers() {
    let before = simd::level();
    let matrix = matrix(BlockFormat::Q6K, 9, 256);
    let x = numbers(256, 31);
    let expected = reference(&x, &matrix);
    for level in simd::Level::ALL.into_iter().filter(|&l| simd::set_level(l)) {
        let y = product(&x, &matrix, Precision::Fast);
        let right = |a: f64, t: Truth| (a - t.rounded).abs() <= t.bound * bound::QUANT_SUM_SHARE;
        compare(&y, &expected, right, &format!("{level:?}"));
    }
    simd::set_level(before);
}

/// All weight formats.
fn formats() -> Vec<Weights> {
    let plain = [Weights::F32, Weights::F16, Weights::BF16];
    let blocks = BlockFormat::ALL.into_iter().map(Weights::Block);
    plain.into_iter().chain(blocks).collect()
}

/// Offsets of the half-precision scales in a block.
fn scales(format: BlockFormat) -> &'static [usize] {
    match format {
        BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 => &[0],
        BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4K | BlockFormat::Q5K => &[0, 2],
        BlockFormat::Q2K => &[80, 82],
        BlockFormat::Q3K => &[108],
        BlockFormat::Q6K => &[208],
    }
}

/// A matrix with arbitrary bits and finite scales, beyond what a quantiser produces.
fn any_matrix(weights: Weights, [rows, cols]: [usize; 2], seed: u64) -> QuantMatrix {
    let values = numbers(rows * cols, seed);
    let half = |v: f32| half::f16::from_f32(v).to_le_bytes();
    let bytes = match weights {
        Weights::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Weights::F16 => values.iter().flat_map(|&v| half(v)).collect(),
        Weights::BF16 => values
            .iter()
            .flat_map(|&v| half::bf16::from_f32(v).to_le_bytes())
            .collect(),
        Weights::Block(format) => {
            let len = format.row_bytes(cols).unwrap() * rows;
            let any = numbers(len + 4, seed);
            let mut bytes: Vec<u8> = any[..len].iter().map(|v| (v * 128.0) as i8 as u8).collect();
            for (block, &v) in bytes.chunks_mut(format.block_bytes()).zip(&any) {
                for &at in scales(format) {
                    block[at..at + 2].copy_from_slice(&half(v / (at + 3) as f32));
                }
            }
            bytes
        }
    };
    QuantMatrix::from_bytes(weights, [rows, cols], bytes).unwrap()
}

fn rows_of(matrix: &QuantMatrix) -> Vec<f32> {
    let mut all = vec![0.0; matrix.rows() * matrix.cols()];
    for (i, row) in all.chunks_mut(matrix.cols()).enumerate() {
        matrix.row(i, row);
    }
    all
}

/// Compares the op with sums in `f64`, within the tolerance of matmul.
fn judge(matrix: &QuantMatrix, vectors: usize, seed: u64) {
    let (rows, cols) = (matrix.rows(), matrix.cols());
    let x = numbers(vectors * cols, seed);
    let weights = rows_of(matrix);
    let sum = |i: &[usize], f: fn(f64) -> f64| {
        let pairs = x[i[0] * cols..][..cols].iter().zip(&weights[i[1] * cols..]);
        pairs.map(|(&x, &w)| f(f64::from(x) * f64::from(w))).sum()
    };
    let truth = Array::from_float_fn(DType::F32, &[vectors, rows], |i| sum(i, |p| p));
    let size = Array::from_float_fn(DType::F32, &[vectors, rows], |i| sum(i, f64::abs));
    let y = Tensor::from_slice(&x, [vectors, cols]).quant_matmul(matrix);
    let outcome = agree("matmul", cols, &y, &truth, Some(&size));
    if let Err(error) = outcome {
        panic!("{matrix:?} by {vectors}: {error}");
    }
}

#[test]
fn unit_vectors_reproduce_the_weights_of_every_format() {
    for weights in formats() {
        let cols = match weights {
            Weights::Block(_) => 512,
            _ => 45,
        };
        let matrix = any_matrix(weights, [19, cols], 41);
        let expected = rows_of(&matrix);
        // Products with unit vectors are the weights, apart from the sign of zero: all of them by tiles, some by rows.
        let columns: Vec<usize> = (0..4).map(|i| (i * 167 + 11) % cols).collect();
        for picks in [(0..cols).collect(), columns] {
            let mut x = vec![0.0_f32; picks.len() * cols];
            for (x, &pick) in x.chunks_mut(cols).zip(&picks) {
                x[pick] = 1.0;
            }
            let y = Tensor::from_slice(&x, [picks.len(), cols]).quant_matmul(&matrix);
            let y = y.to_vec::<f32>().unwrap();
            assert_eq!(y.len(), 19 * picks.len());
            for (y, &pick) in y.chunks(19).zip(&picks) {
                for (row, &y) in y.iter().enumerate() {
                    let w = expected[row * cols + pick];
                    let same = y.to_bits() == w.to_bits() || (y == 0.0 && w == 0.0);
                    assert!(same, "{weights} row {row}, column {pick}: {y} {w}");
                }
            }
        }
    }
}

#[test]
fn the_op_is_right_for_every_format_and_number_of_vectors() {
    for weights in formats() {
        let cols = match weights {
            Weights::Block(_) => 512,
            _ => 301,
        };
        let matrix = any_matrix(weights, [37, cols], 43);
        for vectors in [1, 2, 3, 4, 5, 8, 16, 17, 33, 64, 70] {
            judge(&matrix, vectors, 47);
        }
    }
}

#[test]
fn split_k_multi_row_and_tiled_kernels_are_right() {
    // Columns split across SIMD-groups; enough rows for full threadgroups, with a remainder; one row; many tiles.
    let cases = [
        (1, 4096, 1),
        (70, 4096, 3),
        (5, 8192, 2),
        (2100, 64, 1),
        (2100, 64, 4),
        (2100, 64, 9),
        (1030, 96, 40),
        (33, 64, 200),
    ];
    for (rows, cols, vectors) in cases {
        judge(
            &any_matrix(BlockFormat::Q8_0.into(), [rows, cols], 53),
            vectors,
            59,
        );
    }
}

#[test]
fn nonfinite_values_affect_only_their_vector() {
    let matrix = matrix(BlockFormat::Q5_1, 21, 64);
    for vectors in [4, 9] {
        let mut x = numbers(vectors * 64, 61);
        (x[40], x[2 * 64 + 63]) = (f32::NAN, f32::INFINITY);
        let y = Tensor::from_slice(&x, [vectors, 64]).quant_matmul(&matrix);
        let y = y.to_vec::<f32>().unwrap();
        for (i, y) in y.chunks(21).enumerate() {
            let is_right = match i {
                0 => |v: &f32| v.is_nan(),
                2 => |v: &f32| !v.is_finite(),
                _ => |v: &f32| v.is_finite(),
            };
            assert!(y.iter().all(is_right), "vector {i} of {vectors}: {y:?}");
        }
    }
}

#[test]
fn the_op_supports_repacked_and_empty_weights() {
    let plain = matrix(BlockFormat::Q4K, 24, 256);
    judge(&plain.repacked(), 3, 67);
    let x = Tensor::from_slice(&numbers(3 * 256, 67), [3, 256]);
    let none = QuantMatrix::from_bytes(BlockFormat::Q4K, [0, 256], Vec::new()).unwrap();
    let y = x.quant_matmul(&none);
    assert_eq!(y.shape()[..], [3, 0]);
    assert!(y.to_vec::<f32>().unwrap().is_empty());
}

#[test]
fn the_op_supports_leading_axes_and_views() {
    let matrix = matrix(BlockFormat::Q8_0, 5, 64);
    let x = Tensor::from_slice(&numbers(6 * 64, 37), [64, 3, 2]).transpose(0, 2);
    let y = x.quant_matmul(&matrix);
    assert_eq!(y.shape()[..], [2, 3, 5]);
    let rows = x.to_vec::<f32>().unwrap();
    let y = y.to_vec::<f32>().unwrap();
    let right = |a: f64, t: Truth| (a - t.exact).abs() <= t.bound * bound::QUANT_SUM_SHARE;
    compare(&y, &reference(&rows, &matrix), right, "a view");
    let none = Tensor::zeros([0, 64], DType::F32).quant_matmul(&matrix);
    assert!(none.to_vec::<f32>().unwrap().is_empty());
}

#[test]
fn rejects_other_dtypes_and_lengths() {
    let matrix = matrix(BlockFormat::Q8_0, 5, 64);
    let error = Tensor::zeros([64], DType::F16)
        .quant_matmul(&matrix)
        .eval()
        .unwrap_err();
    assert!(matches!(
        error,
        Error::BadDType {
            op: "quant_matmul",
            ..
        }
    ));
    let error = Tensor::zeros([32], DType::F32)
        .quant_matmul(&matrix)
        .eval()
        .unwrap_err();
    assert!(matches!(
        error,
        Error::ShapeMismatch {
            op: "quant_matmul",
            ..
        }
    ));
    let short = QuantMatrix::from_bytes(BlockFormat::Q8_0, [5, 64], vec![0; 339]).unwrap_err();
    assert!(matches!(short, Error::Invalid { .. }), "{short}");
    assert!(QuantMatrix::from_bytes(BlockFormat::Q4K, [1, 64], vec![0; 36]).is_err());
    let mut to = [0.0; 4];
    let products = &mut [Product {
        matrix: &matrix,
        to: &mut to,
    }];
    assert!(quant::multiply(&[0.0; 64], Precision::Exact, products).is_err());
}
