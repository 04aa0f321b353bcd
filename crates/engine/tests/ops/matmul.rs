use bessemer::{DType, Error, Tensor};
use bessemer_testing::Array;
use bessemer_testing::case::{Fill, Input, SIZES, check, input};
use bessemer_testing::layout::agree;
use bessemer_testing::reference::matmul::{gemm, matmul};
use proptest::prelude::{Just, Strategy};
use proptest::sample::select;

use crate::data::numbers;

pub(crate) const TYPES: [DType; 6] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I32,
    DType::U8,
];

/// Two matching matrices, some of them in batches that broadcast, some of them vectors.
fn pairs(dtypes: &[DType]) -> impl Strategy<Value = [Input; 2]> + use<> {
    let size = || select(&SIZES[..]);
    let batches = select(vec![
        (vec![], vec![]),
        (vec![3], vec![3]),
        (vec![3], vec![]),
        (vec![], vec![2]),
        (vec![2, 1], vec![3]),
        (vec![1], vec![4]),
        (vec![0], vec![1]),
    ]);
    let forms = select(vec!["mm", "mm", "mm", "mv", "vm", "vv"]);
    let dtypes = dtypes.to_vec();
    (size(), size(), size(), batches, forms, select(dtypes)).prop_flat_map(
        |(m, n, k, (left, right), form, dtype)| {
            // The reference is slow: only small matrices are batched.
            let max_count = if left.is_empty() && right.is_empty() {
                129
            } else {
                17
            };
            let (m, n, k) = (m.min(max_count), n.min(max_count), k.min(max_count));
            let (mut a, mut b) = ([left, vec![m, k]].concat(), [right, vec![k, n]].concat());
            if form.starts_with('v') {
                a = vec![k];
            }
            if form.ends_with('v') {
                b = vec![k];
            }
            let a = input(&[dtype], &Fill::IN_RANGE, Just(a));
            let b = input(&[dtype], &Fill::IN_RANGE, Just(b));
            (a, b).prop_map(|(a, b)| [a, b])
        },
    )
}

/// Compares within a bound from the product of the magnitudes.
pub(crate) fn judge(got: &Tensor, a: &Array, b: &Array) -> Result<(), String> {
    let terms = *a.shape.last().expect("an axis");
    let size = matmul(&a.magnitudes(), &b.magnitudes());
    agree("matmul", terms, got, &matmul(a, b), Some(&size))
}

#[test]
fn every_type_and_layout_matches_the_reference() {
    for dtype in TYPES {
        check(
            &format!("matmul of {dtype}"),
            60,
            pairs(&[dtype]),
            |[a, b]| judge(&a.tensor().matmul(&b.tensor()), &a.array(), &b.array()),
        );
    }
}

#[test]
fn sides_longer_than_2048_are_right() {
    // Each side in turn, with a remainder; all rows and columns differ.
    for [m, k, n] in [[2051, 37, 30], [37, 2053, 30], [30, 37, 2059], [3, 2053, 5]] {
        for dtype in [DType::F32, DType::F16] {
            let a = Input::new(dtype, &[m, k], Fill::Normal, 11);
            let b = Input::new(dtype, &[k, n], Fill::Normal, 13);
            let y = a.tensor().matmul(&b.tensor());
            judge(&y, &a.array(), &b.array())
                .unwrap_or_else(|e| panic!("{m} x {k} x {n} of {dtype}: {e}"));
            crate::data::assert_reached_the_device("a product", &y);
        }
    }
}

#[test]
fn operands_of_different_types_are_promoted() {
    let pair = |a, b| {
        Input::new(a, &[3, 5], Fill::Normal, 1)
            .tensor()
            .matmul(&Input::new(b, &[5, 2], Fill::Normal, 2).tensor())
    };
    assert_eq!(pair(DType::F16, DType::F32).dtype(), DType::F32);
    assert_eq!(pair(DType::F16, DType::BF16).dtype(), DType::F32);
    assert_eq!(pair(DType::F32, DType::F64).dtype(), DType::F64);
}

#[test]
fn gemm_scales_and_adds() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let cases = (
            pairs(&[dtype]),
            select(vec![0.0, 1.0, -0.5, 2.0]),
            select(vec![0.0, 1.0, 0.25]),
        );
        check(
            &format!("gemm of {dtype}"),
            40,
            cases,
            |([a, b], alpha, beta)| {
                let (x, y) = (a.array(), b.array());
                if x.rank() < 2 || y.rank() < 2 {
                    return Ok(());
                }
                let n = y.shape[y.rank() - 1];
                let c = Input::new(dtype, &[n], Fill::Normal, a.seed ^ b.seed);
                let expected = gemm(&x, &y, &c.array(), *alpha, *beta);
                let size = gemm(
                    &x.magnitudes(),
                    &y.magnitudes(),
                    &c.array().magnitudes(),
                    alpha.abs(),
                    *beta,
                );
                let terms = *x.shape.last().expect("an axis");
                let got = Tensor::gemm(&a.tensor(), &b.tensor(), &c.tensor(), *alpha, *beta);
                agree("gemm", terms, &got, &expected, Some(&size))
            },
        );
    }
}

