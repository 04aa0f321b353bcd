use bessemer::DType;
use bessemer_testing::case::{Fill, check};
use bessemer_testing::reference::reduce::Reduce;

use crate::reduce::against_the_reference::{cases, judge};

#[test]
fn every_type_matches_the_reference() {
    for dtype in DType::ALL {
        let name = format!("logsumexp of {dtype}");
        check(&name, 40, cases(&[dtype], &Fill::ALL, 2000), |case| {
            judge(Reduce::LogSumExp, case)
        });
    }
}
