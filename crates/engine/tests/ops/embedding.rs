use bessemer::{DType, Error, Tensor};

#[test]
fn ids_of_any_shape_name_rows() {
    let table = Tensor::from_slice(&[0, 1, 10, 11, 20, 21], [3, 2]);
    let ids = Tensor::from_slice(&[1_u8, 0, 2, 2], [2, 2]);
    let y = table.embedding(&ids);
    assert_eq!(*y.shape(), [2, 2, 2]);
    assert_eq!(y.to_vec::<i32>().unwrap(), [10, 11, 0, 1, 20, 21, 20, 21]);
    let one = table.embedding(&Tensor::scalar(-1_i64));
    assert_eq!(one.to_vec::<i32>().unwrap(), [20, 21]);
}

#[test]
fn rejects_ids_out_of_range_and_tables_that_are_none() {
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
