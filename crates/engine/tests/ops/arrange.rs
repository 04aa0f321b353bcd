//! `concat`, `stack`, `split`, `roll`, `repeat`, `tile`, `pad`, `tril`, `triu`.

use bessemer::{DType, Error, Tensor};

fn counted(dims: &[usize]) -> Tensor {
    let count: usize = dims.iter().product();
    Tensor::arange(0, count, 1, DType::I32).reshape(dims)
}

#[test]
fn tensors_follow_each_other_along_any_axis() {
    let a = counted(&[2, 2]);
    let b = counted(&[2, 3]).slice(1, None, None, -1);
    let y = Tensor::concat(&[&a, &b, &a.t()], -1);
    assert_eq!(
        y.to_vec::<i32>().unwrap(),
        [0, 1, 2, 1, 0, 0, 2, 2, 3, 5, 4, 3, 1, 3]
    );
    let y = Tensor::concat(&[&a, &a.t()], 0);
    assert_eq!(y.to_vec::<i32>().unwrap(), [0, 1, 2, 3, 0, 2, 1, 3]);
    let y = Tensor::concat(&[&a, &Tensor::from_slice(&[0.5_f32; 2], [2, 1])], 1);
    assert_eq!(y.dtype(), DType::F64);
    assert_eq!(y.to_vec::<f64>().unwrap(), [0.0, 1.0, 0.5, 2.0, 3.0, 0.5]);
    let empty = Tensor::from_slice(&[0; 0], [2, 0]);
    assert_eq!(
        Tensor::concat(&[&empty, &a, &empty], 1)
            .to_vec::<i32>()
            .unwrap(),
        [0, 1, 2, 3]
    );
    let large = counted(&[300, 1000]);
    let y = Tensor::concat(&[&large, &large], 1);
    assert_eq!(
        y.narrow(1, 1000, 1000).to_vec::<i32>().unwrap(),
        large.to_vec::<i32>().unwrap()
    );
    let y = Tensor::concat(&[&large.flatten(), &large.t().flatten()], 0);
    assert_eq!(
        y.narrow(0, 0, 300_000).to_vec::<i32>().unwrap(),
        large.to_vec::<i32>().unwrap()
    );
    assert_eq!(
        y.narrow(0, 300_000, 300_000).to_vec::<i32>().unwrap(),
        large.t().to_vec::<i32>().unwrap()
    );
}

#[test]
fn tensors_are_stacked_and_split_again() {
    let (a, b) = (counted(&[2, 3]), counted(&[2, 3]).neg());
    let y = Tensor::stack(&[&a, &b], 0);
    assert_eq!(*y.shape(), [2, 2, 3]);
    assert_eq!(
        y.index(0, 1).to_vec::<i32>().unwrap(),
        b.to_vec::<i32>().unwrap()
    );
    let y = Tensor::stack(&[&a, &b], -1);
    assert_eq!(*y.shape(), [2, 3, 2]);
    assert_eq!(y.to_vec::<i32>().unwrap()[..4], [0, 0, 1, -1]);
    let parts = a.split(3, 1);
    assert_eq!(parts.len(), 3);
    assert_eq!(parts[1].to_vec::<i32>().unwrap(), [1, 4]);
    let parts = a.split_sizes(&[1, 0, 2], 1);
    assert_eq!(parts[2].to_vec::<i32>().unwrap(), [1, 2, 4, 5]);
    assert_eq!(*parts[1].shape(), [2, 0]);
    for parts in [
        a.split(2, 1),
        a.split(0, 1),
        a.split_sizes(&[1], 1),
        a.split(1, 5),
        a.split_sizes(&[usize::MAX, 4], 1),
    ] {
        assert!(parts[0].eval().is_err());
    }
    assert!(matches!(
        a.split(4, 0)[0].eval(),
        Err(Error::BadShape { .. })
    ));
}

#[test]
fn what_does_not_fit_is_not_joined() {
    let a = counted(&[2, 3]);
    assert!(matches!(
        Tensor::concat(&[], 0).eval(),
        Err(Error::Invalid { .. })
    ));
    assert!(matches!(
        Tensor::stack(&[], 0).eval(),
        Err(Error::Invalid { .. })
    ));
    assert!(matches!(
        Tensor::concat(&[&a], 2).eval(),
        Err(Error::BadAxis { .. })
    ));
    assert!(matches!(
        Tensor::concat(&[&a, &a.t()], 0).eval(),
        Err(Error::ShapeMismatch { .. })
    ));
    assert!(matches!(
        Tensor::concat(&[&a, &a.flatten()], 0).eval(),
        Err(Error::ShapeMismatch { .. })
    ));
    assert!(matches!(
        Tensor::stack(&[&a, &a.t()], 0).eval(),
        Err(Error::ShapeMismatch { .. })
    ));
    assert!(matches!(
        Tensor::stack(&[&a], 4).eval(),
        Err(Error::BadAxis { .. })
    ));
    let scalar = Tensor::scalar(1);
    assert!(matches!(
        Tensor::concat(&[&scalar], 0).eval(),
        Err(Error::BadAxis { .. })
    ));
    assert_eq!(
        Tensor::stack(&[&scalar, &scalar], 0)
            .to_vec::<i32>()
            .unwrap(),
        [1, 1]
    );
    let huge = Tensor::zeros([1 << 59], DType::U8);
    let y = Tensor::concat(&[&huge, &huge, &huge], 0);
    assert!(matches!(y.eval(), Err(Error::SizeOverflow { .. })), "{y:?}");
}

