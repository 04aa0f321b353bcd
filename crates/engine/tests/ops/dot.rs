use bessemer::{DType, Tensor};
use bessemer_testing::case::{Fill, SIZES, check, input};
use proptest::prelude::{Just, Strategy};
use proptest::sample::select;

use crate::matmul::{TYPES, judge};

#[test]
fn every_type_matches_the_reference() {
    for dtype in TYPES {
        let sizes = [&SIZES[..], &[1000, 4099]].concat();
        let cases = select(sizes).prop_flat_map(move |n| {
            (
                input(&[dtype], &Fill::IN_RANGE, Just(vec![n])),
                input(&[dtype], &Fill::IN_RANGE, Just(vec![n])),
            )
        });
        check(&format!("dot of {dtype}"), 50, cases, |(a, b)| {
            judge(&a.tensor().dot(&b.tensor()), &a.array(), &b.array())
        });
    }
}

#[test]
fn rejects_vectors_of_different_lengths() {
    let x = Tensor::ones([2], DType::F32);
    assert!(x.dot(&Tensor::ones([3], DType::F32)).check().is_err());
    assert!(x.dot(&Tensor::ones([2, 2], DType::F32)).check().is_err());
}
