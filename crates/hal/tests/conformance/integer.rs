//! Integer functions, against the same formulas in 128 bits.

use std::fmt::Debug;

use bytemuck::Pod;

use crate::harness::{Run, Source, source};

const SOURCE: Source = source!("integer.metal");

/// An integer type of MSL.
pub(crate) trait Integer: Pod + PartialEq + Debug {
    const BITS: u32;
    const SIGNED: bool;
    const MIN_VALUE: i128;
    const MAX_VALUE: i128;
    fn from_wide(value: i128) -> Self;
}

macro_rules! integer {
    ($($type:ty: $signed:literal),*) => {$(
        impl Integer for $type {
            const BITS: u32 = <$type>::BITS;
            const SIGNED: bool = $signed;
            const MIN_VALUE: i128 = <$type>::MIN as i128;
            const MAX_VALUE: i128 = <$type>::MAX as i128;
            fn from_wide(value: i128) -> Self {
                value as Self
            }
        }
    )*};
}
integer!(i8: true, u8: false, i16: true, u16: false, i32: true, u32: false, i64: true, u64: false);

/// The value that `value` becomes in `T`.
pub(crate) fn wrap<T: Integer>(value: i128) -> i128 {
    let bits = value & mask::<T>();
    if T::SIGNED && bits >> (T::BITS - 1) == 1 {
        bits - (1 << T::BITS)
    } else {
        bits
    }
}

fn mask<T: Integer>() -> i128 {
    (1 << T::BITS) - 1
}

fn rotate<T: Integer>(a: i128, by: u32) -> i128 {
    let bits = a & mask::<T>();
    (bits << by) | (bits >> (T::BITS - by))
}

/// Bits `offset..offset + count`, with the sign of the topmost for signed types.
fn extract<T: Integer>(a: i128, offset: u32, count: u32) -> i128 {
    let bits = (a & mask::<T>()) >> offset & ((1 << count) - 1);
    if T::SIGNED && bits >> (count - 1) == 1 {
        bits - (1 << count)
    } else {
        bits
    }
}

fn insert(a: i128, b: i128, offset: u32, count: u32) -> i128 {
    let field = ((1 << count) - 1) << offset;
    (a & !field) | (b << offset & field)
}

fn clz<T: Integer>(a: i128) -> i128 {
    let bits = a & mask::<T>();
    i128::from(bits.leading_zeros() - (128 - T::BITS))
}

fn ctz<T: Integer>(a: i128) -> i128 {
    i128::from((a & mask::<T>()).trailing_zeros().min(T::BITS))
}

fn popcount<T: Integer>(a: i128) -> i128 {
    i128::from((a & mask::<T>()).count_ones())
}

fn median(a: i128, b: i128, c: i128) -> i128 {
    a.max(b).min(a.min(b).max(c))
}

fn functions<T: Integer>([a, b, c]: [i128; 3]) -> [i128; 24] {
    let saturate = |v: i128| v.clamp(T::MIN_VALUE, T::MAX_VALUE);
    let high = (a * b) >> T::BITS;
    [
        a.abs(),
        (a - b).abs(),
        saturate(a + b),
        saturate(a - b),
        (a + b) >> 1,
        (a + b + 1) >> 1,
        high,
        high + c,
        saturate(a * b + c),
        a.min(b),
        a.max(b),
        a.min(b).min(c),
        a.max(b).max(c),
        median(a, b, c),
        clz::<T>(a),
        ctz::<T>(a),
        popcount::<T>(a),
        ((a & mask::<T>()) as u128).reverse_bits().cast_signed() >> (128 - T::BITS) & mask::<T>(),
        rotate::<T>(a, 3),
        rotate::<T>(a, T::BITS - 1),
        extract::<T>(a, 2, 5),
        insert(a, b, 2, 5),
        a.clamp(3, 100),
        extract::<T>(a, 1, T::BITS - 1),
    ]
}

/// Triples of interesting values of a type.
fn triples<T: Integer>() -> Vec<[i128; 3]> {
    let mut values = vec![
        0,
        1,
        2,
        3,
        17,
        90,
        T::MAX_VALUE,
        T::MAX_VALUE - 1,
        T::MAX_VALUE / 3,
    ];
    if T::SIGNED {
        values.extend([
            -1,
            -2,
            -77,
            T::MIN_VALUE,
            T::MIN_VALUE + 1,
            T::MIN_VALUE / 3,
        ]);
    }
    let n = values.len();
    (0..n * n)
        .map(|i| [values[i % n], values[i / n], values[(i * 7 + 3) % n]])
        .collect()
}

