//! Vectors of every element type.

use std::fmt::Debug;

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

use crate::harness::{Run, Source, source};
use crate::integer::{Integer, wrap};

const SOURCE: Source = source!("vector.metal");

/// A scalar type of MSL that small integers convert to.
trait Scalar: Pod + PartialEq + Debug {
    fn of(value: f64) -> Self;
}

macro_rules! scalar {
    ($($type:ty => $convert:expr),* $(,)?) => {$(
        impl Scalar for $type {
            fn of(value: f64) -> Self {
                $convert(value)
            }
        }
    )*};
}
scalar!(f32 => |v| v as f32, f16 => f16::from_f64, bf16 => bf16::from_f64, i8 => |v| v as i8,
        u8 => |v| v as u8, i16 => |v| v as i16, u16 => |v| v as u16, i32 => |v| v as i32,
        u32 => |v| v as u32, i64 => |v| v as i64, u64 => |v| v as u64);

fn all<T: Scalar>(values: &[f64]) -> Vec<T> {
    values.iter().map(|v| T::of(*v)).collect()
}

#[rustfmt::skip]
const SWIZZLED: [f64; 52] = [
    3., 1.,  4., 3., 2., 1.,  1., 1., 2.,  1., 2., 3.,  4.,  3., 2.,  2., 4.,
    7., 8., 3., 4.,  4., 2., 3., 1.,  2., 1., 3., 4.,  1., 3., 4., 5.,
    2., 2., 6., 4.,  1., 2., 6., 4.,  1., 3., 11., 7.,  1., 3., 2.,
    4., 4., 1., 2.,
];

fn swizzles<T: Scalar>(name: &str) {
    Run::kernel(&SOURCE, &format!("swizzles_{name}"))
        .input(0, &all::<T>(&[1., 2., 3., 4.]))
        .output::<T>(1, SWIZZLED.len())
        .threads(1, 1)
        .expect(1, &all::<T>(&SWIZZLED));
}

#[test]
fn swizzles_of_floating_point_vectors_read_write_and_update() {
    swizzles::<f32>("float");
    swizzles::<f16>("half");
    swizzles::<bf16>("bfloat");
}

#[test]
fn swizzles_of_integer_vectors_read_write_and_update() {
    swizzles::<i32>("int");
    swizzles::<u32>("uint");
    swizzles::<i16>("short");
    swizzles::<u16>("ushort");
    swizzles::<i8>("char");
    swizzles::<u8>("uchar");
    swizzles::<i64>("long");
    swizzles::<u64>("ulong");
}

#[test]
#[rustfmt::skip]
fn constructors_accept_scalars_vectors_and_conversions() {
    let expected = [
        2., 2., 2., 2.,  1.5, -2.5, 5., 6.,  7., -2.5, 3.5, 8.,  3.5, 300., 1.5, -2.5,
        1.5, -2.5, 3.5, 9.,  9., 1.5, -2.5, 3.5,  1.5, -2.5, 1.,  1., 1.5, -2.5,  1.5, 300.,
        1., 2., 3.,  1.5, -2.5, 0., 1.,  1., -2., 3., 300.,  1., 254., 3., 44.,  1.5, -2.5, 3.5, 300.,
        2., -1., 4., 301.,  1., 0., 1., 0.,  0., 0., 0., 0.,  2., 3., 4., 5.,  3.5, 3.5,  7., 8.,  4., 3.,
    ];
    Run::kernel(&SOURCE, "constructors")
        .input(0, &[1.5_f32, -2.5, 3.5, 300.])
        .output::<f32>(1, expected.len())
        .threads(1, 1)
        .expect::<f32>(1, &expected.map(|v: f64| v as f32));
}

