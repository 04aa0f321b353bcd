use bessemer::{DType, Error, Tensor};
use bessemer_testing::case::{Fill, broadcasting, check, compiled, input};
use bessemer_testing::layout::agree;
use bessemer_testing::reference::binary::{Binary, binary};
use proptest::prelude::{Just, Strategy};

pub(crate) fn run(f: Binary, a: &Tensor, b: &Tensor) -> Tensor {
    match f {
        Binary::Add => a.add(b),
        Binary::Sub => a.sub(b),
        Binary::Mul => a.mul(b),
        Binary::Div => a.div(b),
        Binary::FloorDiv => a.floor_div(b),
        Binary::Rem => a.rem(b),
        Binary::Pow => a.pow(b),
        Binary::Minimum => a.minimum(b),
        Binary::Maximum => a.maximum(b),
        Binary::Atan2 => a.atan2(b),
        Binary::Hypot => a.hypot(b),
        Binary::Eq => a.eq(b),
        Binary::Ne => a.ne(b),
        Binary::Lt => a.lt(b),
        Binary::Le => a.le(b),
        Binary::Gt => a.gt(b),
        Binary::Ge => a.ge(b),
        Binary::LogicalAnd => a.logical_and(b),
        Binary::LogicalOr => a.logical_or(b),
        Binary::LogicalXor => a.logical_xor(b),
        Binary::BitwiseAnd => a.bitwise_and(b),
        Binary::BitwiseOr => a.bitwise_or(b),
        Binary::BitwiseXor => a.bitwise_xor(b),
        Binary::ShiftLeft => a.shift_left(b),
        Binary::ShiftRight => a.shift_right(b),
    }
}

fn pairs(
    left: &[DType],
    right: &[DType],
) -> impl Strategy<Value = [bessemer_testing::case::Input; 2]> + use<> {
    let (left, right) = (left.to_vec(), right.to_vec());
    broadcasting::<2>(4, 1000).prop_flat_map(move |[a, b]| {
        let a = input(&left, &Fill::ALL, Just(a));
        let b = input(&right, &Fill::ALL, Just(b));
        (a, b).prop_map(|(a, b)| [a, b])
    })
}

#[test]
fn every_function_of_every_type_in_every_layout_is_its_reference() {
    for f in Binary::ALL {
        for dtype in DType::ALL {
            if f.meeting(dtype, dtype).is_none() {
                let x = Tensor::ones([2], dtype);
                let y = run(f, &x, &x);
                assert!(
                    matches!(y.check(), Err(Error::BadDType { .. })),
                    "{f:?} {dtype}"
                );
                continue;
            }
            let cases = pairs(&[dtype], &[dtype]);
            check(&format!("{} of {dtype}", f.name()), 20, cases, |[a, b]| {
                let expected = binary(f, &a.array(), &b.array());
                agree(
                    f.name(),
                    1,
                    &run(f, &a.tensor(), &b.tensor()),
                    &expected,
                    None,
                )
            });
        }
    }
}

#[test]
fn numbers_of_different_types_meet_as_in_numpy() {
    for f in Binary::ALL {
        check(
            &format!("{} of two types", f.name()),
            compiled(150),
            pairs(&DType::ALL, &DType::ALL),
            |[a, b]| {
                let y = run(f, &a.tensor(), &b.tensor());
                if f.meeting(a.dtype, b.dtype).is_none() {
                    return match y.check() {
                        Err(Error::BadDType { .. }) => Ok(()),
                        other => Err(format!("expected an error, got {other:?}")),
                    };
                }
                agree(f.name(), 1, &y, &binary(f, &a.array(), &b.array()), None)
            },
        );
    }
}

#[test]
fn shapes_that_do_not_broadcast_are_an_error_that_names_them() {
    let (a, b) = (
        Tensor::ones([2, 3], DType::F32),
        Tensor::ones([2], DType::F32),
    );
    for f in Binary::ALL {
        let error = match f.meeting(DType::F32, DType::F32) {
            Some(_) => run(f, &a, &b).to_vec::<f32>().unwrap_err(),
            None => continue,
        };
        let text = error.to_string();
        assert!(
            text.contains(f.name()) && text.contains("[2, 3]") && text.contains("[2]"),
            "{text}"
        );
    }
}
