//! Matrices.

use bytemuck::{Pod, Zeroable};
use half::f16;

use crate::harness::{Run, Source, source};

const SOURCE: Source = source!("matrix.metal");

#[rustfmt::skip]
const EXPECTED: &[f64] = &[
    23., 34., 31., 46.,  6., 8., 10., 12.,  4., 4., 4., 4.,  2., 4., 6., 8.,  3., 6., 9., 12.,
    -1., -2., -3., -4.,  1., 3., 2., 4.,  7., 10.,  5., 11.,  2., 0., 0., 2.,  3., 4.,
    // c = columns {7, 8}, {9, 4}; c * b; + a
    7., 8., 9., 4.,  89., 64., 121., 88.,  90., 66., 124., 92.,
    // transpose(d): 3 columns of 2; d * a; d * transpose(d)
    1., 4., 2., 5., 3., 6.,  9., 12., 15., 19., 26., 33.,
    17., 22., 27., 22., 29., 36., 27., 36., 45.,
    5., 7., 9.,  7., 16.,
    5., 13., 6.,  3., 5., 7., 2.,  1., 1., 1., 7.,
];

#[test]
fn matrices_multiply_by_columns() {
    Run::kernel(&SOURCE, "matrices_float")
        .input(0, &[1.0_f32, 2., 3., 4.])
        .output::<f32>(1, EXPECTED.len())
        .threads(1, 1)
        .expect(1, &EXPECTED.iter().map(|v| *v as f32).collect::<Vec<_>>());
    Run::kernel(&SOURCE, "matrices_half")
        .input(0, &[1.0_f32, 2., 3., 4.].map(f16::from_f32))
        .output::<f16>(1, EXPECTED.len())
        .threads(1, 1)
        .expect(
            1,
            &EXPECTED
                .iter()
                .map(|v| f16::from_f64(*v))
                .collect::<Vec<_>>(),
        );
}

#[test]
fn determinants_of_small_matrices() {
    Run::kernel(&SOURCE, "determinants")
        .output::<f32>(0, 3)
        .threads(1, 1)
        .expect(0, &[-2.0_f32, 36., 16.]);
}

#[repr(C, align(16))]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
struct Transform {
    m: [[f32; 4]; 4],
    n: [[f32; 4]; 3],
    h: [[f16; 4]; 2],
}

#[test]
fn matrices_are_stored_by_columns_with_the_padding_of_their_vectors() {
    let mut transform = Transform::zeroed();
    transform.m = [
        [1., 0., 0., 0.],
        [0., 2., 0., 0.],
        [0., 0., 3., 0.],
        [10., 20., 30., 1.],
    ];
    transform.n = [[0., 1., 0., 9.], [1., 0., 0., 9.], [0., 0., 2., 9.]];
    transform.h[1][3] = f16::from_f32(5.0);
    Run::kernel(&SOURCE, "matrices_in_memory")
        .bytes(0, &transform)
        .input(1, &[1.0_f32, 2., 3., 1., 4., 5., 6., 0.])
        .output::<f32>(2, 16)
        .threads(2, 2)
        .expect(
            2,
            &[
                11.0_f32, 24., 39., 1., 2., 1., 6., 5., 4., 10., 18., 0., 5., 4., 12., 5.,
            ],
        );
}
