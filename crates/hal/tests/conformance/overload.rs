//! MSL's conversions, deduction and overloads, and other valid code that is easily rejected.

use crate::harness::{Run, Source, source};

const SOURCE: Source = source!("overload.metal");

#[test]
fn scalars_are_converted_to_vectors_in_every_position() {
    let expected: [[f32; 4]; 16] = [
        [3., 6., 9., 12.],
        [5., 6., 7., 8.],
        [3., 6., 9., 12.],
        [0., 0., 3., 4.],
        [1., 2., 0.5, 0.5],
        [2.5, 2.5, 3., 3.],
        [2., 2., 3., 3.],
        [0.5, 1., 1.5, 2.],
        [4.5, 5., 5.5, 6.],
        [0.; 4],
        [3.5, 4.5, 5., 6.],
        [0., 0., 1., 1.],
        [0., 1., 2., 1.],
        [7., 8., 9., 12.],
        [8., 16., 24., 32.],
        [3., 5., 7., 9.],
    ];
    Run::kernel(&SOURCE, "scalars_beside_vectors")
        .output::<f32>(0, 64)
        .input(1, &[1.0_f32, 2., 3., 4.])
        .threads(1, 1)
        .expect(0, &expected.concat());
    let expected = [[3, 3, 3, 4], [1, 2, 9, 9], [5, 8, 11, 14], [3, 4, 6, 7]];
    Run::kernel(&SOURCE, "integers_beside_vectors")
        .output::<i32>(0, 16)
        .input(1, &[1, 2, 3, 4])
        .threads(1, 1)
        .expect(0, &expected.concat());
}

#[test]
fn shifts_accept_amounts_of_other_types() {
    let expected = [
        [-4, 4, 0, 1],
        [-64, 16, i32::MIN, 6],
        [15, 4, 1, 1],
        [-32, 32, 8, 48],
        [-2, 2, 1, 3],
        [-64, 32, 4, 12],
        [1 << 8, 2, 8, 1 << 8],
    ];
    Run::kernel(&SOURCE, "mixed_shifts")
        .output::<i32>(0, 28)
        .output::<u64>(1, 2)
        .input(2, &[-16, 8, 1, 3])
        .threads(1, 1)
        .expect(0, &expected.concat())
        .expect(1, &[1_u64 << 40, 1 << 63]);
}

#[test]
fn sizes_are_deduced_as_any_integer_type() {
    Run::kernel(&SOURCE, "deduced_sizes")
        .output::<f32>(0, 6)
        .threads(1, 1)
        .expect(0, &[6.0_f32, 8., 2., 6., 4., 16.]);
}

#[test]
fn exact_library_functions_are_preferred_to_user_templates() {
    let expected = [8.0_f32, 200., 100., -1., 300., 2., 2., 9., 500., 600., 100.];
    Run::kernel(&SOURCE, "own_templates")
        .output::<f32>(0, 11)
        .threads(1, 1)
        .expect(0, &expected);
}

#[test]
fn volatile_vectors_are_read_and_written() {
    let rows = [[1.0_f32, 2., 3., 4.], [3., 6., 9., 12.], [2., 1., 9., 7.]];
    Run::kernel(&SOURCE, "volatile_vectors")
        .output::<f32>(0, 12)
        .output::<u32>(1, 8)
        .threads(1, 1)
        .expect(0, &rows.concat())
        .check(1, |launch, got: &[u32]| {
            let pair = [1.0_f32, 2., 3., 4.].map(f32::to_bits);
            assert_eq!(got[..4], pair, "{launch}");
            assert_eq!(got[4], 3, "{launch}");
        });
}

#[test]
fn vectors_have_the_limits_of_their_components() {
    let rows = [[f32::MAX; 4], [f32::NEG_INFINITY; 4], [1.; 4]];
    Run::kernel(&SOURCE, "limits_of_vectors")
        .output::<f32>(0, 12)
        .output::<i32>(1, 4)
        .threads(1, 1)
        .expect(0, &rows.concat())
        .check(1, |launch, got: &[i32]| {
            assert_eq!(got[..3], [i32::MIN; 3], "{launch}")
        });
}

#[test]
fn constructors_accept_lists() {
    Run::kernel(&SOURCE, "lists")
        .output::<f32>(0, 2)
        .threads(1, 1)
        .expect(0, &[4.0_f32, 7.]);
}

#[test]
fn functions_can_be_recursive() {
    let factorials = [1, 1, 2, 6, 24, 120, 720, 5040];
    let mut expected: Vec<i32> = (0..8)
        .rev()
        .map(|i| factorials[i] * 10 + i32::from(i % 2 == 0))
        .collect();
    expected.extend([3, 1, 4, 0, 5, 2, 6]);
    Run::kernel(&SOURCE, "recursion")
        .output::<i32>(0, 15)
        .input(1, &[0, 1, 2, 3, 4, 5, 6])
        .threads(8, 8)
        .expect(0, &expected);
}

#[test]
fn a_kernel_may_have_the_name_of_a_library_function() {
    Run::kernel(&SOURCE, "exp")
        .output::<f32>(0, 1)
        .threads(1, 1)
        .expect(0, &[1.0_f32]);
}

#[test]
fn vectors_of_one_component_are_shared() {
    let expected: Vec<u32> = (0..32).rev().collect();
    Run::kernel(&SOURCE, "shared_singles")
        .output::<u32>(0, 32)
        .threads(32, 32)
        .expect(0, &expected);
}

#[test]
fn a_template_gives_an_argument_its_index() {
    Run::kernel(&SOURCE, "slots")
        .output::<u32>(4, 3)
        .threads(3, 3)
        .expect(4, &[0_u32, 1, 2]);
}
