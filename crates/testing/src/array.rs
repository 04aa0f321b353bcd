//! A minimal array: a dtype, a shape and the values in row-major order.

use bessemer::DType;

use crate::number::Value;

/// Values in row-major order. References may leave floats unrounded, with more precision than the dtype.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// The element type.
    pub dtype: DType,
    /// Lengths of the axes.
    pub shape: Vec<usize>,
    /// The values.
    pub data: Vec<Value>,
}

impl Array {
    /// An array of these values, each converted to `dtype`.
    pub fn new(dtype: DType, shape: &[usize], data: impl IntoIterator<Item = Value>) -> Self {
        let data: Vec<_> = data.into_iter().map(|v| v.cast(dtype)).collect();
        assert_eq!(data.len(), count(shape), "{shape:?}");
        Self {
            dtype,
            shape: shape.to_vec(),
            data,
        }
    }

    /// An array of floats, each rounded to `dtype`.
    pub fn floats(dtype: DType, shape: &[usize], data: &[f64]) -> Self {
        Self::new(dtype, shape, data.iter().map(|&f| Value::Float(f)))
    }

    /// An array of integers, each wrapped to `dtype`.
    pub fn ints(dtype: DType, shape: &[usize], data: &[i128]) -> Self {
        Self::new(dtype, shape, data.iter().map(|&i| Value::Int(i)))
    }

    /// An array of the values of `f` at each index, unrounded.
    pub fn from_fn(dtype: DType, shape: &[usize], mut f: impl FnMut(&[usize]) -> Value) -> Self {
        let data = indices(shape).map(|i| f(&i)).collect();
        Self {
            dtype,
            shape: shape.to_vec(),
            data,
        }
    }

    /// [`Array::from_fn`] for floats.
    pub fn from_float_fn(
        dtype: DType,
        shape: &[usize],
        mut f: impl FnMut(&[usize]) -> f64,
    ) -> Self {
        Self::from_fn(dtype, shape, |i| Value::Float(f(i)))
    }

    /// The value at an index.
    pub fn at(&self, index: &[usize]) -> Value {
        self.data[position(&self.shape, index)]
    }

    /// The value at an index, as `f64`.
    pub fn float(&self, index: &[usize]) -> f64 {
        self.at(index).float()
    }

    /// The value at an index of a shape that this array broadcasts to.
    pub fn at_broadcast(&self, index: &[usize]) -> Value {
        let skip = index.len() - self.shape.len();
        let own: Vec<_> = index[skip..]
            .iter()
            .zip(&self.shape)
            .map(|(&i, &n)| if n == 1 { 0 } else { i })
            .collect();
        self.at(&own)
    }

