use bessemer::DType;
use bessemer_testing::Array;
use bessemer_testing::case::{Fill, Input, broadcasting, check, input};
use bessemer_testing::layout::{agree, tensor};
use bessemer_testing::reference::binary::{Binary, binary};
use bessemer_testing::reference::ternary;
use proptest::prelude::{Just, Strategy};

fn triples(first: DType, rest: DType, fills: &'static [Fill]) -> impl Strategy<Value = [Input; 3]> {
    broadcasting::<3>(4, 1000).prop_flat_map(move |[a, b, c]| {
        let a = input(&[first], fills, Just(a));
        let b = input(&[rest], fills, Just(b));
        let c = input(&[rest], fills, Just(c));
        (a, b, c).prop_map(|(a, b, c)| [a, b, c])
    })
}

#[test]
fn every_function_matches_the_reference() {
    // Small integers, for which every function is exact.
    let floats = |x: &[f64]| Array::floats(DType::F32, &[x.len()], x);
    let x = floats(&[1.0, -2.0, 0.0, 3.0]);
    let (y, z) = (
        floats(&[-1.0, 4.0, 2.0, 0.0]),
        floats(&[2.0, 5.0, -3.0, 1.0]),
    );
    for (name, call, reference) in ternary::CALLS {
        let condition = call(&tensor(&x), &tensor(&y), &tensor(&z)).check().is_err();
        let x = if condition {
            Array::ints(DType::Bool, &[4], &[1, 0, 0, 1])
        } else {
            x.clone()
        };
        let got = call(&tensor(&x), &tensor(&y), &tensor(&z));
        agree(name, 1, &got, &reference(&x, &y, &z), None).expect(name);
    }
}

#[test]
fn select_supports_every_type() {
    for dtype in DType::ALL {
        check(
            &format!("select of {dtype}"),
            40,
            triples(DType::Bool, dtype, &Fill::ALL),
            |[c, a, b]| {
                let expected = ternary::select(&c.array(), &a.array(), &b.array());
                agree(
                    "select",
                    1,
                    &c.tensor().select(a.tensor(), b.tensor()),
                    &expected,
                    None,
                )
            },
        );
    }
}

#[test]
fn clamp_supports_every_type() {
    for dtype in DType::ALL {
        check(
            &format!("clamp of {dtype}"),
            40,
            triples(dtype, dtype, &Fill::ALL),
            |[x, low, high]| {
                let expected = ternary::clamp(&x.array(), &low.array(), &high.array());
                agree(
                    "clamp",
                    1,
                    &x.tensor().clamp(low.tensor(), high.tensor()),
                    &expected,
                    None,
                )
            },
        );
    }
}

#[test]
fn mul_add_rounds_once_in_every_type() {
    for dtype in DType::ALL.into_iter().filter(|&d| d != DType::Bool) {
        check(
            &format!("mul_add of {dtype}"),
            40,
            triples(dtype, dtype, &Fill::ALL),
            |[a, b, c]| {
                let expected = ternary::mul_add(&a.array(), &b.array(), &c.array());
                agree(
                    "mul_add",
                    1,
                    &a.tensor().mul_add(b.tensor(), c.tensor()),
                    &expected,
                    None,
                )
            },
        );
    }
}

#[test]
fn lerp_interpolates_between_two_values() {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        check(
            &format!("lerp of {dtype}"),
            40,
            triples(dtype, dtype, &Fill::IN_RANGE),
            |[a, b, t]| {
                let (x, y, z) = (a.array(), b.array(), t.array());
                let expected = ternary::lerp(&x, &y, &z);
                let (x, y, z) = (x.magnitudes(), y.magnitudes(), z.magnitudes());
                let way = binary(Binary::Mul, &z, &binary(Binary::Add, &x, &y));
                let size = binary(Binary::Add, &x, &way);
                agree(
                    "lerp",
                    1,
                    &a.tensor().lerp(b.tensor(), t.tensor()),
                    &expected,
                    Some(&size),
                )
            },
        );
    }
}

#[test]
fn all_three_operands_are_promoted() {
    for first in [DType::U8, DType::I32, DType::F16] {
        for rest in [DType::I8, DType::U32, DType::BF16] {
            check(
                &format!("clamp of {first} and {rest}"),
                10,
                triples(first, rest, &Fill::ALL),
                |[x, low, high]| {
                    let expected = ternary::clamp(&x.array(), &low.array(), &high.array());
                    agree(
                        "clamp",
                        1,
                        &x.tensor().clamp(low.tensor(), high.tensor()),
                        &expected,
                        None,
                    )
                },
            );
        }
    }
}