fn integer_operators<T: Integer>(name: &str) {
    let a = [13, 7, 100, 1].map(|v| v as i128);
    let b = [5, 7, 3, 9].map(|v| v as i128);
    let mut expected: Vec<T> = Vec::new();
    let mut put = |f: &dyn Fn(i128, i128) -> i128| {
        expected.extend((0..4).map(|i| T::from_wide(wrap::<T>(f(a[i], b[i])))));
    };
    put(&|a, b| a + b);
    put(&|a, b| a - b);
    put(&|a, b| a * b);
    put(&|a, b| a / b);
    put(&|a, b| a % b);
    put(&|a, b| a & b);
    put(&|a, b| a | b);
    put(&|a, b| a ^ b);
    put(&|a, _| !a);
    put(&|a, _| -a);
    put(&|a, _| a << 1);
    put(&|a, _| a >> 1);
    put(&|a, _| a + 3);
    put(&|a, _| 3 - a);
    let compound = |a: i128, b: i128| wrap::<T>(wrap::<T>(a + b) << 1) ^ b;
    put(&compound);
    put(&compound);
    put(&compound);
    put(&|a, b| if a < b { b } else { a });
    put(&|a, b| i128::from(a == b) + 2 * i128::from(a != b));
    put(&|a, b| i128::from(a >= b) + 2 * i128::from(a <= b) + 4 * i128::from(a > b));
    put(&|a, _| a);
    let input: Vec<T> = a.iter().chain(&b).map(|v| T::from_wide(*v)).collect();
    Run::kernel(&SOURCE, &format!("operators_{name}"))
        .input(0, &input)
        .output::<T>(1, expected.len())
        .threads(1, 1)
        .expect(1, &expected);
}

#[test]
fn integer_vector_operators_work_by_component_and_wrap() {
    integer_operators::<i32>("int");
    integer_operators::<u32>("uint");
    integer_operators::<i16>("short");
    integer_operators::<u16>("ushort");
    integer_operators::<i8>("char");
    integer_operators::<u8>("uchar");
    integer_operators::<i64>("long");
}

#[test]
#[rustfmt::skip]
fn floating_point_vector_operators_work_by_component() {
    let expected = [
        5., 0., 7.5,  -3., -4., 8.5,  4., -4., -4.,  0.25, -1., -16.,  -1., 2., -8.,  3., -3., 17.,
        0.25, 0.5, -2.,  1.5, -2.5, -2.5,  4., 2., 8.,  0., 0., 1.,  1., 0., 0.,  1., 1., 1.,
    ];
    // Vectors of three have the size of four.
    let input = [1., -2., 8., 0., 4., 2., -0.5, 0.];
    fn check<T: Scalar>(name: &str, input: &[f64], expected: &[f64]) {
        Run::kernel(&SOURCE, &format!("operators_{name}"))
            .input(0, &all::<T>(input))
            .output::<T>(1, expected.len())
            .threads(1, 1)
            .expect(1, &all::<T>(expected));
    }
    check::<f32>("float", &input, &expected);
    check::<f16>("half", &input, &expected);
    check::<bf16>("bfloat", &input, &expected);
}

#[test]
#[rustfmt::skip]
fn types_have_the_sizes_and_alignments_of_the_specification() {
    let mut expected: Vec<u32> = Vec::new();
    for size in [1, 2, 2, 2, 4, 4, 8] {
        expected.extend([size, size, 2 * size, 2 * size, 4 * size, 4 * size, 4 * size, 4 * size]);
    }
    expected.extend([
        1, 1,  3, 1,  4, 1,  4, 2,  6, 2,  6, 2,  8, 2,  12, 4,  8, 4,  8, 4,  12, 4,  16, 4,
        16, 8,  32, 16,  48, 16,  64, 16,  16, 8,  24, 8,  32, 8,  8, 8,  8, 8,
    ]);
    Run::kernel(&SOURCE, "layouts")
        .output::<u32>(0, expected.len())
        .threads(1, 1)
        .expect(0, &expected);
}

/// `Mixed` as a C compiler lays it out with Metal's alignments.
#[repr(C, align(16))]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
struct Mixed {
    tag: i8,
    _a: [u8; 3],
    p: [f32; 3],
    h: f16,
    _b: [u8; 14],
    v: [f32; 4],
    pair: [u8; 2],
    q: [f16; 3],
    wide: i64,
    flag: u8,
    _c: [u8; 15],
}

