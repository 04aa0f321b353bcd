//! `cumsum`, `cumprod`, `cummax`.

use bessemer::{DType, Error, Tensor, pool};
use bessemer_testing::tolerance::bound;

fn noise(count: usize) -> Vec<f32> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn cumsum_matches_a_simple_loop() {
    for count in [1, 7, 128, 1023, 1024, 5000, 300_000] {
        let data = noise(count);
        let x = Tensor::from_slice(&data, [count]);
        let sums = x.cumsum(0).to_vec::<f32>().unwrap();
        let maxima = x.cummax(0).to_vec::<f32>().unwrap();
        assert_eq!((sums.len(), maxima.len()), (count, count));
        let (mut sum, mut scale, mut max) = (0.0_f64, 1.0, f32::NEG_INFINITY);
        for i in 0..count {
            sum += f64::from(data[i]);
            scale += f64::from(data[i].abs());
            max = max.max(data[i]);
            assert!(
                (f64::from(sums[i]) - sum).abs() <= bound::F32_SUM * scale,
                "{i} of {count}"
            );
            assert_eq!(maxima[i], max, "{i} of {count}");
        }
    }
}

#[test]
fn every_axis_of_every_layout_is_supported() {
    let x = Tensor::from_slice(&noise(5 * 6 * 700), [5, 6, 700]);
    for axis in 0..3 {
        for x in [x.clone(), x.permute(&[2, 0, 1]), x.flip(&[0, 2])] {
            let y = x.cumsum(axis);
            assert_eq!(y.shape(), x.shape());
            let len = x.shape()[axis as usize];
            let last = y.index(axis, len as isize - 1).to_vec::<f32>().unwrap();
            let sum = x.sum(&[axis], false).to_vec::<f32>().unwrap();
            assert_eq!(last.len(), sum.len());
            for (a, b) in last.iter().zip(&sum) {
                assert!(
                    (a - b).abs() < bound::F32_RUNNING_SUM,
                    "axis {axis}: {a}, not {b}"
                );
            }
            assert_eq!(
                y.index(axis, 0).to_vec::<f32>().unwrap(),
                x.index(axis, 0).to_vec::<f32>().unwrap()
            );
        }
    }
}

#[test]
fn integers_are_added_in_64_bits() {
    let x = Tensor::from_slice(&[200_u8, 100, 255], [3]);
    assert_eq!(x.cumsum(0).to_vec::<u64>().unwrap(), [200, 300, 555]);
    let x = Tensor::from_slice(&[true, false, true], [3]);
    assert_eq!(x.cumsum(0).to_vec::<i64>().unwrap(), [1, 1, 2]);
    let x = Tensor::from_slice(&[2_i8, -3, 100, 100], [2, 2]);
    assert_eq!(x.cumprod(0).to_vec::<i64>().unwrap(), [2, -3, 200, -300]);
    assert_eq!(x.cumprod(1).to_vec::<i64>().unwrap(), [2, -6, 100, 10_000]);
    assert_eq!(x.cummax(1).to_vec::<i8>().unwrap(), [2, 2, 100, 100]);
    assert_eq!(x.cast(DType::BF16).cumsum(0).dtype(), DType::BF16);
}

#[test]
fn all_values_after_a_nan_are_nan() {
    let mut data = vec![1.0_f32; 3000];
    data[1500] = f32::NAN;
    let x = Tensor::from_slice(&data, [3000]);
    for y in [x.cumsum(0), x.cumprod(0), x.cummax(0)] {
        let y = y.to_vec::<f32>().unwrap();
        assert!(y[..1500].iter().all(|x| !x.is_nan()) && y[1500..].iter().all(|x| x.is_nan()));
    }
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let x = Tensor::from_slice(&noise(500_000), [500_000]);
    let many = x.cumsum(0).to_vec::<f32>().unwrap();
    let before = pool::threads();
    pool::set_threads(1);
    let one = x.cumsum(0).to_vec::<f32>().unwrap();
    pool::set_threads(before);
    assert_eq!(many, one);
}

#[test]
fn empty_axes_stay_empty_and_missing_axes_are_errors() {
    let x = Tensor::from_slice(&[0.0_f32; 0], [2, 0]);
    assert_eq!(*x.cumsum(1).shape(), [2, 0]);
    assert_eq!(x.cumsum(1).to_vec::<f32>().unwrap(), [0.0; 0]);
    assert!(matches!(x.cummax(-3).eval(), Err(Error::BadAxis { .. })));
    assert!(matches!(
        Tensor::scalar(1.0_f32).cumsum(0).eval(),
        Err(Error::BadAxis { .. })
    ));
}

mod against_the_reference {
    use bessemer_testing::case::Fill;
    use bessemer_testing::layout::agree;
    use bessemer_testing::reference::scan::{cummax, cumprod, cumsum};

    use crate::axis::{along_an_axis, axis_index};

    #[test]
    fn cumsum_of_every_type_layout_and_axis_is_right() {
        along_an_axis("cumsum", &Fill::IN_RANGE, 400, |case, axis, _| {
            let (x, t) = (case.array(), case.tensor());
            let size = cumsum(&x.magnitudes(), axis);
            let n = case.shape[axis_index(case, axis)];
            agree("cumsum", n, &t.cumsum(axis), &cumsum(&x, axis), Some(&size))
        });
    }

    #[test]
    fn cumprod_of_every_type_layout_and_axis_is_right() {
        // Longer products of floats overflow.
        along_an_axis("cumprod", &Fill::IN_RANGE, 40, |case, axis, _| {
            let n = case.shape[axis_index(case, axis)];
            let expected = cumprod(&case.array(), axis);
            agree("cumprod", n, &case.tensor().cumprod(axis), &expected, None)
        });
    }

    #[test]
    fn cummax_of_every_type_layout_and_axis_is_exact() {
        along_an_axis("cummax", &Fill::ALL, 400, |case, axis, _| {
            let expected = cummax(&case.array(), axis);
            agree("cummax", 1, &case.tensor().cummax(axis), &expected, None)
        });
    }
}