#[test]
fn elements_roll() {
    let x = counted(&[5]);
    assert_eq!(x.roll(2, 0).to_vec::<i32>().unwrap(), [3, 4, 0, 1, 2]);
    assert_eq!(x.roll(-1, 0).to_vec::<i32>().unwrap(), [1, 2, 3, 4, 0]);
    assert_eq!(x.roll(10, -1).to_vec::<i32>().unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(x.roll(isize::MIN, 0).count(), 5);
    let y = counted(&[2, 3]).roll(1, 0);
    assert_eq!(y.to_vec::<i32>().unwrap(), [3, 4, 5, 0, 1, 2]);
    let empty = Tensor::from_slice(&[0; 0], [0]);
    assert_eq!(empty.roll(3, 0).to_vec::<i32>().unwrap(), [0; 0]);
    assert!(matches!(x.roll(1, 1).eval(), Err(Error::BadAxis { .. })));
}

#[test]
fn elements_are_repeated_and_tiled() {
    let x = counted(&[2, 2]);
    assert_eq!(
        x.repeat(2, 0).to_vec::<i32>().unwrap(),
        [0, 1, 0, 1, 2, 3, 2, 3]
    );
    assert_eq!(
        x.repeat(3, 1).to_vec::<i32>().unwrap(),
        [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    );
    assert_eq!(
        x.t().repeat(2, -1).to_vec::<i32>().unwrap(),
        [0, 0, 2, 2, 1, 1, 3, 3]
    );
    assert_eq!(*x.repeat(0, 0).shape(), [0, 2]);
    assert_eq!(
        x.tile(&[2]).to_vec::<i32>().unwrap(),
        [0, 1, 0, 1, 2, 3, 2, 3]
    );
    assert_eq!(
        x.tile(&[2, 1]).to_vec::<i32>().unwrap(),
        [0, 1, 2, 3, 0, 1, 2, 3]
    );
    let y = x.tile(&[2, 1, 2]);
    assert_eq!(*y.shape(), [2, 2, 4]);
    assert_eq!(y.to_vec::<i32>().unwrap()[8..], [0, 1, 0, 1, 2, 3, 2, 3]);
    assert_eq!(x.tile(&[]).to_vec::<i32>().unwrap(), [0, 1, 2, 3]);
    assert_eq!(*x.tile(&[0, 1]).shape(), [0, 2]);
    assert_eq!(
        Tensor::scalar(7).tile(&[3]).to_vec::<i32>().unwrap(),
        [7; 3]
    );
    let many = counted(&[1, 2, 1, 2, 1, 1, 1, 2]);
    assert_eq!(*many.repeat(2, 3).shape(), [1, 2, 1, 4, 1, 1, 1, 2]);
}

#[test]
fn counts_beyond_memory_are_errors() {
    let x = counted(&[2, 2]);
    for y in [
        x.repeat(usize::MAX, 0),
        x.tile(&[usize::MAX, 1]),
        x.repeat(1 << 62, 1),
        x.pad(&[(usize::MAX, 1), (0, 0)], 0),
        x.pad(&[(1 << 60, 1 << 60), (0, 0)], 0),
    ] {
        assert!(matches!(y.eval(), Err(Error::SizeOverflow { .. })), "{y:?}");
    }
    for y in [
        x.repeat(1 << 48, 0),
        x.tile(&[1 << 48, 1]),
        x.pad(&[(1 << 48, 0), (0, 0)], 0),
    ] {
        assert!(matches!(y.eval(), Err(Error::OutOfMemory { .. })), "{y:?}");
    }
    assert!(matches!(x.repeat(2, 2).eval(), Err(Error::BadAxis { .. })));
    assert!(matches!(
        x.tile(&[1; 9]).eval(),
        Err(Error::RankTooLarge { .. })
    ));
}

#[test]
fn a_border_is_put_around() {
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
fn triangles_end_at_their_diagonal() {
    let x = counted(&[3, 3]) + 1;
    assert_eq!(
        x.tril(0).to_vec::<i32>().unwrap(),
        [1, 0, 0, 4, 5, 0, 7, 8, 9]
    );
    assert_eq!(
        x.triu(0).to_vec::<i32>().unwrap(),
        [1, 2, 3, 0, 5, 6, 0, 0, 9]
    );
    assert_eq!(
        x.tril(1).to_vec::<i32>().unwrap(),
        [1, 2, 0, 4, 5, 6, 7, 8, 9]
    );
    assert_eq!(
        x.triu(-1).to_vec::<i32>().unwrap(),
        [1, 2, 3, 4, 5, 6, 0, 8, 9]
    );
    assert_eq!(
        x.t().tril(-1).to_vec::<i32>().unwrap(),
        [0, 0, 0, 2, 0, 0, 3, 6, 0]
    );
    for k in [isize::MIN, isize::MAX] {
        let (lower, upper) = (
            x.tril(k).to_vec::<i32>().unwrap(),
            x.triu(k).to_vec::<i32>().unwrap(),
        );
        let whole = if k > 0 { &lower } else { &upper };
        assert_eq!(*whole, x.to_vec::<i32>().unwrap());
        assert_eq!(if k > 0 { upper } else { lower }, [0; 9]);
    }
    let batch = counted(&[2, 2, 3]).tril(0);
    assert_eq!(
        batch.to_vec::<i32>().unwrap(),
        [0, 0, 0, 3, 4, 0, 6, 0, 0, 9, 10, 0]
    );
    assert!(matches!(
        counted(&[3]).tril(0).eval(),
        Err(Error::BadShape { .. })
    ));
    assert!(matches!(
        Tensor::scalar(1).triu(0).eval(),
        Err(Error::BadShape { .. })
    ));
}
