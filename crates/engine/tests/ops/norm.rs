use bessemer::DType;
use bessemer_testing::case::{Fill, check};
use bessemer_testing::reference::reduce::Reduce;

use crate::reduce::against_the_reference::{cases, judge};

#[test]
fn every_type_and_power_matches_the_reference() {
    for p in [0.0, 1.0, 2.0, 3.0, 0.5, f64::INFINITY, f64::NEG_INFINITY] {
        for dtype in DType::ALL {
            let name = format!("norm {p} of {dtype}");
            let f = Reduce::Norm { p };
            check(&name, 20, cases(&[dtype], &Fill::IN_RANGE, 2000), |case| {
                judge(f, case)
            });
        }
    }
}
