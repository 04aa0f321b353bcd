//! `gather`.

use bessemer::{Error, Tensor};

use crate::data::counted;

#[test]
fn gather_takes_along_an_axis() {
    let x = counted(&[2, 3, 2]);
    let indices = Tensor::from_slice(&[2, 0, -1, 1, 0, 0, 1, 1], [2, 2, 2]);
    let y = x.gather(1, &indices);
    assert_eq!(y.to_vec::<i32>().unwrap(), [4, 1, 4, 3, 6, 7, 8, 9]);
    let indices = Tensor::from_slice(&[1_u8, 1, 0], [3, 1]);
    assert_eq!(
        counted(&[3, 2])
            .gather(1, &indices)
            .to_vec::<i32>()
            .unwrap(),
        [1, 3, 4]
    );
    let long = counted(&[100, 70]);
    let order = long.argsort(0).flip(&[0]);
    assert_eq!(
        long.gather(0, &order).to_vec::<i32>().unwrap(),
        long.flip(&[0]).to_vec::<i32>().unwrap()
    );
}

#[test]
fn indices_out_of_range_are_errors() {
    let x = counted(&[3, 4]);
    for index in [3_i64, -4, i64::MIN, i64::MAX] {
        let indices = Tensor::from_slice(&[0, 1, index, 0], [1, 4]);
        let expected = Error::BadIndex {
            op: "gather",
            index,
            len: 3,
        };
        let y = x.gather(0, &indices);
        assert_eq!(y.to_vec::<i32>().unwrap_err(), expected);
    }
}

#[test]
fn wrong_shapes_and_axes_are_errors() {
    let x = counted(&[3, 4]);
    let zero = Tensor::from_slice(&[0], [1]);
    let column = Tensor::from_slice(&[0; 3], [3, 1]);
    assert!(matches!(
        x.gather(0, &zero).eval(),
        Err(Error::ShapeMismatch { .. })
    ));
    assert!(matches!(
        x.gather(0, &column).eval(),
        Err(Error::ShapeMismatch { .. })
    ));
    assert!(matches!(
        x.gather(-3, &column).eval(),
        Err(Error::BadAxis { .. })
    ));
}

mod against_the_reference {
    use bessemer_testing::layout::same;
    use bessemer_testing::reference::index::gather;

    use crate::axis::{axis_index, in_all_sizes, indices, some_of};

    #[test]
    fn every_type_layout_and_axis_is_right() {
        in_all_sizes("gather", 500, |case, axis, rng| {
            let mut shape = case.shape.clone();
            let len = std::mem::take(&mut shape[axis_index(case, axis)]);
            shape[axis_index(case, axis)] = some_of(rng, len);
            let (i, at) = indices(rng, &shape, len);
            same(
                &case.tensor().gather(axis, &at),
                &gather(&case.array(), axis, &i),
            )
        });
    }
}
