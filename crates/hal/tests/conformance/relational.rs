//! Relational functions and special values.

use half::f16;

use crate::harness::{Run, Source, source};

const SOURCE: Source = source!("relational.metal");

fn class(x: f32) -> u32 {
    u32::from(x.is_finite())
        | u32::from(x.is_infinite()) << 1
        | u32::from(x.is_nan()) << 2
        | u32::from(x.is_normal()) << 3
        | u32::from(x.is_sign_negative()) << 4
        | u32::from(!x.is_nan()) << 5
        | u32::from(x.is_nan()) << 6
        | u32::from(!x.is_nan()) << 7
        | u32::from(x < 1.0) << 8
        | u32::from(x.is_nan() || x < 1.0) << 9
}

#[test]
fn values_are_classified() {
    let values = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        3.5,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    Run::kernel(&SOURCE, "classify_float")
        .input(0, &values)
        .output::<u32>(1, values.len())
        .threads(values.len(), 32)
        .expect(1, &values.map(class));
    Run::kernel(&SOURCE, "classify_half")
        .input(0, &values.map(f16::from_f32))
        .output::<u32>(1, values.len())
        .threads(values.len(), 32)
        .expect(1, &values.map(class));
}

#[test]
fn relational_functions_work_by_component() {
    let x = [1.0, f32::NAN, f32::NEG_INFINITY, -0.0];
    let y = [2.0, 3.0, f32::NAN, 0.0];
    let expected = [
        0, 1, 0, 1, // all, any, any, all
        0, 1, 0, 0, // isnan
        0, 1, 1, 0, // isunordered
        0, 0, 1, 1, // signbit
        1, 0, 1, 1, // not
        1, 20, 3, 4, // select
        2, 5, 0, 1, 1_u32,
    ];
    Run::kernel(&SOURCE, "vector_relational")
        .input(0, &[x, y].concat())
        .output::<u32>(1, expected.len())
        .threads(1, 1)
        .expect(1, &expected);
}

#[test]
fn special_values_follow_ieee_rules_with_safe_maths() {
    use std::f32::consts::{FRAC_PI_2, PI};
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let expected = [
        1.0, 1.0, nan, 1.0, nan, inf, -inf, nan, 0.0, -0.0, -1.0, 0.0, nan, -0.0, -inf, nan, 0.0,
        inf, 1.0, FRAC_PI_2, 1.0, -0.0, -0.0, -0.0, -0.0, 0.0, 1.0, nan, inf, -PI, -0.0, nan, 0.0,
        0.0,
    ];
    Run::kernel(&SOURCE, "special_values")
        .input(0, &[nan, inf, 0.0, -0.0, 1.0])
        .output::<f32>(1, expected.len())
        .threads(1, 1)
        .check(1, |launch, got: &[f32]| {
            for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
                let same = (got.is_nan() && expected.is_nan())
                    || (got.is_sign_negative() == expected.is_sign_negative()
                        && ((got - expected).abs() <= 1e-6 || *got == expected));
                assert!(
                    same,
                    "{launch}: case {i}: got {got:?}, expected {expected:?}"
                );
            }
        });
}
