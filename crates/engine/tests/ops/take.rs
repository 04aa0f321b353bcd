//! `take`, `masked_select`.

use bessemer::{DType, Error, Tensor};

use crate::data::counted;

#[test]
fn indices_of_any_type_and_shape_select_rows() {
    let x = counted(&[3, 4]);
    for dtype in [
        DType::I8,
        DType::U8,
        DType::I16,
        DType::U16,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
    ] {
        let indices = Tensor::from_slice(&[2, 0, 1, 2], [2, 2]).cast(dtype);
        let y = x.take(0, &indices);
        assert_eq!(*y.shape(), [2, 2, 4]);
        assert_eq!(
            y.to_vec::<i32>().unwrap(),
            [8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
        );
    }
    let last = Tensor::from_slice(&[-1_i64, -4, 0], [3]);
    assert_eq!(
        x.take(1, &last).to_vec::<i32>().unwrap(),
        [3, 0, 0, 7, 4, 4, 11, 8, 8]
    );
    assert_eq!(
        x.t().take(0, &last).to_vec::<i32>().unwrap(),
        [3, 7, 11, 0, 4, 8, 0, 4, 8]
    );
    let one = x.take(0, &Tensor::scalar(1));
    assert_eq!(*one.shape(), [4]);
    assert_eq!(one.to_vec::<i32>().unwrap(), [4, 5, 6, 7]);
    let none = x.take(0, &Tensor::from_slice(&[0_i32; 0], [0]));
    assert_eq!(*none.shape(), [0, 4]);
    assert!(none.eval().is_ok());
}

#[test]
fn long_takes_match_a_simple_loop() {
    for (rows, width) in [(1000, 1), (1000, 2), (500, 4), (100, 300)] {
        let x = counted(&[rows, width]);
        let data = x.to_vec::<i32>().unwrap();
        let indices: Vec<i64> = (0..3001)
            .map(|i| (i * 7919 % rows) as i64 - (i % 2 * rows) as i64)
            .collect();
        let expected: Vec<i32> = indices
            .iter()
            .flat_map(|&i| {
                let row = i.rem_euclid(rows as i64) as usize;
                data[row * width..(row + 1) * width].to_vec()
            })
            .collect();
        let indices = Tensor::from_slice(&indices, [3001]);
        for dtype in [DType::I16, DType::I32, DType::F64] {
            let y = x.cast(dtype).take(0, &indices).cast(DType::I32);
            let expected = Tensor::from_slice(&expected, [expected.len()])
                .cast(dtype)
                .cast(DType::I32);
            assert_eq!(
                y.to_vec::<i32>().unwrap(),
                expected.to_vec::<i32>().unwrap()
            );
        }
        let y = x.t().take(1, &indices).t();
        assert_eq!(y.to_vec::<i32>().unwrap(), expected);
    }
}

#[test]
fn a_mask_selects_elements() {
    let x = counted(&[2, 3]);
    let mask = x.rem(2).eq(0);
    let y = x.masked_select(&mask);
    assert_eq!(y.to_vec::<i32>().unwrap(), [0, 2, 4]);
    let columns = Tensor::from_slice(&[false, true, true], [3]);
    assert_eq!(
        x.masked_select(&columns).to_vec::<i32>().unwrap(),
        [1, 2, 4, 5]
    );
    assert_eq!(
        x.t().masked_select(&mask.t()).to_vec::<i32>().unwrap(),
        [0, 4, 2]
    );
    assert_eq!(*x.masked_select(&x.lt(0)).shape(), [0]);
    assert!(matches!(
        x.masked_select(&x).eval(),
        Err(Error::BadDType { .. })
    ));
    let wrong = Tensor::from_slice(&[true; 4], [4]);
    assert!(matches!(
        x.masked_select(&wrong).eval(),
        Err(Error::ShapeMismatch { .. })
    ));
}

#[test]
fn indices_out_of_range_are_errors() {
    let x = counted(&[3, 4]);
    for index in [3_i64, -4, i64::MIN, i64::MAX] {
        let indices = Tensor::from_slice(&[0, index], [2]);
        let expected = Error::BadIndex {
            op: "take",
            index,
            len: 3,
        };
        assert_eq!(x.take(0, &indices).to_vec::<i32>().unwrap_err(), expected);
    }
    let unsigned = Tensor::from_slice(&[u64::MAX], [1]);
    let expected = Error::BadIndex {
        op: "take",
        index: i64::MAX,
        len: 3,
    };
    assert_eq!(x.take(0, &unsigned).to_vec::<i32>().unwrap_err(), expected);
    let empty = Tensor::from_slice(&[0.0_f32; 0], [0, 2]);
    let zero = Tensor::from_slice(&[0], [1]);
    assert!(matches!(
        empty.take(0, &zero).to_vec::<f32>(),
        Err(Error::BadIndex { .. })
    ));
}

#[test]
fn an_index_out_of_range_affects_only_its_dependents() {
    let x = counted(&[40, 8]);
    let good = Tensor::from_slice(&[39, 0], [2]);
    let bad = Tensor::from_slice(&[1, 40, -41, 2], [4]);
    let (right, wrong) = (x.take(0, &good), x.take(0, &bad));
    let (after, apart) = (&wrong + 1, &x + 1);
    bessemer::eval(&[&right, &wrong, &after, &apart]).ok();
    // Everything computed from it returns the same error, with the name of the op that failed.
    for y in [&wrong, &after] {
        let error = y.to_vec::<i32>().unwrap_err();
        assert!(
            matches!(
                error,
                Error::BadIndex {
                    op: "take",
                    index: 40 | -41,
                    len: 40
                }
            ),
            "{error}"
        );
    }
    let rows: Vec<i32> = (312..320).chain(0..8).collect();
    assert_eq!(right.to_vec::<i32>().unwrap(), rows);
    assert_eq!(apart.to_vec::<i32>().unwrap(), (1..321).collect::<Vec<_>>());
}

#[test]
fn wrong_shapes_types_and_axes_are_errors() {
    let x = counted(&[3, 4]);
    let floats = Tensor::from_slice(&[0.0_f32], [1]);
    let zero = Tensor::from_slice(&[0], [1]);
    assert!(matches!(
        x.take(0, &floats).eval(),
        Err(Error::BadDType { .. })
    ));
    assert!(matches!(
        x.take(2, &zero).eval(),
        Err(Error::BadAxis { .. })
    ));
    assert!(matches!(
        Tensor::scalar(1.0_f32).take(0, &zero).eval(),
        Err(Error::BadAxis { .. })
    ));
    let many = counted(&[1, 1, 1, 1, 1, 1, 1, 1]);
    let indices = counted(&[1, 1]);
    assert!(matches!(
        many.take(0, &indices).eval(),
        Err(Error::RankTooLarge { .. })
    ));
}

mod against_the_reference {
    use bessemer::DType;
    use bessemer_testing::layout::same;
    use bessemer_testing::reference::index::{masked_select, take};

    use crate::axis::{another, axis_index, in_all_sizes, indices, some_of};

    #[test]
    fn take_of_every_type_layout_and_axis_is_right() {
        in_all_sizes("take", 500, |case, axis, rng| {
            let len = case.shape[axis_index(case, axis)];
            let shape = match rng.below(4) {
                0 if len > 0 => vec![],
                1 => vec![rng.below(3), some_of(rng, len)],
                _ => vec![some_of(rng, len)],
            };
            let (i, at) = indices(rng, &shape, len);
            same(
                &case.tensor().take(axis, &at),
                &take(&case.array(), axis, &i),
            )
        });
    }

    #[test]
    fn masked_select_of_every_type_and_layout_is_right() {
        in_all_sizes("masked_select", 500, |case, axis, rng| {
            // A random number of trailing axes, some of them of length 1.
            let own = &case.shape[axis_index(case, axis) * rng.below(2)..];
            let shape: Vec<_> = own
                .iter()
                .map(|&n| if rng.one_in(4) { 1 } else { n })
                .collect();
            let mask = another(rng, DType::Bool, &shape);
            same(
                &case.tensor().masked_select(&mask.tensor()),
                &masked_select(&case.array(), &mask.array()),
            )
        });
    }
}
