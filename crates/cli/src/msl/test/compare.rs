//! Comparison of a buffer with expected values.

use bessemer::DType;
use bessemer::npy::Array;

use crate::dtype::{Elements as _, Number};

/// Maximum number of differences that are listed.
const MAX_LISTED_DIFFERENCES: usize = 5;

/// Tolerances: a value passes if it is within one of those given. Without any, values must be equal. NaN equals
/// NaN, and zeros are equal regardless of their sign.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Tolerance {
    /// |got - expected|
    pub(super) abs: Option<f64>,
    /// |got - expected| / |expected|
    pub(super) rel: Option<f64>,
    /// Units in the last place.
    pub(super) ulp: Option<u64>,
}

/// A value that differs from the expected one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Difference {
    /// `[1, 3]`
    pub(super) index: String,
    /// The bytes of the element.
    pub(super) got: Vec<u8>,
    pub(super) expected: Vec<u8>,
    /// |got - expected|; not finite if one of them is not.
    pub(super) error: f64,
    /// `None` if one of them is NaN.
    pub(super) ulp: Option<u64>,
}

/// All values that differ from the expected ones.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Differences {
    pub(super) dtype: DType,
    pub(super) total: usize,
    pub(super) count: usize,
    /// The first few.
    pub(super) first: Vec<Difference>,
    /// The one with the largest error.
    pub(super) worst: Difference,
}

/// Compares values of the same type and number.
pub(super) fn compare(got: &Array, expected: &Array, tolerance: Tolerance) -> Option<Differences> {
    let dtype = got.dtype;
    let elements = |array: &Array| array.data.len() / dtype.size();
    let (mut count, mut first) = (0, Vec::new());
    let mut worst: Option<Difference> = None;
    let pairs = got
        .data
        .chunks_exact(dtype.size())
        .zip(expected.data.chunks_exact(dtype.size()));
    for (index, (g, e)) in pairs.enumerate() {
        let (error, ulp) = difference(dtype, g, e);
        if tolerance.permits(error, ulp, dtype.load(e)) {
            continue;
        }
        let difference = Difference {
            index: subscript(index, &got.shape),
            got: g.to_vec(),
            expected: e.to_vec(),
            error,
            ulp,
        };
        count += 1;
        if first.len() < MAX_LISTED_DIFFERENCES {
            first.push(difference.clone());
        }
        // NaN is worse than any number.
        let is_worse =
            |worst: &Difference| error > worst.error || (error.is_nan() && !worst.error.is_nan());
        if worst.as_ref().is_none_or(is_worse) {
            worst = Some(difference);
        }
    }
    worst.map(|worst| Differences {
        dtype,
        total: elements(got),
        count,
        first,
        worst,
    })
}

impl Tolerance {
    fn permits(self, error: f64, ulp: Option<u64>, expected: Number) -> bool {
        let magnitude = match expected {
            Number::Int(v) => (v as f64).abs(),
            Number::Float(v) => v.abs(),
        };
        let within = |limit: Option<f64>| limit.is_some_and(|limit| error <= limit);
        ulp == Some(0)
            || (error == 0.0 && ulp.is_none())
            || within(self.abs)
            // Any finite value would be within a relative tolerance of infinity.
            || (magnitude.is_finite() && within(self.rel.map(|rel| rel * magnitude)))
            || self.ulp.zip(ulp).is_some_and(|(limit, ulp)| ulp <= limit)
    }
}

/// Absolute error and distance in units in the last place; two NaNs are equal.
fn difference(dtype: DType, got: &[u8], expected: &[u8]) -> (f64, Option<u64>) {
    match (dtype.load(got), dtype.load(expected)) {
        (Number::Int(g), Number::Int(e)) => {
            let distance = g.abs_diff(e);
            (
                distance as f64,
                Some(u64::try_from(distance).unwrap_or(u64::MAX)),
            )
        }
        (Number::Float(g), Number::Float(e)) if g.is_nan() && e.is_nan() => (0.0, Some(0)),
        (Number::Float(g), Number::Float(e)) if g.is_nan() || e.is_nan() => (f64::NAN, None),
        (Number::Float(g), Number::Float(e)) => {
            let error = if g == e { 0.0 } else { (g - e).abs() };
            (
                error,
                Some(ordinal(dtype, got).abs_diff(ordinal(dtype, expected))),
            )
        }
        // Unreachable: both values have the same type.
        _ => (f64::NAN, None),
    }
}

