use bessemer::{DType, Error, Tensor};

#[test]
fn every_element_becomes_a_block() {
    let x = Tensor::from_slice(&[1, 2, 3, 4], [1, 1, 2, 2]);
    let y = x.upsample_nearest(3);
    assert_eq!(*y.shape(), [1, 1, 6, 6]);
    let y = y.to_vec::<i32>().unwrap();
    for (i, v) in y.iter().enumerate() {
        assert_eq!(*v, (i / 6 / 3 * 2 + i % 6 / 3 + 1) as i32);
    }
    let line = Tensor::from_slice(&[1.5_f32, 2.5], [2, 1, 1]).upsample_nearest(2);
    assert_eq!(line.to_vec::<f32>().unwrap(), [1.5, 1.5, 2.5, 2.5]);
    let solid = Tensor::from_slice(&[1_u8], [1, 1, 1, 1, 1]).upsample_nearest(2);
    assert_eq!(*solid.shape(), [1, 1, 2, 2, 2]);
    assert_eq!(x.upsample_nearest(1).to_vec::<i32>().unwrap(), [1, 2, 3, 4]);
}

#[test]
fn rejects_unsupported_scales_and_ranks() {
    let x = Tensor::zeros([1, 1, 2], DType::F32);
    let error = x.upsample_nearest(0).check().unwrap_err();
    assert!(
        matches!(
            error,
            Error::BadShape {
                op: "upsample_nearest",
                ..
            }
        ),
        "{error}"
    );
    let error = x.upsample_nearest(usize::MAX).check().unwrap_err();
    assert!(matches!(error, Error::SizeOverflow { .. }), "{error}");
    let flat = Tensor::zeros([2], DType::F32).upsample_nearest(2);
    assert!(matches!(flat.check().unwrap_err(), Error::BadShape { .. }));
    let deep = Tensor::zeros([1, 1, 1, 1, 1, 1], DType::F32).upsample_nearest(2);
    assert!(matches!(deep.check().unwrap_err(), Error::BadShape { .. }));
    let none = Tensor::zeros([0, 1, 2], DType::F32).upsample_nearest(2);
    assert_eq!(*none.shape(), [0, 1, 4]);
}

mod against_the_reference {
    use bessemer::DType;
    use bessemer_testing::case::{Fill, check, input, shape};
    use bessemer_testing::layout::same;
    use bessemer_testing::reference::upsample::upsample_nearest;

    #[test]
    fn every_type_layout_and_scale_is_right() {
        for dtype in DType::ALL {
            let cases = input(&[dtype], &Fill::ALL, shape(5, 200));
            let name = format!("upsample_nearest of {dtype}");
            check(&name, 40, cases, |case| {
                if case.shape.len() < 2 {
                    return Ok(());
                }
                let scale = 1 + case.seed as usize % 4;
                same(
                    &case.tensor().upsample_nearest(scale),
                    &upsample_nearest(&case.array(), scale),
                )
            });
        }
    }
}
