use bessemer::DType;
use bessemer_testing::case::{Fill, check, input, shape};
use bessemer_testing::layout::same;
use bessemer_testing::reference::cast::cast;

#[test]
fn every_type_becomes_every_other_in_every_layout() {
    for from in DType::ALL {
        for to in DType::ALL {
            let cases = input(&[from], &Fill::ALL, shape(4, 1000));
            check(&format!("{from} as {to}"), 20, cases, |case| {
                same(&case.tensor().cast(to), &cast(&case.array(), to))
            });
        }
    }
}
