//! `topk`.

use bessemer::{DType, Error, Tensor};

use crate::order::{noise, order};

#[test]
fn results_are_ordered_with_ties_by_index() {
    for count in [1, 5, 300, 5000] {
        // No more digits than the smaller type has, so that the same elements are equal in both.
        let data: Vec<f64> = noise(count)
            .into_iter()
            .map(|x| f64::from(x as f32))
            .collect();
        for k in [1, 3.min(count), count / 2 + 1, count] {
            for largest in [true, false] {
                let mut indices: Vec<i64> = (0..count as i64).collect();
                indices.sort_by(|&a, &b| {
                    let order = order(data[a as usize], data[b as usize]);
                    if largest { order.reverse() } else { order }
                });
                let narrow: Vec<f32> = data.iter().map(|&x| x as f32).collect();
                for x in [
                    Tensor::from_slice(&data, [count]),
                    Tensor::from_slice(&narrow, [count]),
                ] {
                    let (values, at) = x.topk(k, 0, largest);
                    assert_eq!(at.to_vec::<i64>().unwrap(), indices[..k], "{k} of {count}");
                    let values = values.cast(DType::F32).to_vec::<f32>().unwrap();
                    for (v, &i) in values.iter().zip(&indices) {
                        let x = narrow[i as usize];
                        assert!(*v == x || (v.is_nan() && x.is_nan()));
                    }
                }
            }
        }
    }
    let x = Tensor::from_slice(&[1_u8, 9, 4, 8, 3, 9], [3, 2]);
    let (values, at) = x.topk(2, 0, true);
    assert_eq!(values.to_vec::<u8>().unwrap(), [4, 9, 3, 9]);
    assert_eq!(at.to_vec::<i64>().unwrap(), [1, 0, 2, 2]);
}

#[test]
fn k_may_be_zero_but_not_larger_than_the_axis() {
    let x = Tensor::from_slice(&[1, 2, 3], [3]);
    let (values, indices) = x.topk(4, 0, true);
    assert!(matches!(values.eval(), Err(Error::BadShape { .. })));
    assert!(matches!(indices.eval(), Err(Error::BadShape { .. })));
    let (values, indices) = x.topk(0, 0, true);
    assert_eq!(values.to_vec::<i32>().unwrap(), [0; 0]);
    assert_eq!(*indices.shape(), [0]);
    assert!(matches!(
        x.topk(usize::MAX, 0, true).0.eval(),
        Err(Error::BadShape { .. })
    ));
    assert!(matches!(
        x.topk(1, 1, true).0.eval(),
        Err(Error::BadAxis { .. })
    ));
}

mod against_the_reference {
    use bessemer::DType;
    use bessemer_testing::case::{Fill, Input};
    use bessemer_testing::layout::same;
    use bessemer_testing::reference::sort::topk;

    use crate::axis::{axis_index, in_all_sizes};

    fn judge(case: &Input, k: usize, axis: isize, largest: bool) -> Result<(), String> {
        let (values, places) = case.tensor().topk(k, axis, largest);
        let (expected, at) = topk(&case.array(), k, axis, largest);
        same(&values, &expected)?;
        same(&places, &at)
    }

    #[test]
    fn every_type_layout_and_axis_is_right() {
        in_all_sizes("topk", 700, |case, axis, rng| {
            let k = rng.below(case.shape[axis_index(case, axis)] + 1);
            judge(case, k, axis, true)?;
            judge(case, k, axis, false)
        });
    }

    #[test]
    fn long_rows_and_columns_of_every_type_are_right() {
        for dtype in DType::ALL {
            for (shape, fill) in [([2, 1500], Fill::Special), ([2000, 2], Fill::Wide)] {
                let x = Input::new(dtype, &shape, fill, 7);
                for (k, largest) in [(1, true), (5, false), (40, true), (900, false)] {
                    let axis = (shape[1] > shape[0]).into();
                    judge(&x, k, axis, largest)
                        .unwrap_or_else(|e| panic!("{k} of axis {axis} of {x:?}: {e}"));
                }
            }
        }
    }
}
