//! `concat`, `stack`, `split`, `roll`.

use bessemer::{DType, Error, Tensor};

use crate::data::counted;

#[test]
fn tensors_concatenate_along_any_axis() {
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
fn split_inverts_stack() {
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
fn rejects_mismatched_shapes() {
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
fn roll_rotates_elements() {
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

mod against_the_reference {
    use bessemer::Tensor;
    use bessemer_testing::case::{Fill, Input};
    use bessemer_testing::layout::same;
    use bessemer_testing::reference::arrange::{concat, roll, split, stack};

    use crate::axis::{along_an_axis, another, axis_index, in_all_sizes, often};

    fn agree(
        inputs: &[Input],
        axis: isize,
        op: fn(&[&Tensor], isize) -> Tensor,
        reference: fn(&[&bessemer_testing::Array], isize) -> bessemer_testing::Array,
    ) -> Result<(), String> {
        let tensors: Vec<_> = inputs.iter().map(Input::tensor).collect();
        let arrays: Vec<_> = inputs.iter().map(Input::array).collect();
        same(
            &op(&tensors.iter().collect::<Vec<_>>(), axis),
            &reference(&arrays.iter().collect::<Vec<_>>(), axis),
        )
    }

    #[test]
    fn concat_of_every_type_layout_and_axis_is_right() {
        in_all_sizes("concat", 400, |case, axis, rng| {
            let mut inputs = vec![case.clone()];
            for _ in 0..rng.below(4) {
                let mut shape = case.shape.clone();
                shape[axis_index(case, axis)] = rng.below(9);
                let dtype = often(rng, case.dtype);
                inputs.push(another(rng, dtype, &shape));
            }
            agree(&inputs, axis, Tensor::concat, concat)
        });
    }

    #[test]
    fn stack_of_every_type_layout_and_axis_is_right() {
        along_an_axis("stack", &Fill::ALL, 300, |case, _, rng| {
            let mut inputs = vec![case.clone()];
            for _ in 0..rng.below(4) {
                let dtype = often(rng, case.dtype);
                inputs.push(another(rng, dtype, &case.shape));
            }
            let rank = case.shape.len() + 1;
            let axis = rng.below(2 * rank) as isize - rank as isize;
            agree(&inputs, axis, Tensor::stack, stack)
        });
    }

    #[test]
    fn split_of_every_type_layout_and_axis_is_right() {
        along_an_axis("split", &Fill::ALL, 500, |case, axis, rng| {
            let len = case.shape[axis_index(case, axis)];
            let first = rng.below(len + 1);
            let second = rng.below(len - first + 1);
            let sizes = [first, second, len - first - second];
            let (x, t) = (case.array(), case.tensor());
            let parts = t.split_sizes(&sizes, axis);
            assert_eq!(parts.len(), 3);
            let expected = split(&x, &sizes, axis);
            assert_eq!(expected.len(), 3);
            for (got, expected) in parts.iter().zip(&expected) {
                same(got, expected)?;
            }
            let n = [3, 2, 1].into_iter().find(|n| len.is_multiple_of(*n));
            let n = n.unwrap_or(1);
            let parts = t.split(n, axis);
            assert_eq!(parts.len(), n);
            let expected = split(&x, &vec![len / n; n], axis);
            assert_eq!(expected.len(), n);
            for (got, expected) in parts.iter().zip(&expected) {
                same(got, expected)?;
            }
            Ok(())
        });
    }

    #[test]
    fn roll_of_every_type_layout_and_axis_is_right() {
        in_all_sizes("roll", 500, |case, axis, rng| {
            let near = rng.below(300) as isize - 150;
            let shift = rng.pick(&[near, near, near, isize::MIN, isize::MAX]);
            same(
                &case.tensor().roll(shift, axis),
                &roll(&case.array(), shift, axis),
            )
        });
    }
}
