//! Subnormal numbers. Those of `float` and `bfloat` are flushed to zero of the same sign before and after each
//! arithmetic operation, even in constant folding; those of `half` are kept, as by operations that only move bits.

use half::{bf16, f16};

use crate::harness::{Run, Source, source};

const SOURCE: Source = source!("subnormal.metal");

/// The smallest normal number.
const MIN_NORMAL: f32 = f32::MIN_POSITIVE;

/// Subnormal numbers of both signs, and normal ones around them.
fn numbers() -> Vec<f32> {
    let subnormal = [1, 2, 3, 0x1234, 0x0040_0000, 0x007f_ffff].map(f32::from_bits);
    let normal = [
        0.0,
        MIN_NORMAL,
        1.5 * MIN_NORMAL,
        1e-20,
        1.0,
        3.0,
        1e20,
        f32::MAX,
    ];
    let all: Vec<f32> = subnormal.into_iter().chain(normal).collect();
    all.iter().flat_map(|&x| [x, -x]).collect()
}

fn flushed(x: f32) -> f32 {
    if x.is_subnormal() {
        0.0_f32.copysign(x)
    } else {
        x
    }
}

fn flushed_bf16(x: f32) -> bf16 {
    bf16::from_f32(flushed(x))
}

/// The same bits, except of NaN.
#[track_caller]
fn expect_bits(launch: &str, what: &dyn Fn(usize) -> String, got: &[f32], expected: &[f32]) {
    assert_eq!(got.len(), expected.len(), "{launch}");
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        let same = g.to_bits() == e.to_bits() || g.is_nan() && e.is_nan();
        assert!(same, "{launch}: {}: got {g:e}, expected {e:e}", what(i));
    }
}

#[test]
fn arithmetic_flushes_subnormal_floats() {
    let numbers = numbers();
    let pairs: Vec<[f32; 2]> = numbers
        .iter()
        .flat_map(|&x| numbers.iter().map(move |&y| [x, y]))
        // The quotients and remainders of all others are exact or far from the smallest normal number.
        .collect();
    let expected: Vec<f32> = pairs
        .iter()
        .flat_map(|pair| {
            let [x, y] = pair.map(flushed);
            let bool = |b| if b { 1.0 } else { 2.0 };
            let scaled = flushed(x * 2_f32.powi(100)) * 2_f32.powi(100);
            [
                x + y,
                x - y,
                x * y,
                x / y,
                x.mul_add(y, x),
                x.sqrt(),
                x.floor(),
                x.ceil(),
                bool(x == 0.0),
                bool(x < y),
                (scaled as i32) as f32,
                x * 2_f32.powi(30),
                x % y,
                bool(x != 0.0),
                x * 2_f32.powi(126),
            ]
            .map(flushed)
        })
        .collect();
    Run::kernel(&SOURCE, "arithmetic")
        .constant(0, 1_f32)
        .input(0, &pairs)
        .output::<f32>(1, expected.len())
        .threads(pairs.len(), 32)
        .check(1, |launch, got| {
            let what = |i: usize| format!("result {} of {:?}", i % 15, pairs[i / 15]);
            expect_bits(launch, &what, got, &expected);
        });
}

#[test]
fn functions_flush_subnormal_floats() {
    let numbers: Vec<f32> = numbers()
        .into_iter()
        .filter(|x| x.abs() < MIN_NORMAL)
        .collect();
    let expected: Vec<f32> = numbers
        .iter()
        .flat_map(|&x| {
            let zero = flushed(x);
            let mut row = [zero; 16];
            row[8] = 0.0;
            row[10] = 0.0;
            row[12] = 1.0;
            row[13] = f32::NEG_INFINITY;
            row[14] = f32::NEG_INFINITY;
            row[15] = 0.0;
            row
        })
        .collect();
    Run::kernel(&SOURCE, "functions")
        .constant(0, 1_f32)
        .input(0, &numbers)
        .output::<f32>(1, expected.len())
        .threads(numbers.len(), 32)
        .check(1, |launch, got| {
            let what = |i: usize| format!("function {} of {:e}", i % 16, numbers[i / 16]);
            expect_bits(launch, &what, got, &expected);
        });
}

#[test]
fn moves_keep_the_bits() {
    let mut numbers = numbers();
    numbers.extend([5, 0x8000_0005, 7, 0x8000_0007].map(f32::from_bits));
    assert_eq!(numbers.len(), 32, "one SIMD-group");
    let brains: Vec<bf16> = (0..32).map(|i| bf16::from_bits(i * 4 + 1)).collect();
    let expected: Vec<u32> = (0..32)
        .flat_map(|i| {
            let (bits, other) = (numbers[i].to_bits(), numbers[i ^ 1].to_bits());
            let (minus, plus) = (bits ^ 1 << 31, bits & !(1 << 31));
            [bits, minus, plus, plus | 1 << 31, bits, other, other, bits]
        })
        .collect();
    let bits: Vec<u32> = numbers.iter().map(|x| x.to_bits()).collect();
    Run::kernel(&SOURCE, "moves")
        .constant(0, 1_f32)
        .input(0, &numbers)
        .input(1, &brains)
        .output::<u32>(2, expected.len())
        .output::<u32>(3, 32)
        .output::<bf16>(4, 32)
        .threads(32, 32)
        .expect(2, &expected)
        .expect(3, &bits)
        .expect(4, &brains);
}