#[test]
fn structs_of_packed_and_aligned_members_are_laid_out_as_in_c() {
    let h = |v: f32| f16::from_f32(v);
    let one = |tag| Mixed {
        tag,
        p: [1., 2., 3.],
        h: h(1.25),
        v: [4., 5., 6., 0.],
        pair: [7, 8],
        q: [h(9.), h(10.), h(11.)],
        wide: 1 << 40,
        flag: u8::from(tag == 1),
        ..Mixed::zeroed()
    };
    let expected = [1, 2].map(|tag| Mixed {
        tag: tag + 1,
        p: [1., 20., 3.],
        h: h(2.5),
        v: [7., 25., 7., 0.],
        pair: [8, 7],
        q: [h(9.), h(10.), h(3.)],
        wide: -(1 << 40),
        flag: u8::from(tag != 1),
        ..Mixed::zeroed()
    });
    Run::kernel(&SOURCE, "mixed_layout")
        .input(0, &[one(1), one(2)])
        .output::<Mixed>(1, 2)
        .output::<u32>(2, 2)
        .threads(2, 2)
        .expect(2, &[size_of::<Mixed>() as u32; 2])
        .check(1, |launch, got: &[Mixed]| {
            for (mut got, expected) in got.iter().copied().zip(expected) {
                // Padding, and the fourth element of a float3, are unspecified.
                (got._a, got._b, got._c) = Default::default();
                got.v[3] = 0.;
                assert_eq!(got, expected, "{launch}");
            }
        });
}

fn packed<T: Scalar>(name: &str) {
    let input: Vec<f64> = (0..15).map(f64::from).collect();
    let more: Vec<f64> = input.iter().map(|v| v + 1.).collect();
    let sums: Vec<f64> = input.chunks(3).map(|c| c.iter().sum()).collect();
    Run::kernel(&SOURCE, &format!("packed_{name}3_stride"))
        .input(0, &all::<T>(&input))
        .output::<T>(1, 15)
        .output::<T>(2, 5)
        .threads(5, 5)
        .expect(1, &all::<T>(&more))
        .expect(2, &all::<T>(&sums));
}

#[test]
fn packed_vectors_are_contiguous() {
    packed::<f32>("float");
    packed::<f16>("half");
    packed::<i32>("int");
    packed::<u8>("uchar");
}

#[test]
fn scalars_may_be_read_and_written_as_vectors() {
    let input: Vec<f32> = (0..32).map(|v| v as f32).collect();
    let expected: Vec<f32> = input
        .chunks(4)
        .flat_map(|c| [c[0] + c[3], c[1] + c[2], c[2] + c[1], c[3] + c[0]])
        .collect();
    Run::kernel(&SOURCE, "reinterpreted")
        .input(0, &input)
        .output::<f32>(1, 32)
        .threads(8, 8)
        .expect(1, &expected);
}

#[test]
#[rustfmt::skip]
fn geometric_and_common_functions_of_exact_arguments() {
    let expected = [
        11.,  8., 2., -6.,  3.,  25.,  12.,  5.,  0.6, 0.8,  1., 1.,  -3., 0., -4.,  0., -1.,
        1., 0., 2.,  3., 2., 4.,  2., 2., 2.,  3., 1., 3.5,  3., 1., 3.5,  2., 1., 3.,  0., 0.25,
        1., 0.,  0.5, 1.,  -1., 0., 1.,  2., 2.,  1., 3.,  2.,
    ];
    Run::kernel(&SOURCE, "vector_functions")
        .input(0, &[1_f32, 2., 2., 0., 3., 0., 4., 0.])
        .output::<f32>(1, expected.len())
        .threads(1, 1)
        .expect_within(1, "vector function", &expected, 0, |_| crate::tolerance::Bound::Ulp(4.0));
}