/// The position of a float among all values of its type, both zeros at 0.
fn ordinal(dtype: DType, element: &[u8]) -> i64 {
    let mut bytes = [0; 8];
    bytes[..dtype.size()].copy_from_slice(element);
    let bits = i64::from_le_bytes(bytes);
    let sign = 1_i64 << (dtype.size() * 8 - 1);
    match bits & sign {
        0 => bits,
        _ => -(bits & !sign),
    }
}

/// `[7]`, or `[1, 3]` in a matrix.
fn subscript(mut index: usize, shape: &[usize]) -> String {
    let mut parts = Vec::new();
    for dim in shape.iter().skip(1).rev() {
        parts.push((index % (*dim).max(1)).to_string());
        index /= (*dim).max(1);
    }
    parts.push(index.to_string());
    parts.reverse();
    format!("[{}]", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> Array {
        Array {
            dtype: DType::F32,
            shape: vec![values.len()],
            data: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        }
    }

    fn count(got: f32, expected: f32, tolerance: Tolerance) -> usize {
        compare(&floats(&[got]), &floats(&[expected]), tolerance).map_or(0, |d| d.count)
    }

    fn abs(abs: f64) -> Tolerance {
        Tolerance {
            abs: Some(abs),
            ..Tolerance::default()
        }
    }

    fn rel(rel: f64) -> Tolerance {
        Tolerance {
            rel: Some(rel),
            ..Tolerance::default()
        }
    }

    fn ulp(ulp: u64) -> Tolerance {
        Tolerance {
            ulp: Some(ulp),
            ..Tolerance::default()
        }
    }

    #[test]
    fn without_tolerance_values_are_equal_or_differ() {
        let exact = Tolerance::default();
        assert_eq!(count(1.0, 1.0, exact), 0);
        assert_eq!(count(0.0, -0.0, exact), 0);
        assert_eq!(count(f32::NAN, f32::NAN, exact), 0);
        assert_eq!(count(f32::INFINITY, f32::INFINITY, exact), 0);
        assert_eq!(count(1.0, f32::from_bits(1.0_f32.to_bits() + 1), exact), 1);
        assert_eq!(count(f32::NAN, 1.0, exact), 1);
        assert_eq!(count(f32::INFINITY, f32::NEG_INFINITY, exact), 1);
    }

    #[test]
    fn each_tolerance_permits_its_own_differences() {
        assert_eq!(count(1.5, 1.0, abs(0.5)), 0);
        assert_eq!(count(1.5, 1.0, abs(0.49)), 1);
        assert_eq!(count(110.0, 100.0, rel(0.1)), 0);
        assert_eq!(count(111.0, 100.0, rel(0.1)), 1);
        let next = |v: f32, steps: u32| f32::from_bits(v.to_bits() + steps);
        assert_eq!(count(next(1.0, 2), 1.0, ulp(2)), 0);
        assert_eq!(count(next(1.0, 3), 1.0, ulp(2)), 1);
        // Across zero: the smallest subnormals of both signs are two apart.
        let tiny = f32::from_bits(1);
        assert_eq!(count(tiny, -tiny, ulp(2)), 0);
        assert_eq!(count(tiny, -tiny, ulp(1)), 1);
        for generous in [abs(1e300), rel(1e300)] {
            assert_eq!(count(f32::NAN, 1.0, generous), 1);
            assert_eq!(count(1.0, f32::INFINITY, generous), 1);
        }
        let either = Tolerance {
            abs: Some(1e-3),
            rel: Some(1e-3),
            ulp: None,
        };
        assert_eq!(count(0.0005, 0.0, either), 0);
        assert_eq!(count(1000.5, 1000.0, either), 0);
    }

    #[test]
    fn differences_are_counted_and_the_worst_is_kept() {
        let got = Array {
            shape: vec![2, 4],
            ..floats(&[0.0, 1.0, 0.0, 0.0, 2.0, 9.0, 3.0, 1.0])
        };
        let differences = compare(&got, &floats(&[0.0; 8]), Tolerance::default()).unwrap();
        assert_eq!((differences.count, differences.total), (5, 8));
        assert_eq!(differences.first[1].index, "[1, 0]");
        assert_eq!(differences.worst.index, "[1, 1]");
        assert_eq!(differences.worst.error, 9.0);
    }

    #[test]
    fn integers_differ_by_their_distance() {
        let bytes = |values: &[i8]| Array {
            dtype: DType::I8,
            shape: vec![values.len()],
            data: values.iter().map(|v| v.to_le_bytes()[0]).collect(),
        };
        let (got, expected) = (bytes(&[-128, 3]), bytes(&[127, 4]));
        let differences = compare(&got, &expected, abs(1.0)).unwrap();
        assert_eq!(differences.count, 1);
        assert_eq!(differences.worst.error, 255.0);
    }
}
