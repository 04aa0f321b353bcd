//! Reading and writing at indices.

use super::binary::Binary;
use crate::Array;
use crate::array::{indices, position};
use crate::subnormal::operand;

/// Resolves an index of an axis of length `len`: negative ones count from the end.
pub fn wrapped(index: i128, len: usize) -> usize {
    let at = if index < 0 {
        index + len as i128
    } else {
        index
    };
    assert!((0..len as i128).contains(&at), "index {index} of {len}");
    at as usize
}

/// `out[i][j] = x[index[i][j]][j]` for axis 0, and so on: `index` has the rank of `x` and may be shorter
/// along the other axes.
pub fn gather(x: &Array, axis: isize, index: &Array) -> Array {
    let axis = x.axis(axis);
    Array::from_fn(x.dtype, &index.shape, |i| {
        let mut from = i.to_vec();
        from[axis] = wrapped(index.at(i).int(), x.shape[axis]);
        x.at(&from)
    })
}

/// Whole slices: the axis is replaced by the axes of `index`.
pub fn take(x: &Array, axis: isize, index: &Array) -> Array {
    let axis = x.axis(axis);
    let shape = [&x.shape[..axis], &index.shape, &x.shape[axis + 1..]].concat();
    Array::from_fn(x.dtype, &shape, |i| {
        let (before, rest) = i.split_at(axis);
        let (at, after) = rest.split_at(index.rank());
        let i = wrapped(index.at(at).int(), x.shape[axis]);
        x.at(&[before, &[i], after].concat())
    })
}

/// Rows of a table: [`take`] along its first axis.
pub fn embedding(table: &Array, ids: &Array) -> Array {
    take(table, 0, ids)
}

/// `out[index[i][j]][j] = source[i][j]` for axis 0, and so on; the last of several writes wins.
pub fn scatter(x: &Array, axis: isize, index: &Array, source: &Array) -> Array {
    write(x, axis, index, source, None)
}

/// Like [`scatter`], adding. Floats are added without rounding in between.
pub fn scatter_add(x: &Array, axis: isize, index: &Array, source: &Array) -> Array {
    write(x, axis, index, source, Some(Binary::Add))
}

fn write(x: &Array, axis: isize, index: &Array, source: &Array, f: Option<Binary>) -> Array {
    let axis = x.axis(axis);
    assert_eq!(index.shape, source.shape);
    let mut out = x.clone();
    for i in indices(&index.shape) {
        let mut to = i.clone();
        to[axis] = wrapped(index.at(&i).int(), x.shape[axis]);
        let to = position(&x.shape, &to);
        let new = source.at(&i).cast(x.dtype);
        out.data[to] = match f {
            None => new,
            Some(f) => {
                let [old, new] = [out.data[to], new].map(|v| operand(x.dtype, v));
                f.apply(x.dtype, old, new)
            }
        };
    }
    out
}

/// The values where the mask is true, in row-major order.
pub fn masked_select(x: &Array, mask: &Array) -> Array {
    let shape = crate::array::broadcast(&x.shape, &mask.shape);
    let chosen = indices(&shape).filter(|i| mask.at_broadcast(i).is_nonzero());
    let data: Vec<_> = chosen.map(|i| x.at_broadcast(&i)).collect();
    Array {
        dtype: x.dtype,
        shape: vec![data.len()],
        data,
    }
}

/// `x` with the slice that begins at `start` replaced by `source`.
pub fn slice_update(x: &Array, source: &Array, start: &[usize]) -> Array {
    let mut out = x.clone();
    for i in indices(&source.shape) {
        let to: Vec<_> = i.iter().zip(start).map(|(i, s)| i + s).collect();
        out.data[position(&x.shape, &to)] = source.at(&i).cast(x.dtype);
    }
    out
}

#[cfg(test)]
mod tests {
    use bessemer::DType;

    use super::*;

    fn ints(shape: &[usize], data: &[i128]) -> Array {
        Array::ints(DType::I32, shape, data)
    }

    #[test]
    fn gather_and_take_read_at_indices() {
        let x = ints(&[2, 3], &[1, 2, 3, 4, 5, 6]);
        let index = ints(&[2, 2], &[2, 0, -1, 1]);
        assert_eq!(gather(&x, 1, &index).to_ints(), [3, 1, 6, 5]);
        assert_eq!(gather(&x, 0, &ints(&[1, 2], &[1, 0])).to_ints(), [4, 2]);
        let taken = take(&x, 1, &index);
        assert_eq!(taken.shape, [2, 2, 2]);
        assert_eq!(taken.to_ints(), [3, 1, 3, 2, 6, 4, 6, 5]);
        assert_eq!(take(&x, 0, &ints(&[], &[-1])).to_ints(), [4, 5, 6]);
        assert_eq!(
            embedding(&x, &ints(&[2], &[1, 1])).to_ints(),
            [4, 5, 6, 4, 5, 6]
        );
    }

    #[test]
    fn scatter_writes_at_indices() {
        let x = ints(&[4], &[0, 0, 0, 9]);
        let index = ints(&[3], &[1, -1, 1]);
        let source = ints(&[3], &[5, 6, 7]);
        assert_eq!(scatter(&x, 0, &index, &source).to_ints(), [0, 7, 0, 6]);
        assert_eq!(
            scatter_add(&x, 0, &index, &source).to_ints(),
            [0, 12, 0, 15]
        );
        let x = ints(&[2, 3], &[0; 6]);
        let got = slice_update(&x, &ints(&[1, 2], &[1, 2]), &[1, 1]);
        assert_eq!(got.to_ints(), [0, 0, 0, 0, 1, 2]);
    }

    #[test]
    fn a_mask_selects_in_order() {
        let x = ints(&[2, 2], &[1, 2, 3, 4]);
        let mask = Array::ints(DType::Bool, &[2], &[0, 1]);
        assert_eq!(masked_select(&x, &mask).to_ints(), [2, 4]);
    }
}
