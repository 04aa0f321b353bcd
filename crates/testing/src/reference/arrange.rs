//! Concatenation, splitting, repetition and data movement.

use bessemer::DType;

use crate::Array;
use crate::number::Value;

/// Concatenates arrays along an axis.
pub fn concat(arrays: &[&Array], axis: isize) -> Array {
    let first = arrays.first().expect("an array");
    let axis = first.axis(axis);
    let dtype = promoted(arrays);
    let mut shape = first.shape.clone();
    shape[axis] = arrays.iter().map(|a| a.shape[axis]).sum();
    Array::from_fn(dtype, &shape, |i| {
        let mut at = i.to_vec();
        for a in arrays {
            if at[axis] < a.shape[axis] {
                return a.at(&at).cast(dtype);
            }
            at[axis] -= a.shape[axis];
        }
        unreachable!("{i:?} of {shape:?}")
    })
}

/// Stacks arrays of one shape along a new axis.
pub fn stack(arrays: &[&Array], axis: isize) -> Array {
    let first = arrays.first().expect("an array");
    let axis = crate::array::axis_of(first.rank() + 1, axis);
    let mut shape = first.shape.clone();
    shape.insert(axis, 1);
    let wide: Vec<_> = arrays.iter().map(|a| a.reshape(&shape)).collect();
    concat(&wide.iter().collect::<Vec<_>>(), axis as isize)
}

fn promoted(arrays: &[&Array]) -> DType {
    let types = arrays.iter().map(|a| a.dtype);
    types.reduce(|a, b| a.promote(b)).expect("an array")
}

/// `len` slices of an axis from `start` on.
pub fn narrow(x: &Array, axis: isize, start: usize, len: usize) -> Array {
    let axis = x.axis(axis);
    let mut shape = x.shape.clone();
    shape[axis] = len;
    moved(x, &shape, |i| {
        let mut from = i.to_vec();
        from[axis] += start;
        from
    })
}

/// Splits an axis into sections of these lengths.
pub fn split(x: &Array, sizes: &[usize], axis: isize) -> Vec<Array> {
    let mut start = 0;
    sizes
        .iter()
        .map(|&n| {
            start += n;
            narrow(x, axis, start - n, n)
        })
        .collect()
}

/// Repeats each slice along an axis `n` times.
pub fn repeat(x: &Array, n: usize, axis: isize) -> Array {
    let axis = x.axis(axis);
    let mut shape = x.shape.clone();
    shape[axis] *= n;
    moved(x, &shape, |i| {
        let mut from = i.to_vec();
        from[axis] /= n;
        from
    })
}

/// Repeats the array along each axis; the shorter of shape and counts is padded with leading ones.
pub fn tile(x: &Array, counts: &[usize]) -> Array {
    let rank = x.rank().max(counts.len());
    let wide = |short: &[usize]| [&vec![1; rank - short.len()][..], short].concat();
    let x = x.reshape(&wide(&x.shape));
    let shape: Vec<_> = x
        .shape
        .iter()
        .zip(wide(counts))
        .map(|(n, c)| n * c)
        .collect();
    moved(&x, &shape, |i| {
        i.iter().zip(&x.shape).map(|(i, n)| i % n).collect()
    })
}

/// Pads each axis with `value` before and after.
pub fn pad(x: &Array, widths: &[(usize, usize)], value: Value) -> Array {
    let shape: Vec<_> = x
        .shape
        .iter()
        .zip(widths)
        .map(|(n, (before, after))| before + n + after)
        .collect();
    Array::from_fn(x.dtype, &shape, |i| {
        let inside: Option<Vec<_>> = i
            .iter()
            .zip(widths)
            .zip(&x.shape)
            .map(|((i, (before, _)), n)| i.checked_sub(*before).filter(|i| i < n))
            .collect();
        inside.map_or(value.cast(x.dtype), |i| x.at(&i))
    })
}

