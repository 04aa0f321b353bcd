//! Function constants.

use half::f16;

use crate::harness::{Run, Source, source};

const SOURCE: Source = source!("specialise.metal");

fn every_type() -> Run {
    Run::kernel(&SOURCE, "every_type").output::<f32>(0, 9)
}

#[test]
fn constants_of_every_type_are_passed() {
    every_type()
        .constant(0, true)
        .constant(1, -5_i32)
        .constant(2, 4_000_000_000_u32)
        .constant(3, 2.5_f32)
        .constant(4, f16::from_f32(0.75))
        .constant(5, -300_i16)
        .constant(6, 60_000_u16)
        .constant(7, -7_i8)
        .constant(8, 200_u8)
        .threads(1, 1)
        .expect(
            0,
            &[1.0_f32, -5., 4e9, 2.5, 0.75, -300., 60_000., -7., 200.],
        );
}

#[test]
fn each_set_of_values_is_a_separate_kernel() {
    for number in [1, 2, 3] {
        every_type()
            .constant(0, number == 2)
            .constant(1, number)
            .constant(2, 0_u32)
            .constant(3, number as f32 / 4.0)
            .constant(4, f16::ONE)
            .constant(5, 0_i16)
            .constant(6, 0_u16)
            .constant(7, 0_i8)
            .constant(8, 0_u8)
            .threads(1, 1)
            .check(0, |launch, got: &[f32]| {
                let flag = f32::from(u8::from(number == 2));
                let expected = [flag, number as f32, 0., number as f32 / 4.0, 1.];
                assert_eq!(got[..5], expected, "{launch}");
            });
    }
}

#[test]
fn derived_constants_follow_the_defined_ones() {
    let run = || Run::kernel(&SOURCE, "derived_constants").output::<i32>(0, 6);
    run().threads(1, 1).expect(0, &[0, 7, 15, 0, 200, 6]);
    run()
        .constant(1, 20_i32)
        .constant(10, false)
        .threads(1, 1)
        .expect(0, &[1, 20, 41, 0, 200, 6]);
    run()
        .constant(1, -1_i32)
        .constant(10, true)
        .constant(11, 10_u32)
        .threads(1, 1)
        .expect(0, &[1, -1, -1, 1, 100, 45]);
}

#[test]
fn inactive_arguments_need_not_be_bound() {
    let run = || {
        Run::kernel(&SOURCE, "gated_arguments")
            .input(0, &[1.0_f32, 2., 3., 4.])
            .output::<f32>(3, 4)
    };
    let offset = [10.0_f32, 20., 30., 40.];
    run()
        .constant(0, false)
        .threads(4, 4)
        .expect(3, &[1.0_f32, 2., 3., 4.]);
    run()
        .constant(0, true)
        .bytes(2, &0.5_f32)
        .threads(4, 4)
        .expect(3, &[1.5_f32, 2.5, 3.5, 4.5]);
    run()
        .constant(0, true)
        .constant(10, true)
        .input(1, &offset)
        .bytes(2, &0.5_f32)
        .threads(4, 4)
        .expect(3, &[11.5_f32, 22.5, 33.5, 44.5]);
}

#[test]
fn constants_reach_templates_and_loops_around_barriers() {
    let input: Vec<i32> = (1..=40).map(|i| i % 4 + 1).collect();
    let expected = |multiply: bool, tile: usize| -> Vec<i32> {
        (0..40)
            .map(|i| {
                let values = (0..tile).map(|k| input[(i + k) % 40]);
                if multiply {
                    values.product()
                } else {
                    values.sum()
                }
            })
            .collect()
    };
    Run::kernel(&SOURCE, "templated_int")
        .constant(0, true)
        .constant(11, 3_u32)
        .input(0, &input)
        .output::<i32>(1, 40)
        .memory(0, 160)
        .threads(40, 40)
        .expect(1, &expected(true, 3));
    let floats: Vec<f32> = input.iter().map(|v| *v as f32).collect();
    let sums: Vec<f32> = expected(false, 4).iter().map(|v| *v as f32).collect();
    Run::kernel(&SOURCE, "templated_float")
        .constant(0, false)
        .input(0, &floats)
        .output::<f32>(1, 40)
        .memory(0, 160)
        .threads(40, 40)
        .expect(1, &sums);
}
