use bessemer::{DType, Tensor};
use bessemer_testing::case::{Fill, SIZES, check, input};
use proptest::prelude::{Just, Strategy};
use proptest::sample::select;

use crate::matmul::{TYPES, judge};

#[test]
fn every_type_matches_the_reference() {
    for dtype in TYPES {
        let sizes = (select(&SIZES[..]), select(&SIZES[..]));
        let cases = sizes.prop_flat_map(move |(m, k)| {
            (
                input(&[dtype], &Fill::IN_RANGE, Just(vec![m, k])),
                input(&[dtype], &Fill::IN_RANGE, Just(vec![k])),
            )
        });
        check(&format!("matvec of {dtype}"), 50, cases, |(a, x)| {
            judge(&a.tensor().matvec(&x.tensor()), &a.array(), &x.array())
        });
    }
}

#[test]
fn rejects_other_ranks() {
    let x = Tensor::ones([2, 2], DType::F32);
    assert!(x.matvec(&x).check().is_err());
    assert!(x.matvec(&Tensor::ones([3], DType::F32)).check().is_err());
}
