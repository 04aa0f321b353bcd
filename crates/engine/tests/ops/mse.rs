use bessemer::{DType, Tensor};

use crate::data::{assert_agrees, in_every_float, numbers};

#[test]
fn every_type_matches_the_formula() {
    let (x, t) = (numbers(1, 1000), numbers(2, 1000));
    let sum: f64 = x.iter().zip(&t).map(|(x, t)| (x - t).powi(2)).sum();
    let targets = in_every_float(&t, &[10, 100]);
    for (x, t) in in_every_float(&x, &[10, 100]).iter().zip(&targets) {
        assert_eq!(x.mse(t).rank(), 0);
        let mean = [sum / 1000.0];
        assert_agrees("mse", 1000, &x.mse(t), &mean, Some(&mean));
    }
}

#[test]
fn the_mean_of_no_elements_is_nan() {
    let none = Tensor::zeros([0], DType::F32);
    assert!(none.mse(&none).item::<f32>().unwrap().is_nan());
}

mod against_the_reference {
    use bessemer::DType;
    use bessemer_testing::case::{Fill, broadcasting, check};
    use bessemer_testing::layout::agree;
    use bessemer_testing::number::Value;
    use bessemer_testing::reference::loss::mse;

    use crate::axis::pair;

    #[test]
    fn every_type_layout_and_broadcast_is_right() {
        for dtype in DType::ALL {
            let cases = pair(dtype, &Fill::IN_RANGE, broadcasting(4, 1000));
            check(&format!("mse of {dtype}"), 60, cases, |[x, target]| {
                let (a, b) = (x.array(), target.array());
                let negative = b.map(DType::F64, |v| Value::Float(-v.float().abs()));
                let size = mse(&a.magnitudes(), &negative);
                let count = bessemer_testing::array::broadcast(&a.shape, &b.shape);
                let count = count.iter().product();
                let got = x.tensor().mse(&target.tensor());
                agree("mse", count, &got, &mse(&a, &b), Some(&size))
            });
        }
    }
}
