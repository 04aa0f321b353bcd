//! Elementwise ops at the edges of blocks, rows, tiles and tasks, in every layout, fused and separate, and in place.

use bessemer::{DType, Tensor};
use bessemer_testing::tolerance::on_metal;

use crate::formula::{Dice, bits, data, joined_is_single, laid};

const TYPES: [DType; 9] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I32,
    DType::U8,
    DType::I8,
    DType::I64,
    DType::U32,
];

#[test]
fn random_formulas_are_bit_identical_fused_and_separate() {
    let shapes = [
        (1, 1),
        (3, 5),
        (7, 255),
        (5, 256),
        (33, 65),
        (4, 1023),
        (3, 1024),
        (2, 1025),
        (70, 130),
    ];
    for (i, (rows, columns)) in shapes.into_iter().enumerate() {
        for (j, dtype) in TYPES.into_iter().enumerate() {
            for k in 0..3 {
                // On Metal devices each formula is compiled as a separate kernel: test a tenth of them.
                if on_metal() && (3 * (i + j) + k) % 10 != 0 {
                    continue;
                }
                joined_is_single((i * 100 + j * 10 + k) as u64, rows, columns, dtype);
            }
        }
    }
}

#[test]
fn splitting_large_formulas_into_tasks_does_not_change_bits() {
    for (seed, dtype) in [
        (1, DType::F32),
        (2, DType::F64),
        (3, DType::BF16),
        (4, DType::U8),
    ] {
        joined_is_single(seed, 401, 513, dtype);
        joined_is_single(seed + 10, 100_003, 3, dtype);
        joined_is_single(seed + 20, 2, 150_001, dtype);
    }
}

#[test]
fn single_ops_support_every_layout() {
    for (rows, columns) in [(1, 1), (3, 7), (16, 16), (17, 300), (300, 17), (513, 257)] {
        for dtype in TYPES {
            for seed in 0..12 {
                let mut dice = Dice(seed * 7919 + 13);
                let (a, b) = (
                    laid(&mut dice, rows, columns, dtype),
                    laid(&mut dice, rows, columns, dtype),
                );
                let dense = |t: &Tensor| {
                    let t = t.broadcast_to([rows, columns]);
                    let all = bits(&t);
                    let picked: Vec<f64> = all
                        .iter()
                        .map(|&x| match dtype {
                            DType::I64 => x as i64 as f64,
                            _ => f64::from_bits(x),
                        })
                        .collect();
                    Tensor::from_vec(picked, [rows, columns]).cast(dtype)
                };
                let expected = bits(&(dense(&a) + dense(&b)));
                let sum = (&a + &b).broadcast_to([rows, columns]);
                assert_eq!(
                    bits(&sum),
                    expected,
                    "{rows} x {columns} of {dtype}, seed {seed}"
                );
            }
        }
    }
}

#[test]
fn copies_follow_the_layout() {
    let n = 2 * 3 * 40 * 35;
    for dtype in [DType::U8, DType::F16, DType::F32, DType::F64] {
        let x = Tensor::arange(0, n, 1, DType::I64)
            .rem(251)
            .cast(dtype)
            .reshape([2, 3, 40, 35]);
        x.eval().unwrap();
        let views = [
            x.permute(&[3, 2, 1, 0]),
            x.permute(&[0, 3, 2, 1]),
            x.permute(&[2, 0, 3, 1]),
            x.permute(&[1, 0, 3, 2]).flip(&[2]),
            x.permute(&[3, 0, 1, 2]).flip(&[3]),
            x.slice(3, Some(1), None, 3).permute(&[3, 1, 2, 0]),
            x.slice(2, None, None, -2).t(),
            x.narrow(2, 3, 1).broadcast_to([2, 3, 9, 35]).t(),
        ];
        for view in views {
            let all = x.cast(DType::F64).to_vec::<f64>().unwrap();
            let expected: Vec<f64> = view.layout().offsets().map(|i| all[i]).collect();
            let copy = view.contiguous().cast(DType::F64).to_vec::<f64>().unwrap();
            assert_eq!(copy, expected, "{dtype} {:?}", view.layout());
        }
    }
}

#[test]
fn in_place_ops_are_right() {
    for n in [1023, 1024, 1025, 100_000] {
        for dtype in TYPES {
            let one = |reuse: bool| {
                let x = data(n, 5, dtype) + data(n, 6, dtype);
                x.eval().unwrap();
                let keep = (!reuse).then(|| x.clone());
                let y = x.clone() * 3 - &x;
                drop(x);
                y.eval().unwrap();
                // Conversion to another type of the same size is in place too.
                let z = y.maximum(2) + &y;
                drop(y);
                z.eval().unwrap();
                drop(keep);
                bits(&z)
            };
            assert_eq!(one(true), one(false), "{n} of {dtype}");
        }
    }
}

