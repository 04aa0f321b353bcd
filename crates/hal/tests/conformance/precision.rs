//! Rounding of half and bfloat at every operation.

use std::fmt::Debug;

use bytemuck::Pod;
use half::{bf16, f16};

use crate::harness::{Run, Source, source};

const SOURCE: Source = source!("precision.metal");

/// A 16-bit format: every operation is done in double precision and rounded.
///
/// That is correctly rounded for one `+ - * /`: double has more than 2p + 2 bits.
trait Narrow: Pod + PartialEq + Debug {
    fn round(value: f64) -> Self;
    fn wide(self) -> f64;
}

impl Narrow for f16 {
    fn round(value: f64) -> Self {
        Self::from_f64(value)
    }
    fn wide(self) -> f64 {
        self.to_f64()
    }
}

impl Narrow for bf16 {
    fn round(value: f64) -> Self {
        Self::from_f64(value)
    }
    fn wide(self) -> f64 {
        self.to_f64()
    }
}

fn check<T: Narrow>(kernel: &str, cases: &[[f64; 3]]) {
    let r = |v: f64| T::round(v).wide();
    let input: Vec<T> = cases.iter().flatten().map(|v| T::round(*v)).collect();
    let mut excess = 0;
    let expected: Vec<T> = input
        .chunks(3)
        .flat_map(|case| {
            let [a, b, c] = [case[0].wide(), case[1].wide(), case[2].wide()];
            let rounded = [
                r(r(a + b) + c),
                r(r(a - b) - c),
                r(r(a * b) * c),
                r(r(a / b) / c),
                r(r(a + b) * c),
                r(r(a + b) - a),
                r(r(a + b) - a),
                r(r(b + c) * a),
            ];
            let at_the_end = [a + b + c, a - b - c, a * b * c, a / b / c, (a + b) * c];
            excess += (0..5).filter(|i| r(at_the_end[*i]) != rounded[*i]).count();
            rounded
        })
        .map(T::round)
        .collect();
    assert!(excess >= 5, "the cases must tell excess precision apart");
    Run::kernel(&SOURCE, kernel)
        .input(0, &input)
        .output::<T>(1, expected.len())
        .threads(cases.len(), 32)
        .expect(1, &expected);
}

#[test]
fn half_rounds_at_every_operation() {
    check::<f16>(
        "every_half",
        &[
            [2048., 1., 1.],
            [2048., 3., 1.],
            [0.1, 0.2, 0.3],
            [1.001, 1.003, 1.007],
            [3.3, 7.7, 1.9],
            [1000.5, 0.25, 0.25],
            [-17.3, 4.1, 0.7],
            [0.33, 1.7, 11.],
        ],
    );
}

#[test]
fn bfloat_rounds_at_every_operation() {
    check::<bf16>(
        "every_bfloat",
        &[
            [256., 1., 1.],
            [256., 3., 1.],
            [0.1, 0.2, 0.3],
            [1.01, 1.03, 1.07],
            [3.3, 7.7, 1.9],
            [100.5, 0.25, 0.25],
            [-17.3, 4.1, 0.7],
            [0.33, 1.7, 11.],
        ],
    );
}

#[test]
fn half_overflows_where_float_would_not() {
    let h = f16::from_f32;
    Run::kernel(&SOURCE, "overflow")
        .input(0, &[h(40000.), h(256.)])
        .output::<f16>(1, 4)
        .threads(1, 1)
        .expect(1, &[f16::INFINITY, f16::INFINITY, f16::INFINITY, h(20256.)]);
}

#[test]
fn sums_stop_growing_at_the_precision_of_the_format() {
    fn sum<T: Narrow>(kernel: &str, count: u32, limit: f64) {
        let ones = vec![T::round(1.); count as usize];
        Run::kernel(&SOURCE, kernel)
            .input(0, &ones)
            .output::<T>(1, 1)
            .bytes(2, &count)
            .threads(1, 1)
            .expect(1, &[T::round(limit)]);
    }
    sum::<f16>("sum_half", 3000, 2048.);
    sum::<bf16>("sum_bfloat", 3000, 256.);
    Run::kernel(&SOURCE, "sum_float")
        .input(0, &[1_f32; 3000])
        .output::<f32>(1, 1)
        .bytes(2, &3000_u32)
        .threads(1, 1)
        .expect(1, &[3000_f32]);
}

#[test]
fn mixed_operands_compute_in_the_wider_type() {
    let (a, b) = (f16::from_f32(2048.), f16::from_f32(1.));
    Run::kernel(&SOURCE, "mixed_operands")
        .input(0, &[a, b])
        .input(1, &[1.0_f32])
        .output::<f32>(2, 6)
        .threads(1, 1)
        // `half + int` is half, so 2048 + 1 rounds back to 2048.
        .expect(2, &[2049.0_f32, 4096., 4096., 2048., 2049., 2048.]);
}