/// Rotates by `shift` positions along an axis.
pub fn roll(x: &Array, shift: isize, axis: isize) -> Array {
    let axis = x.axis(axis);
    moved(x, &x.shape, |i| {
        let n = x.shape[axis] as i128;
        let mut from = i.to_vec();
        from[axis] = (from[axis] as i128 - shift as i128).rem_euclid(n) as usize;
        from
    })
}

/// Reverses these axes.
pub fn flip(x: &Array, axes: &[isize]) -> Array {
    let axes: Vec<_> = axes.iter().map(|&a| x.axis(a)).collect();
    moved(x, &x.shape, |i| {
        let ends = i.iter().zip(&x.shape).enumerate();
        ends.map(
            |(a, (&i, &n))| {
                if axes.contains(&a) { n - 1 - i } else { i }
            },
        )
        .collect()
    })
}

/// Zeros above diagonal `k` of the last two axes.
pub fn tril(x: &Array, k: isize) -> Array {
    keep(x, |row, column| column <= row + k)
}

/// Zeros below diagonal `k` of the last two axes.
pub fn triu(x: &Array, k: isize) -> Array {
    keep(x, |row, column| column >= row + k)
}

fn keep(x: &Array, wanted: impl Fn(isize, isize) -> bool) -> Array {
    Array::from_fn(x.dtype, &x.shape, |i| {
        let (row, column) = (i[i.len() - 2] as isize, i[i.len() - 1] as isize);
        if wanted(row, column) {
            x.at(i)
        } else {
            Value::Int(0).cast(x.dtype)
        }
    })
}

fn moved(x: &Array, shape: &[usize], from: impl Fn(&[usize]) -> Vec<usize>) -> Array {
    Array::from_fn(x.dtype, shape, |i| x.at(&from(i)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square() -> Array {
        Array::ints(DType::I32, &[2, 2], &[1, 2, 3, 4])
    }

    #[test]
    fn split_inverts_concat() {
        let x = square();
        assert_eq!(concat(&[&x, &x], 1).to_ints(), [1, 2, 1, 2, 3, 4, 3, 4]);
        let s = stack(&[&x, &x], -1);
        assert_eq!(
            (s.shape.as_slice(), s.to_ints()),
            (&[2, 2, 2][..], vec![1, 1, 2, 2, 3, 3, 4, 4])
        );
        let parts = split(&x, &[0, 2], 0);
        assert_eq!(parts[0].count(), 0);
        assert_eq!(parts[1], x);
    }

    #[test]
    fn repeat_and_tile_match_numpy() {
        let x = square();
        assert_eq!(repeat(&x, 2, 1).to_ints(), [1, 1, 2, 2, 3, 3, 4, 4]);
        assert_eq!(tile(&x, &[2]).to_ints(), [1, 2, 1, 2, 3, 4, 3, 4]);
        assert_eq!(tile(&x, &[2, 1, 1]).shape, [2, 2, 2]);
    }

    #[test]
    fn roll_flip_and_triangles_match_numpy() {
        let x = square();
        assert_eq!(roll(&x, 1, 1).to_ints(), [2, 1, 4, 3]);
        assert_eq!(roll(&x, -3, 0).to_ints(), [3, 4, 1, 2]);
        assert_eq!(flip(&x, &[0]).to_ints(), [3, 4, 1, 2]);
        assert_eq!(flip(&x, &[0, -1]).to_ints(), [4, 3, 2, 1]);
        assert_eq!(flip(&x, &[]), x);
        let padded = pad(&x, &[(0, 1), (1, 0)], Value::Int(9));
        assert_eq!(padded.to_ints(), [9, 1, 2, 9, 3, 4, 9, 9, 9]);
        assert_eq!(tril(&x, 0).to_ints(), [1, 0, 3, 4]);
        assert_eq!(triu(&x, 1).to_ints(), [0, 2, 0, 0]);
    }
}