    /// Number of elements.
    pub fn count(&self) -> usize {
        self.data.len()
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Resolves an axis: negative ones count from the end.
    pub fn axis(&self, axis: isize) -> usize {
        axis_of(self.rank(), axis)
    }

    /// All values as `f64`.
    pub fn to_floats(&self) -> Vec<f64> {
        self.data.iter().map(|v| v.float()).collect()
    }

    /// All values as integers.
    pub fn to_ints(&self) -> Vec<i128> {
        self.data.iter().map(|v| v.int()).collect()
    }

    /// The same values in another shape.
    pub fn reshape(&self, shape: &[usize]) -> Self {
        assert_eq!(count(shape), self.count(), "{:?} to {shape:?}", self.shape);
        Self {
            shape: shape.to_vec(),
            ..self.clone()
        }
    }

    /// Permutes the axes: axis `i` of the result is axis `order[i]` of this array.
    pub fn permute(&self, order: &[usize]) -> Self {
        let shape: Vec<_> = order.iter().map(|&a| self.shape[a]).collect();
        Self::from_fn(self.dtype, &shape, |index| {
            let mut own = vec![0; index.len()];
            for (&i, &a) in index.iter().zip(order) {
                own[a] = i;
            }
            self.at(&own)
        })
    }

    /// Broadcasts to a shape.
    pub fn broadcast_to(&self, shape: &[usize]) -> Self {
        Self::from_fn(self.dtype, shape, |i| self.at_broadcast(i))
    }

    /// Applies `f` to each value; the results are of `dtype`, unrounded.
    pub fn map(&self, dtype: DType, f: impl FnMut(Value) -> Value) -> Self {
        Self {
            dtype,
            shape: self.shape.clone(),
            data: self.data.iter().copied().map(f).collect(),
        }
    }

    /// The absolute values, for the error bound of a sum of products.
    pub fn magnitudes(&self) -> Self {
        self.map(DType::F64, |v| Value::Float(v.float().abs()))
    }

    /// Rounds or wraps each value to the array's dtype.
    pub fn rounded(&self) -> Self {
        self.map(self.dtype, |v| v.cast(self.dtype))
    }

    /// The values along `axis` through `index`, whose own index along that axis is ignored.
    pub fn lane(&self, axis: usize, index: &[usize]) -> Vec<Value> {
        let mut index = index.to_vec();
        (0..self.shape[axis])
            .map(|i| {
                index[axis] = i;
                self.at(&index)
            })
            .collect()
    }
}

/// Number of elements of this shape.
pub fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Resolves an axis of a shape of rank `rank`.
pub fn axis_of(rank: usize, axis: isize) -> usize {
    let a = if axis < 0 { axis + rank as isize } else { axis };
    assert!((0..rank as isize).contains(&a), "axis {axis} of {rank}");
    a as usize
}

/// Position of an index in row-major order.
pub fn position(shape: &[usize], index: &[usize]) -> usize {
    assert_eq!(shape.len(), index.len());
    index.iter().zip(shape).fold(0, |at, (&i, &n)| {
        assert!(i < n, "{index:?} in {shape:?}");
        at * n + i
    })
}

/// All indices of a shape in row-major order.
pub fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> + use<> {
    let shape = shape.to_vec();
    (0..count(&shape)).map(move |mut at| {
        let mut index = vec![0; shape.len()];
        for (i, &n) in index.iter_mut().zip(&shape).rev() {
            *i = at % n;
            at /= n;
        }
        index
    })
}

/// The shape that two compatible shapes broadcast to.
pub fn broadcast(a: &[usize], b: &[usize]) -> Vec<usize> {
    let rank = a.len().max(b.len());
    let length = |s: &[usize], axis: usize| {
        (axis + s.len())
            .checked_sub(rank)
            .map_or(1, |position| s[position])
    };
    (0..rank)
        .map(|axis| match (length(a, axis), length(b, axis)) {
            (1, n) => n,
            (n, m) => {
                assert!(n == m || m == 1, "{a:?} and {b:?}");
                n
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_enumerate_the_indices() {
        let shape = [2, 3, 5];
        for (i, index) in indices(&shape).enumerate() {
            assert_eq!(position(&shape, &index), i);
        }
        assert_eq!(indices(&[]).count(), 1);
        assert_eq!(indices(&[3, 0]).count(), 0);
    }

    #[test]
    fn broadcasting_aligns_the_last_axes() {
        assert_eq!(broadcast(&[3, 1], &[4]), [3, 4]);
        assert_eq!(broadcast(&[], &[2, 0]), [2, 0]);
        assert_eq!(broadcast(&[1], &[0]), [0]);
        let a = Array::ints(DType::I32, &[2, 1], &[1, 2]).broadcast_to(&[2, 2, 3]);
        assert_eq!(a.to_ints(), [1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2]);
    }

    #[test]
    fn permute_reorders_axes() {
        let a = Array::ints(DType::I8, &[2, 3], &[1, 2, 3, 4, 5, 6]).permute(&[1, 0]);
        assert_eq!(a.to_ints(), [1, 4, 2, 5, 3, 6]);
    }
}
