//! `scatter`, `scatter_add`.

use bessemer::{DType, Error, Tensor, explain};

use crate::data::counted;

#[test]
fn duplicates_overwrite_in_scatter_and_accumulate_in_scatter_add() {
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
fn a_dead_input_is_updated_in_place() {
    let make = || Tensor::zeros([64, 64], DType::F32).contiguous() + 1.0;
    let source = Tensor::ones([1, 64], DType::F32) * 5.0;
    let indices = Tensor::from_vec(vec![2_i64; 64], [1, 64]);
    let y = make().scatter_add(0, &indices, &source);
    assert!(explain(&[&y]).unwrap().steps.last().unwrap().in_place);
    assert_eq!(y.sum(&[], false).item::<f32>(), Ok(4096.0 + 64.0 * 5.0));
}

#[test]
fn indices_out_of_range_are_errors_and_keep_the_input() {
    for index in [3_i64, -4, i64::MIN, i64::MAX] {
        let big = Tensor::ones([3, 1000], DType::F32).contiguous() * 2.0;
        let mut places = vec![0_i64; 1000];
        places[999] = index;
        let indices = Tensor::from_vec(places, [1, 1000]);
        let y = big.scatter(0, &indices, &Tensor::zeros([1, 1000], DType::F32));
        drop(big);
        let expected = Error::BadIndex {
            op: "scatter",
            index,
            len: 3,
        };
        assert_eq!(y.to_vec::<f32>().unwrap_err(), expected);
        assert_eq!(y.to_vec::<f32>().unwrap_err(), expected);
    }
}

#[test]
fn duplicates_are_applied_in_order_for_few_and_many_columns() {
    // Few columns and many columns, with duplicate indices. The last cases have so many indices that they are sorted
    // first.
    let cases = [
        (50, 1, 700),
        (7, 3, 100),
        (9, 5000, 40),
        (5000, 1, 1000),
        (900, 3, 2100),
    ];
    for (rows, width, count) in cases {
        let x = counted(&[rows, width]).cast(DType::F32);
        let at = |i: usize| (i * 7919 + i / 3) % rows;
        let indices: Vec<i32> = (0..count * width)
            .map(|i| at(i / width) as i32 - if i % 2 == 0 { rows as i32 } else { 0 })
            .collect();
        let source: Vec<f32> = (0..count * width).map(|i| (i % 17) as f32).collect();
        let (mut put, mut sum) = (x.to_vec::<f32>().unwrap(), x.to_vec::<f32>().unwrap());
        for (i, &s) in source.iter().enumerate() {
            let to = at(i / width) * width + i % width;
            put[to] = s;
            sum[to] += s;
        }
        let (indices, source) = (
            Tensor::from_vec(indices, [count, width]),
            Tensor::from_vec(source, [count, width]),
        );
        let y = x.scatter(0, &indices, &source);
        assert_eq!(y.to_vec::<f32>().unwrap(), put);
        let y = x.scatter_add(0, &indices, &source);
        assert_eq!(y.to_vec::<f32>().unwrap(), sum);
        let y = x.t().scatter_add(1, &indices.t(), &source.t());
        assert_eq!(y.t().to_vec::<f32>().unwrap(), sum);
    }
}

#[test]
fn sorted_indices_out_of_range_are_errors() {
    let mut places: Vec<i64> = (0..1000).collect();
    places[777] = 5000;
    let x = Tensor::zeros([5000], DType::F32);
    let indices = Tensor::from_vec(places, [1000]);
    let y = x.scatter_add(0, &indices, &Tensor::ones([1000], DType::F32));
    let expected = Error::BadIndex {
        op: "scatter_add",
        index: 5000,
        len: 5000,
    };
    assert_eq!(y.to_vec::<f32>().unwrap_err(), expected);
}

#[test]
fn wrong_shapes_are_errors() {
    let x = counted(&[3, 4]);
    let column = Tensor::from_slice(&[0; 3], [3, 1]);
    assert!(matches!(
        x.scatter(1, &column, &x).eval(),
        Err(Error::ShapeMismatch { .. })
    ));
    assert!(matches!(
        x.scatter_add(0, &column, &column).eval(),
        Err(Error::ShapeMismatch { .. })
    ));
}

mod against_the_reference {
    use bessemer_testing::layout::same;
    use bessemer_testing::reference::arrange::narrow;
    use bessemer_testing::reference::index::{scatter, scatter_add};

    use crate::axis::{another, axis_index, in_all_sizes, indices, often, some_of};

    #[test]
    fn every_type_layout_and_axis_is_right() {
        in_all_sizes("scatter", 500, |case, axis, rng| {
            let mut shape = case.shape.clone();
            let len = shape[axis_index(case, axis)];
            let n = some_of(rng, len);
            shape[axis_index(case, axis)] = n;
            let (i, at) = indices(rng, &shape, len);
            let dtype = often(rng, case.dtype);
            let source = another(rng, dtype, &shape);
            let (x, t, s) = (case.array(), case.tensor(), source.tensor());
            let source = source.array();
            same(&t.scatter(axis, &at, &s), &scatter(&x, axis, &i, &source))?;
            // Each sum is rounded to the type.
            let mut expected = x;
            for k in 0..n {
                let [i, source] = [&i, &source].map(|a| narrow(a, axis, k, 1));
                expected = scatter_add(&expected, axis, &i, &source).rounded();
            }
            same(&t.scatter_add(axis, &at, &s), &expected)
        });
    }
}
