use bessemer::DType;
use bessemer_testing::case::{Fill, check};
use bessemer_testing::reference::reduce::Reduce;

use crate::reduce::against_the_reference::{cases, judge};

#[test]
fn every_type_matches_the_reference() {
    for f in [
        Reduce::Var { ddof: 0.0 },
        Reduce::Var { ddof: 1.0 },
        Reduce::Std { ddof: 0.0 },
        Reduce::Std { ddof: 2.0 },
    ] {
        for dtype in DType::ALL {
            let name = format!("{f:?} of {dtype}");
            check(&name, 30, cases(&[dtype], &Fill::IN_RANGE, 2000), |case| {
                judge(f, case)
            });
        }
    }
}
