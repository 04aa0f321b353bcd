//! The input values of all contestants: a formula of the index, the same in every language.

use crate::case::{DType, Fill, Input};

/// Number of elements of a result that are compared.
const COMPARED_ELEMENTS: usize = 251;

/// The positions of a result of `count` elements that are compared.
pub fn positions(count: usize) -> impl Iterator<Item = usize> {
    let samples = count.min(COMPARED_ELEMENTS);
    (0..samples).map(move |i| i * count / samples)
}

/// 24 random bits of index and seed (the finaliser of MurmurHash3).
fn bits(index: usize, seed: usize) -> u32 {
    let mut h = (index as u32).wrapping_add((seed as u32 + 1).wrapping_mul(0x9E37_79B9));
    h = (h ^ (h >> 16)).wrapping_mul(0x85EB_CA6B);
    h = (h ^ (h >> 13)).wrapping_mul(0xC2B2_AE35);
    (h ^ (h >> 16)) >> 8
}

/// The values of a case's input number `seed`, before they are rounded to its type.
pub fn values(input: &Input, seed: usize) -> impl Iterator<Item = f64> + '_ {
    let whole = !matches!(
        input.dtype,
        DType::F16 | DType::Bf16 | DType::F32 | DType::F64
    );
    (0..input.count()).map(move |i| match input.fill {
        Fill::Uniform { low, high } => {
            let value = low + (high - low) * (f64::from(bits(i, seed)) / f64::from(1 << 24));
            match input.dtype {
                DType::Bool => f64::from(u8::from(value >= 0.5)),
                _ if whole => value.floor(),
                _ => value,
            }
        }
        Fill::Stride { modulus } => (i as u64 * 7919 % modulus) as f64,
    })
}

/// The values as `f32`, from which the 16-bit types are rounded.
pub fn f32s(input: &Input, seed: usize) -> Vec<f32> {
    values(input, seed).map(|v| v as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(dtype: DType, fill: Fill) -> Input {
        Input {
            shape: vec![1024],
            dtype,
            fill,
        }
    }

    #[test]
    fn uniform_values_lie_in_their_range_and_are_spread() {
        let fill = Fill::Uniform {
            low: -1.0,
            high: 3.0,
        };
        let values: Vec<_> = values(&input(DType::F32, fill), 0).collect();
        assert!(values.iter().all(|v| (-1.0..3.0).contains(v)));
        let mean = values.iter().sum::<f64>() / 1024.0;
        assert!((mean - 1.0).abs() < 0.1, "{mean}");
    }

    #[test]
    fn stride_meets_every_index_once() {
        let mut values: Vec<_> =
            values(&input(DType::I64, Fill::Stride { modulus: 1024 }), 0).collect();
        values.sort_by(f64::total_cmp);
        assert!(values.iter().enumerate().all(|(i, v)| *v == i as f64));
    }

    #[test]
    fn the_formula_is_the_one_of_the_python_workers() {
        // python/worker.py has the same numbers, and checks them when it starts.
        assert_eq!(
            [bits(0, 0), bits(1, 0), bits(12345, 3)],
            [9620015, 9871609, 9364823]
        );
    }
}