/// Results of NumPy 2.4.
#[test]
fn division_matches_numpy() {
    const INFINITY: f32 = f32::INFINITY;
    const NAN: f32 = f32::NAN;
    let a = [
        7.0, -7.0, 7.0, -7.0, 0.0, -0.0, 5.5, INFINITY, 3.0, -3.0, 1e30, 2.0, NAN, 1.0, -1.0, 0.3,
    ];
    let b = [
        3.0, 3.0, -3.0, -3.0, 2.0, -2.0, 0.0, 2.0, INFINITY, INFINITY, 7.0, -INFINITY, 1.0, NAN,
        0.1, 0.1,
    ];
    let quotients = [
        2.0,
        -3.0,
        -3.0,
        2.0,
        0.0,
        0.0,
        INFINITY,
        NAN,
        0.0,
        -1.0,
        1.428_571_5e29,
        -1.0,
        NAN,
        NAN,
        -10.0,
        3.0,
    ];
    let left = [
        1.0,
        2.0,
        -2.0,
        -1.0,
        0.0,
        -0.0,
        NAN,
        NAN,
        3.0,
        INFINITY,
        1.0,
        -INFINITY,
        NAN,
        NAN,
        1.490_116_1e-8,
        7.450_581e-9,
    ];
    let bits = |v: &[f32]| -> Vec<u32> {
        v.iter()
            .map(|x| if x.is_nan() { 1 } else { x.to_bits() })
            .collect()
    };
    let (x, y) = (Tensor::from_slice(&a, [16]), Tensor::from_slice(&b, [16]));
    assert_eq!(bits(&x.floor_div(&y).to_vec().unwrap()), bits(&quotients));
    assert_eq!(bits(&x.rem(&y).to_vec().unwrap()), bits(&left));

    let (x, y) = (
        [7_i8, -7, 7, -7, -128, 5, 0, 100],
        [3_i8, 3, -3, -3, -1, 0, 4, 7],
    );
    let (x, y) = (Tensor::from_slice(&x, [8]), Tensor::from_slice(&y, [8]));
    assert_eq!(
        x.floor_div(&y).to_vec::<i8>().unwrap(),
        [2, -3, -3, 2, -128, 0, 0, 14]
    );
    assert_eq!(
        x.rem(&y).to_vec::<i8>().unwrap(),
        [1, 2, -2, -1, 0, 0, 0, 2]
    );
    assert_eq!(
        (&x << &y).to_vec::<i8>().unwrap(),
        [56, -56, 0, 0, 0, 5, 0, 0]
    );
    assert_eq!(
        (&x >> &y).to_vec::<i8>().unwrap(),
        [0, -1, 0, -1, -1, 5, 0, 0]
    );
}

#[test]
fn quotients_of_32_bit_integers_are_exact() {
    let edges = [
        0,
        1,
        2,
        3,
        7,
        65535,
        65536,
        i32::MAX - 1,
        i32::MAX,
        -1,
        -2,
        -7,
        i32::MIN + 1,
        i32::MIN,
    ];
    let pairs: Vec<(i32, i32)> = edges.iter().flat_map(|&a| edges.map(|b| (a, b))).collect();
    let n = pairs.len();
    let a: Vec<i32> = pairs.iter().map(|p| p.0).collect();
    let b: Vec<i32> = pairs.iter().map(|p| p.1).collect();
    let (x, y) = (Tensor::from_slice(&a, [n]), Tensor::from_slice(&b, [n]));
    let floor = |a: i32, b: i32| (f64::from(a) / f64::from(b)).floor() as i64 as i32;
    let expected: Vec<i32> = pairs
        .iter()
        .map(|&(a, b)| if b == 0 { 0 } else { floor(a, b) })
        .collect();
    assert_eq!(x.floor_div(&y).to_vec::<i32>().unwrap(), expected);
    let left: Vec<i32> = pairs
        .iter()
        .map(|&(a, b)| {
            if b == 0 {
                0
            } else {
                a.wrapping_sub(floor(a, b).wrapping_mul(b))
            }
        })
        .collect();
    assert_eq!(x.rem(&y).to_vec::<i32>().unwrap(), left);
    let (x, y) = (x.cast(DType::U32), y.cast(DType::U32));
    let unsigned: Vec<u32> = pairs
        .iter()
        .map(|&(a, b)| (a as u32).checked_div(b as u32).unwrap_or(0))
        .collect();
    assert_eq!(x.floor_div(&y).to_vec::<u32>().unwrap(), unsigned);
}

#[test]
fn half_precision_is_rounded_once() {
    use half::{bf16, f16};
    // Above the middle of two `f16` values by less than an `f32` can represent.
    let x = Tensor::from_slice(
        &[
            1.0 + 2_f64.powi(-11) + 2_f64.powi(-40),
            -1.0 - 3.0 * 2_f64.powi(-11) + 2_f64.powi(-45),
        ],
        [2],
    );
    let expected = [1.0 + 2_f64.powi(-10), -1.0 - 2_f64.powi(-10)].map(f16::from_f64);
    assert_eq!(x.cast(DType::F16).to_vec::<f16>().unwrap(), expected);
    let x = Tensor::from_slice(&[(1_i64 << 40) + (1 << 32) + 1, (1 << 40) + (1 << 32)], [2]);
    let expected = [(1_i64 << 40) + (1 << 33), 1 << 40].map(|x| bf16::from_f64(x as f64));
    assert_eq!(x.cast(DType::BF16).to_vec::<bf16>().unwrap(), expected);
}