/// A factor, stored as its transpose or not.
fn stored(t: &Tensor, is_transposed: bool) -> Tensor {
    if is_transposed {
        t.transpose(-1, -2).contiguous().transpose(-1, -2)
    } else {
        t.contiguous()
    }
}

/// `Σ a[…, i, k] * b[…, k, j]` by simple loops, and its shape.
fn sums(a: (&[f64], &[usize]), b: (&[f64], &[usize])) -> (Vec<f64>, Vec<usize>) {
    let (left, &[m, k]) = a.1.split_at(a.1.len() - 2) else {
        unreachable!()
    };
    let (right, n) = (&b.1[..b.1.len() - 2], b.1[b.1.len() - 1]);
    let rank = left.len().max(right.len());
    let at =
        |dims: &[usize], i: usize| *dims.get((i + dims.len()).wrapping_sub(rank)).unwrap_or(&1);
    let batch: Vec<_> = (0..rank).map(|i| at(left, i).max(at(right, i))).collect();
    // The index of the matrix of a factor for element `i` of the batch.
    let matrix = |dims: &[usize], mut i: usize| {
        let (mut found, mut step) = (0, 1);
        for axis in (0..rank).rev() {
            found += (i % batch[axis]).min(at(dims, axis) - 1) * step;
            step *= at(dims, axis);
            i /= batch[axis];
        }
        found
    };
    let mut out = vec![];
    for i in 0..batch.iter().product() {
        let x = &a.0[matrix(left, i) * m * k..][..m * k];
        let y = &b.0[matrix(right, i) * k * n..][..k * n];
        for row in x.chunks_exact(k) {
            let mut sums = vec![0.0; n];
            for (x, y) in row.iter().zip(y.chunks_exact(n)) {
                for (sum, y) in sums.iter_mut().zip(y) {
                    *sum += x * y;
                }
            }
            out.extend(sums);
        }
    }
    (out, [&batch[..], &[m, n]].concat())
}

/// Judges products of these shapes, transposed or not, in every type that a GPU supports.
fn judge_all(shapes: &[(&[usize], &[usize])]) {
    for (seed, &(left, right)) in shapes.iter().enumerate() {
        // Every type can represent these values.
        let x = numbers(seed as u64, left.iter().product());
        let y = numbers(seed as u64 + 99, right.iter().product());
        let (expected, shape) = sums((&x, left), (&y, right));
        let size = |v: &[f64]| v.iter().map(|v| v.abs()).collect::<Vec<_>>();
        let (sizes, _) = sums((&size(&x), left), (&size(&y), right));
        let sizes = Array::floats(DType::F64, &shape, &sizes);
        let [a, b] = [(&x, left), (&y, right)]
            .map(|(v, shape)| Tensor::from_vec(v.iter().map(|&v| v as f32).collect(), shape));
        for storage in 0..4 {
            let dtype = [DType::F32, DType::F16, DType::BF16][(seed + storage) % 3];
            let got = stored(&a.cast(dtype), storage % 2 == 1)
                .matmul(&stored(&b.cast(dtype), storage / 2 == 1));
            let expected = Array::floats(dtype, &shape, &expected);
            agree(
                "matmul",
                left[left.len() - 1],
                &got,
                &expected,
                Some(&sizes),
            )
            .unwrap_or_else(|e| panic!("{dtype} {left:?} {right:?} storage {storage}: {e}"));
        }
    }
}

#[test]
fn tile_edges_are_right() {
    judge_all(&[
        (&[31, 15], &[15, 33]),
        (&[33, 16], &[16, 31]),
        (&[64, 17], &[17, 64]),
        (&[65, 33], &[33, 63]),
        (&[17, 1], &[1, 18]),
        // Enough rows and columns for large tiles.
        (&[20, 65, 17], &[20, 17, 65]),
        (&[40, 63, 16], &[40, 16, 65]),
        (&[8, 5, 64, 5], &[5, 127]),
    ]);
}