#[test]
fn half_keeps_its_subnormal_numbers() {
    let numbers: Vec<f16> = [1_u16, 2, 3, 0x155, 0x3ff, 0x400, 0x401, 0x3c00, 0x4200]
        .into_iter()
        .flat_map(|bits| [f16::from_bits(bits), f16::from_bits(bits | 0x8000)])
        .collect();
    let pairs: Vec<[f16; 2]> = numbers
        .iter()
        .flat_map(|&x| numbers.iter().map(move |&y| [x, y]))
        .collect();
    let expected: Vec<u16> = pairs
        .iter()
        .flat_map(|pair| {
            let [x, y] = pair.map(f64::from);
            // One operation in double precision rounds correctly to half; the product and sum of `fma` are exact there.
            [
                x + y,
                x - y,
                x * y,
                x / y,
                x,
                x * 0.5,
                f64::from((x * y + x) as f32),
                x.max(0.0),
            ]
            .map(|v| f16::from_f64(v).to_bits())
        })
        .collect();
    let wide: Vec<f32> = pairs.iter().map(|pair| pair[0].to_f32()).collect();
    Run::kernel(&SOURCE, "in_half")
        .constant(0, 1_f32)
        .input(0, &pairs)
        .output::<u16>(1, expected.len())
        .output::<f32>(2, pairs.len())
        .threads(pairs.len(), 32)
        .check(1, |launch, got: &[u16]| {
            for (i, (g, e)) in got.iter().zip(&expected).enumerate() {
                // The sign of the larger of two zeros is unspecified.
                let same = g == e || i % 8 == 7 && (g | e) & 0x7fff == 0;
                let pair = pairs[i / 8];
                assert!(
                    same,
                    "{launch}: result {} of {pair:?}: {g:#x}, expected {e:#x}",
                    i % 8
                );
            }
        })
        .expect(2, &wide);
}

#[test]
fn arithmetic_flushes_subnormal_bfloats() {
    let numbers: Vec<bf16> = [
        1_u16, 2, 0x55, 0x7f, 0x80, 0x81, 0x1e00, 0x3f80, 0x4040, 0x6000,
    ]
    .into_iter()
    .flat_map(|bits| [bf16::from_bits(bits), bf16::from_bits(bits | 0x8000)])
    .collect();
    let pairs: Vec<[bf16; 2]> = numbers
        .iter()
        .flat_map(|&x| numbers.iter().map(move |&y| [x, y]))
        .collect();
    // Subnormal floats, and normal ones on both sides of bfloat's rounding boundary.
    let wide: Vec<f32> = (0..pairs.len() as u32)
        .map(|i| f32::from_bits((i % 2) << 31 | i.wrapping_mul(0x0001_2345) & 0x01ff_ffff))
        .collect();
    let expected: Vec<u16> = pairs
        .iter()
        .zip(&wide)
        .flat_map(|(pair, &w)| {
            let [x, y] = pair.map(|v| flushed(v.to_f32()));
            [x + y, x - y, x * y, x / y, w, x * y].map(|v| flushed_bf16(v).to_bits())
        })
        .collect();
    Run::kernel(&SOURCE, "in_bfloat")
        .constant(0, 1_f32)
        .input(0, &pairs)
        .input(1, &wide)
        .output::<u16>(2, expected.len())
        .threads(pairs.len(), 32)
        .check(2, |launch, got: &[u16]| {
            for (i, (&g, &e)) in got.iter().zip(&expected).enumerate() {
                let nan = bf16::from_bits(g).is_nan() && bf16::from_bits(e).is_nan();
                let (pair, w) = (pairs[i / 6], wide[i / 6]);
                let launch = format!("{launch}: result {} of {pair:?} and {w:e}", i % 6);
                assert!(g == e || nan, "{launch}: {g:#x}, expected {e:#x}");
            }
        });
}

#[test]
fn constant_folding_follows_the_rule() {
    for (value, expected) in [
        (MIN_NORMAL, [0.0, 2.0 * MIN_NORMAL]),
        (-MIN_NORMAL / 2.0, [-0.0, -0.0]),
    ] {
        let bits = [
            -0.0,
            0.0,
            -0.0,
            0.0,
            -0.0,
            -0.0,
            expected[0],
            expected[1],
            -0.0,
            -0.0,
            0.0,
            0.0,
            1e-20_f32 * 1e20,
        ];
        Run::kernel(&SOURCE, "folded")
            .constant(0, value)
            .output::<f32>(0, 13)
            .output::<u16>(1, 2)
            .output::<u16>(2, 2)
            .threads(1, 1)
            .check(0, |launch, got| {
                expect_bits(launch, &|i| format!("number {i}"), got, &bits);
            })
            .expect(1, &[0x8000_u16, 0])
            .expect(2, &[1_u16, 2]);
    }
}

#[test]
fn collectives_and_atomics_follow_the_rule() {
    let input = [f32::from_bits(0x0040_0000); 32];
    Run::kernel(&SOURCE, "collectives")
        .constant(0, 1_f32)
        .input(0, &input)
        .output::<f32>(1, 5 * 32)
        .update(2, &[0.0_f32, 0.0])
        .threads(32, 32)
        .check(1, |launch, got: &[f32]| {
            for (i, x) in got.iter().enumerate() {
                // The maximum and minimum of flushed numbers is one of them or zero.
                let subnormal = matches!(i % 5, 1 | 2) && x.abs() == input[0];
                assert!(*x == 0.0 || subnormal, "{launch}: result {}: {x:e}", i % 5);
            }
        })
        .check(2, |launch, got: &[u32]| {
            assert_eq!(
                got,
                [0, 0x0040_0000],
                "{launch}: the sum, and a plain store"
            );
        });
}
