//! `pad`.

use bessemer::{DType, Error, Tensor};

use crate::data::counted;

#[test]
fn pad_adds_a_constant_border() {
    let x = counted(&[2, 2]);
    let y = x.pad(&[(1, 0), (0, 2)], -1);
    assert_eq!(*y.shape(), [3, 4]);
    assert_eq!(
        y.to_vec::<i32>().unwrap(),
        [-1, -1, -1, -1, 0, 1, -1, -1, 2, 3, -1, -1]
    );
    let y = x.t().cast(DType::F16).pad(&[(0, 0), (1, 0)], 0.5);
    let expected = [0.5, 0.0, 2.0, 0.5, 1.0, 3.0].map(half::f16::from_f64);
    assert_eq!(y.to_vec::<half::f16>().unwrap(), expected);
    let empty = Tensor::from_slice(&[0_u8; 0], [0]);
    assert_eq!(empty.pad(&[(1, 1)], 9).to_vec::<u8>().unwrap(), [9, 9]);
    assert_eq!(Tensor::scalar(3.0_f64).pad(&[], 0).item::<f64>(), Ok(3.0));
    assert!(matches!(
        x.pad(&[(1, 1)], 0).eval(),
        Err(Error::Invalid { .. })
    ));
    assert!(matches!(
        empty.pad(&[(1, 1)], 300).eval(),
        Err(Error::Invalid { .. })
    ));
}

#[test]
fn overflowing_borders_are_errors() {
    let x = counted(&[2, 2]);
    for y in [
        x.pad(&[(usize::MAX, 1), (0, 0)], 0),
        x.pad(&[(1 << 60, 1 << 60), (0, 0)], 0),
    ] {
        assert!(matches!(y.eval(), Err(Error::SizeOverflow { .. })), "{y:?}");
    }
    let y = x.pad(&[(1 << 48, 0), (0, 0)], 0);
    assert!(matches!(y.eval(), Err(Error::OutOfMemory { .. })), "{y:?}");
}

mod against_the_reference {
    use bessemer::{DType, Kind};
    use bessemer_testing::layout::same;
    use bessemer_testing::reference::arrange::pad;

    use crate::axis::in_all_sizes;

    #[test]
    fn every_type_and_layout_is_right() {
        in_all_sizes("pad", 200, |case, _, rng| {
            let widths: Vec<_> = case
                .shape
                .iter()
                .map(|_| (rng.pick(&[0, 1, 0, 3]), rng.pick(&[0, 2, 0, 1])))
                .collect();
            let value = case.fill.value(case.dtype, rng);
            let t = case.tensor();
            let got = match case.dtype.kind() {
                Kind::Bool => t.pad(&widths, value.is_nonzero()),
                Kind::Float => t.pad(&widths, value.float()),
                Kind::Int if case.dtype == DType::U64 => t.pad(&widths, value.int() as u64),
                Kind::Int => t.pad(&widths, value.int() as i64),
            };
            same(&got, &pad(&case.array(), &widths, value))
        });
    }
}
