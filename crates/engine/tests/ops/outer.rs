use bessemer_testing::case::{Fill, SIZES, check, input};
use bessemer_testing::layout::agree;
use bessemer_testing::reference::matmul::outer;
use proptest::prelude::{Just, Strategy};
use proptest::sample::select;

use crate::matmul::TYPES;

#[test]
fn every_type_matches_the_reference() {
    for dtype in TYPES {
        let sizes = (select(&SIZES[..]), select(&SIZES[..]));
        let cases = sizes.prop_flat_map(move |(m, n)| {
            (
                input(&[dtype], &Fill::IN_RANGE, Just(vec![m])),
                input(&[dtype], &Fill::IN_RANGE, Just(vec![n])),
            )
        });
        check(&format!("outer of {dtype}"), 30, cases, |(a, b)| {
            let expected = outer(&a.array(), &b.array());
            agree("mul", 1, &a.tensor().outer(&b.tensor()), &expected, None)
        });
    }
}
