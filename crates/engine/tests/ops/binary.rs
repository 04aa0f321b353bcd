use bessemer::{DType, Error, Tensor};
use bessemer_testing::case::{Fill, broadcasting, check, compiled, input};
use bessemer_testing::layout::agree;
use bessemer_testing::reference::binary::{Binary, binary};
use proptest::prelude::{Just, Strategy};

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
fn every_function_type_and_layout_matches_the_reference() {
    for &f in Binary::ALL {
        for dtype in DType::ALL {
            if f.operand_dtype(dtype, dtype).is_none() {
                let x = Tensor::ones([2], dtype);
                let y = f.call(&x, &x);
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
                    &f.call(&a.tensor(), &b.tensor()),
                    &expected,
                    None,
                )
            });
        }
    }
}

#[test]
fn operands_promote_as_in_numpy() {
    for &f in Binary::ALL {
        check(
            &format!("{} of two types", f.name()),
            compiled(150),
            pairs(&DType::ALL, &DType::ALL),
            |[a, b]| {
                let y = f.call(&a.tensor(), &b.tensor());
                if f.operand_dtype(a.dtype, b.dtype).is_none() {
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
fn rejects_shapes_that_do_not_broadcast() {
    let (a, b) = (
        Tensor::ones([2, 3], DType::F32),
        Tensor::ones([2], DType::F32),
    );
    for &f in Binary::ALL {
        let error = match f.operand_dtype(DType::F32, DType::F32) {
            Some(_) => f.call(&a, &b).to_vec::<f32>().unwrap_err(),
            None => continue,
        };
        let text = error.to_string();
        assert!(
            text.contains(f.name()) && text.contains("[2, 3]") && text.contains("[2]"),
            "{text}"
        );
    }
}