fn check<T: Integer, const N: usize>(kernel: &str, functions: impl Fn([i128; 3]) -> [i128; N]) {
    let cases = triples::<T>();
    let input: Vec<T> = cases.iter().flatten().map(|v| T::from_wide(*v)).collect();
    let expected: Vec<T> = cases
        .iter()
        .flat_map(|case| functions(*case))
        .map(|v| T::from_wide(wrap::<T>(v)))
        .collect();
    Run::kernel(&SOURCE, kernel)
        .input(0, &input)
        .output::<T>(1, expected.len())
        .threads(cases.len(), 32)
        .check(1, |launch, got: &[T]| {
            for (i, case) in cases.iter().enumerate() {
                for k in 0..N {
                    let at = i * N + k;
                    assert_eq!(got[at], expected[at], "{launch}: function {k} of {case:?}");
                }
            }
        });
}

#[test]
fn eight_and_sixteen_bit_functions_agree_with_their_formulas() {
    check::<i8, 24>("functions_char", functions::<i8>);
    check::<u8, 24>("functions_uchar", functions::<u8>);
    check::<i16, 24>("functions_short", functions::<i16>);
    check::<u16, 24>("functions_ushort", functions::<u16>);
}

#[test]
fn thirty_two_bit_functions_agree_with_their_formulas() {
    check::<i32, 24>("functions_int", functions::<i32>);
    check::<u32, 24>("functions_uint", functions::<u32>);
}

#[test]
fn sixty_four_bit_functions_agree_with_their_formulas() {
    fn wide<T: Integer>([a, b, c]: [i128; 3]) -> [i128; 10] {
        [
            a.abs(),
            a.min(b),
            a.max(b),
            a.clamp(3, 100),
            clz::<T>(a),
            ctz::<T>(a),
            popcount::<T>(a),
            // A product of two unsigned 64-bit values does not fit an i128, but fits a u128.
            ((a as u128).wrapping_mul(b as u128) >> 64).cast_signed(),
            a.wrapping_add(b.wrapping_mul(c)),
            (a >> 3) ^ (b << 7),
        ]
    }
    check::<i64, 10>("wide_long", wide::<i64>);
    check::<u64, 10>("wide_ulong", wide::<u64>);
}

#[test]
fn integer_functions_work_by_component() {
    let (a, b, c) = (
        [i32::MAX, -5, 0x1234_5678, 0],
        [7, i32::MIN, -0x0fed_cba9, 100],
        [3, -2, 50, -100],
    );
    let each = |f: &dyn Fn(i128, i128, i128) -> i128| -> [i32; 4] {
        [0, 1, 2, 3].map(|i| f(a[i].into(), b[i].into(), c[i].into()) as i32)
    };
    let saturate = |v: i128| v.clamp(i32::MIN.into(), i32::MAX.into());
    let expected = [
        each(&|a, b, _| saturate(a + b)),
        each(&|a, b, _| (a * b) >> 32),
        each(&|a, _, _| clz::<i32>(a)),
        each(&|a, _, _| popcount::<i32>(a)),
        each(&|a, _, _| rotate::<i32>(a, 5)),
        each(&|a, b, c| median(a, b, c)),
        each(&|a, b, c| a.max(b).min(b.max(c))),
        each(&|a, _, _| extract::<i32>(a, 4, 8)),
        each(&|a, b, _| insert(a, b, 4, 8)),
        each(&|a, b, _| (a - b).abs()),
        each(&|a, b, _| a.min(b)),
        each(&|a, b, _| (a & 0xfff) * (b & 0xfff)),
        each(&|a, b, c| (a & 0xfff) * (b & 0xfff) + c),
        each(&|a, b, _| (a + b) >> 1),
    ];
    Run::kernel(&SOURCE, "vector_integer_functions")
        .input(0, &[a, b, c].concat())
        .output::<i32>(1, 4 * expected.len())
        .threads(1, 1)
        .expect(1, &expected.concat());
}

#[test]
fn scalar_arithmetic_truncates_wraps_and_converts_as_in_c() {
    let expected = [
        -3,
        -1,
        -4,
        0x7fff_fffc,
        -2,
        46,
        -25534,
        0,
        1,
        1,
        -127,
        ((-7_i64 * 1_000_000_000_000) >> 32) as i32,
    ];
    Run::kernel(&SOURCE, "scalar_arithmetic")
        .input(0, &[-7_i32, 2])
        .output::<i32>(1, expected.len())
        .threads(1, 1)
        .expect(1, &expected);
}
