use bessemer::{DType, Error, Tensor};

#[test]
fn ids_of_any_shape_select_rows() {
    let table = Tensor::from_slice(&[0, 1, 10, 11, 20, 21], [3, 2]);
    let ids = Tensor::from_slice(&[1_u8, 0, 2, 2], [2, 2]);
    let y = table.embedding(&ids);
    assert_eq!(*y.shape(), [2, 2, 2]);
    assert_eq!(y.to_vec::<i32>().unwrap(), [10, 11, 0, 1, 20, 21, 20, 21]);
    let one = table.embedding(&Tensor::scalar(-1_i64));
    assert_eq!(one.to_vec::<i32>().unwrap(), [20, 21]);
}

#[test]
fn rejects_ids_out_of_range_and_tables_of_other_ranks() {
    let table = Tensor::zeros([3, 2], DType::F32);
    let error = table
        .embedding(&Tensor::from_slice(&[3_i64], [1]))
        .to_vec::<f32>()
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::BadIndex {
                index: 3,
                len: 3,
                ..
            }
        ),
        "{error}"
    );
    let error = table
        .embedding(&Tensor::zeros([1], DType::F32))
        .check()
        .unwrap_err();
    assert!(matches!(error, Error::BadDType { .. }), "{error}");
    let flat = Tensor::zeros([3], DType::F32).embedding(&Tensor::zeros([1], DType::I64));
    assert!(matches!(
        flat.check().unwrap_err(),
        Error::BadShape {
            op: "embedding",
            ..
        }
    ));
}

mod against_the_reference {
    use bessemer_testing::case::Input;
    use bessemer_testing::layout::same;
    use bessemer_testing::reference::index::embedding;

    use crate::axis::{in_all_sizes, indices, some_of};

    #[test]
    fn every_type_and_layout_is_right() {
        in_all_sizes("embedding", 700, |case, _, rng| {
            let table = Input {
                shape: vec![case.shape[0], case.shape[1..].iter().product()],
                ..case.clone()
            };
            let rows = table.shape[0];
            let shape = match rng.below(3) {
                0 if rows > 0 => vec![],
                1 => vec![rng.below(4), some_of(rng, rows), 2],
                _ => vec![some_of(rng, rows)],
            };
            let (ids, at) = indices(rng, &shape, rows);
            same(
                &table.tensor().embedding(&at),
                &embedding(&table.array(), &ids),
            )
        });
    }
}
