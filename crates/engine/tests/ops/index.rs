//! `take`, `gather`, `scatter`, `scatter_add`, `masked_select`, `slice_update`.

use bessemer::{DType, Error, Tensor, explain};

fn counted(dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    Tensor::arange(0, count, 1, DType::I32).reshape(dims)
}

#[test]
fn rows_are_taken_by_index_of_any_type_and_shape() {
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
fn long_takes_are_those_of_a_plain_loop() {
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
fn scatter_puts_the_last_and_adds_all() {
    let x = Tensor::zeros([2, 3], DType::F32);
    let indices = Tensor::from_slice(&[0, 0, -1, 1, 1, 1], [2, 3]);
    let source = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
    let y = x.scatter(1, &indices, &source);
    assert_eq!(y.to_vec::<f32>().unwrap(), [2.0, 0.0, 3.0, 0.0, 6.0, 0.0]);
    let y = x.scatter_add(1, &indices, &source);
    assert_eq!(y.to_vec::<f32>().unwrap(), [3.0, 0.0, 3.0, 0.0, 15.0, 0.0]);
    let rows = Tensor::from_slice(&[1, 0, 1], [1, 3]);
    let y = x.scatter(0, &rows, &Tensor::from_slice(&[7, 8, 9], [1, 3]));
    assert_eq!(y.to_vec::<f32>().unwrap(), [0.0, 8.0, 0.0, 7.0, 0.0, 9.0]);
    let wrap = Tensor::from_slice(&[255_u8], [1]);
    let zero = Tensor::from_slice(&[0], [1]);
    assert_eq!(
        wrap.scatter_add(0, &zero, &wrap).to_vec::<u8>().unwrap(),
        [254]
    );
    let truth = Tensor::from_slice(&[true, false], [2]);
    let both = Tensor::from_slice(&[0, 1], [2]);
    assert_eq!(
        truth
            .scatter_add(0, &both, &truth)
            .to_vec::<bool>()
            .unwrap(),
        [true, false]
    );
}

#[test]
fn a_dying_tensor_is_updated_in_place_and_a_living_one_is_not() {
    let make = || Tensor::zeros([64, 64], DType::F32).contiguous() + 1.0;
    let source = Tensor::ones([1, 64], DType::F32) * 5.0;
    let living = make();
    living.eval().unwrap();
    let y = living.slice_update(&source, &[3, 0]);
    assert_eq!(y.sum(&[], false).item::<f32>(), Ok(4096.0 + 64.0 * 4.0));
    assert_eq!(living.sum(&[], false).item::<f32>(), Ok(4096.0));
    let y = make().slice_update(&source, &[63, 0]);
    let plan = explain(&[&y]).unwrap();
    assert!(plan.steps.last().unwrap().in_place, "{plan}");
    assert_eq!(y.sum(&[], false).item::<f32>(), Ok(4096.0 + 64.0 * 4.0));
    let indices = Tensor::from_vec(vec![2_i64; 64], [1, 64]);
    let y = make().scatter_add(0, &indices, &source);
    assert!(explain(&[&y]).unwrap().steps.last().unwrap().in_place);
    assert_eq!(y.sum(&[], false).item::<f32>(), Ok(4096.0 + 64.0 * 5.0));
    // The source has the shape of the result but is not what the result begins as.
    let zeros = Tensor::zeros([64, 64], DType::F32);
    let y = zeros.slice_update(&make(), &[0, 0]);
    assert_eq!(y.sum(&[], false).item::<f32>(), Ok(4096.0));
}

#[test]
fn a_cache_grows_without_copies() {
    let mut cache = Tensor::zeros([4, 256, 8], DType::F32).contiguous();
    for position in 0..10 {
        let row = Tensor::full([4, 1, 8], position as f64, DType::F32);
        cache = cache.slice_update(&row, &[0, position, 0]);
        cache.eval().unwrap();
    }
    let y = cache.index(0, 3).index(1, 7).to_vec::<f32>().unwrap();
    assert_eq!(
        y[..11],
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.0]
    );
}

#[test]
fn blocks_of_any_layout_are_put_in_place() {
    let x = counted(&[4, 5]);
    let block = counted(&[2, 3]).t().slice(1, None, None, -1).t();
    let y = x.slice_update(&block, &[1, 2]);
    let expected = [
        0, 1, 2, 3, 4, 5, 6, 3, 4, 5, 10, 11, 0, 1, 2, 15, 16, 17, 18, 19,
    ];
    assert_eq!(y.to_vec::<i32>().unwrap(), expected);
    let y = x
        .t()
        .slice_update(&Tensor::scalar(9).reshape([1, 1]), &[0, 0]);
    assert_eq!(y.index(0, 0).to_vec::<i32>().unwrap(), [9, 5, 10, 15]);
    let nothing = Tensor::from_slice(&[0; 0], [0, 5]);
    assert_eq!(
        x.slice_update(&nothing, &[4, 0]).to_vec::<i32>().unwrap(),
        x.to_vec::<i32>().unwrap()
    );
}

#[test]
fn a_mask_chooses_elements() {
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
fn indices_out_of_range_are_errors_and_nothing_is_lost() {
    let x = counted(&[3, 4]);
    for (index, len) in [(3_i64, 3), (-4, 3), (i64::MIN, 3), (i64::MAX, 3)] {
        let indices = Tensor::from_slice(&[0, index], [2]);
        let error = x.take(0, &indices).eval().unwrap_err();
        assert_eq!(
            error,
            Error::BadIndex {
                op: "take",
                index,
                len
            }
        );
        let indices = Tensor::from_slice(&[0, 1, index, 0], [1, 4]);
        let error = x.gather(0, &indices).eval().unwrap_err();
        assert_eq!(
            error,
            Error::BadIndex {
                op: "gather",
                index,
                len
            }
        );
        let big = Tensor::ones([3, 1000], DType::F32).contiguous() * 2.0;
        let mut places = vec![0_i64; 1000];
        places[999] = index;
        let indices = Tensor::from_vec(places, [1, 1000]);
        let y = big.scatter(0, &indices, &Tensor::zeros([1, 1000], DType::F32));
        drop(big);
        assert_eq!(
            y.eval().unwrap_err(),
            Error::BadIndex {
                op: "scatter",
                index,
                len
            }
        );
        assert_eq!(
            y.eval().unwrap_err(),
            Error::BadIndex {
                op: "scatter",
                index,
                len
            }
        );
    }
    let unsigned = Tensor::from_slice(&[u64::MAX], [1]);
    let error = x.take(0, &unsigned).eval().unwrap_err();
    assert_eq!(
        error,
        Error::BadIndex {
            op: "take",
            index: i64::MAX,
            len: 3
        }
    );
    let empty = Tensor::from_slice(&[0.0_f32; 0], [0, 2]);
    let zero = Tensor::from_slice(&[0], [1]);
    assert!(matches!(
        empty.take(0, &zero).eval(),
        Err(Error::BadIndex { .. })
    ));
}

#[test]
fn wrong_shapes_types_and_axes_are_errors() {
    let x = counted(&[3, 4]);
    let floats = Tensor::from_slice(&[0.0_f32], [1]);
    let zero = Tensor::from_slice(&[0], [1]);
    let column = Tensor::from_slice(&[0; 3], [3, 1]);
    assert!(matches!(
        x.take(0, &floats).eval(),
        Err(Error::BadDType { .. })
    ));
    assert!(matches!(
        x.take(2, &zero).eval(),
        Err(Error::BadAxis { .. })
    ));
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
    assert!(matches!(
        x.scatter(1, &column, &x).eval(),
        Err(Error::ShapeMismatch { .. })
    ));
    assert!(matches!(
        x.scatter_add(0, &column, &column).eval(),
        Err(Error::ShapeMismatch { .. })
    ));
    assert!(matches!(
        x.slice_update(&x, &[0, 1]).eval(),
        Err(Error::ShapeMismatch { .. })
    ));
    assert!(matches!(
        x.slice_update(&x, &[0]).eval(),
        Err(Error::Invalid { .. })
    ));
    assert!(matches!(
        x.slice_update(&zero, &[0, 0]).eval(),
        Err(Error::ShapeMismatch { .. })
    ));
    let far = x.slice_update(&column, &[0, usize::MAX]);
    assert!(matches!(far.eval(), Err(Error::ShapeMismatch { .. })));
    let scalar = Tensor::scalar(1.0_f32);
    assert!(matches!(
        scalar.take(0, &zero).eval(),
        Err(Error::BadAxis { .. })
    ));
    assert_eq!(
        scalar
            .slice_update(&Tensor::scalar(2.0_f32), &[])
            .item::<f32>(),
        Ok(2.0)
    );
    let many = counted(&[1, 1, 1, 1, 1, 1, 1, 1]);
    let indices = counted(&[1, 1]);
    assert!(matches!(
        many.take(0, &indices).eval(),
        Err(Error::RankTooLarge { .. })
    ));
}
