use bessemer::{DType, Error, Tensor};
use bessemer_testing::Array;
use bessemer_testing::case::{Fill, Input, SIZES, check, input};
use bessemer_testing::layout::agree;
use bessemer_testing::reference::matmul::{gemm, matmul};
use proptest::prelude::{Just, Strategy};
use proptest::sample::select;

pub(crate) const TYPES: [DType; 6] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I32,
    DType::U8,
];

/// Two matrices that fit, some of them in batches that broadcast, some of them vectors.
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
            // The reference is slow: batches of small ones only.
            let most = if left.is_empty() && right.is_empty() {
                129
            } else {
                17
            };
            let (m, n, k) = (m.min(most), n.min(most), k.min(most));
            let (mut a, mut b) = ([left, vec![m, k]].concat(), [right, vec![k, n]].concat());
            if form.starts_with('v') {
                a = vec![k];
            }
            if form.ends_with('v') {
                b = vec![k];
            }
            let a = input(&[dtype], &Fill::TAME, Just(a));
            let b = input(&[dtype], &Fill::TAME, Just(b));
            (a, b).prop_map(|(a, b)| [a, b])
        },
    )
}

/// Compares with a bound from the product of the magnitudes.
pub(crate) fn judge(got: &Tensor, a: &Array, b: &Array) -> Result<(), String> {
    let terms = *a.shape.last().expect("an axis");
    let size = matmul(&a.magnitudes(), &b.magnitudes());
    agree("matmul", terms, got, &matmul(a, b), Some(&size))
}

#[test]
fn products_of_every_type_and_layout_are_their_reference() {
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
fn products_of_different_types_meet_first() {
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

#[test]
fn matrices_that_do_not_fit_are_an_error() {
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