#[test]
fn batches_are_broadcast_without_copies() {
    judge_all(&[
        (&[3, 1, 20, 9], &[2, 9, 21]),
        (&[20, 9], &[3, 9, 21]),
        (&[2, 1, 1, 20, 9], &[1, 2, 3, 9, 3]),
        (&[5, 1, 9], &[5, 9, 40]),
        (&[2, 3, 7], &[7, 5]),
    ]);
}

#[test]
fn one_to_seventeen_rows_are_right() {
    for rows in 1..=17 {
        judge_all(&[
            (&[rows, 70], &[70, 133]),
            (&[133, 67], &[67, rows]),
            (&[rows, 5], &[5, rows]),
        ]);
    }
}

#[test]
fn split_k_is_right() {
    judge_all(&[
        (&[40, 1023], &[1023, 33]),
        (&[33, 1024], &[1024, 40]),
        (&[20, 1025], &[1025, 17]),
        (&[1, 5001], &[5001, 40]),
        (&[40, 5000], &[5000, 1]),
        (&[3, 2049], &[2049, 9]),
        (&[2, 12, 1500], &[2, 1500, 4]),
        (&[1, 40_000], &[40_000, 1]),
    ]);
}

#[test]
fn split_k_of_integers_is_exact() {
    let small_integers = |shape: [usize; 2]| {
        let count = shape[0] * shape[1];
        Tensor::from_vec(
            (0..count).map(|i| ((i * 31) % 7) as f32 - 3.0).collect(),
            shape,
        )
    };
    for (m, n) in [(40, 40), (1, 50), (50, 3), (1, 1)] {
        let (a, b) = (small_integers([m, 4096]), small_integers([4096, n]));
        let whole = a.matmul(&b);
        let parts = (0..16).map(|i| a.narrow(1, i * 256, 256).matmul(&b.narrow(0, i * 256, 256)));
        let sum = parts.reduce(|x, y| x + y).unwrap();
        assert_eq!(whole.to_vec::<f32>(), sum.to_vec::<f32>(), "{m} {n}");
    }
}

#[test]
fn gemm_adds_at_tile_edges_and_after_split_k() {
    for (dtype, [m, k, n]) in [
        (DType::F32, [33, 1100, 35]),
        (DType::F16, [3, 1100, 35]),
        (DType::BF16, [35, 20, 2]),
        (DType::F32, [5, 0, 40]),
        (DType::F32, [40, 0, 40]),
    ] {
        let [a, b, c] = [[m, k], [k, n], [m, n]]
            .map(|shape| Input::new(dtype, &shape, Fill::Normal, shape[0] as u64));
        let (x, y, z) = (a.array(), b.array(), c.array());
        let expected = gemm(&x, &y, &z, 0.5, -2.0);
        let size = gemm(&x.magnitudes(), &y.magnitudes(), &z.magnitudes(), 0.5, 2.0);
        for addend in [c.tensor(), c.tensor().t().contiguous().t()] {
            let got = Tensor::gemm(&a.tensor(), &b.tensor(), &addend, 0.5, -2.0);
            agree("gemm", k, &got, &expected, Some(&size)).unwrap();
        }
    }
}

#[test]
fn integers_of_every_width_wrap() {
    for dtype in [
        DType::I8,
        DType::U8,
        DType::I16,
        DType::U16,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
    ] {
        let many = |shape: [usize; 2]| {
            let count = shape[0] * shape[1];
            let all = (0..count).map(|i| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            Tensor::from_vec(all.collect(), shape).cast(dtype)
        };
        let (a, b) = (many([17, 33]), many([15, 33]));
        let wide = |t: &Tensor| t.cast(DType::I64).cast(DType::U64).to_vec::<u64>().unwrap();
        let (x, y) = (wide(&a), wide(&b));
        let sum = |i: usize| {
            (0..33).fold(0_u64, |sum, k| {
                sum.wrapping_add(x[i / 15 * 33 + k].wrapping_mul(y[i % 15 * 33 + k]))
            })
        };
        let expected = Tensor::from_vec((0..17 * 15).map(sum).collect::<Vec<_>>(), [17, 15]);
        let got = a.matmul(&b.t());
        assert_eq!(wide(&got), wide(&expected.cast(dtype)), "{dtype}");
    }
}

#[test]
fn rejects_mismatched_matrices() {
    let a = Tensor::ones([2, 3], DType::F32);
    for shape in [vec![2, 3], vec![4], vec![]] {
        let y = a.matmul(&Tensor::ones(&shape[..], DType::F32));
        let error = y.check().unwrap_err();
        assert!(
            matches!(error, Error::ShapeMismatch { .. } | Error::BadShape { .. }),
            "{error}"
        );
        assert!(error.to_string().starts_with("matmul"), "{error}");
    }
}
