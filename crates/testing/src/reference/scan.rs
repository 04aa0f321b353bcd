//! Running sums, products and maxima along an axis.

use super::reduce::Reduce;
use crate::Array;
use crate::subnormal::operands;

fn scan(x: &Array, axis: isize, f: Reduce) -> Array {
    let x = &operands(x);
    let axis = x.axis(axis);
    Array::from_fn(f.dtype(x.dtype), &x.shape, |i| {
        f.apply(x.dtype, &x.lane(axis, i)[..=i[axis]])
    })
}

/// The inclusive cumulative sum.
pub fn cumsum(x: &Array, axis: isize) -> Array {
    scan(x, axis, Reduce::Sum)
}

/// The inclusive cumulative product.
pub fn cumprod(x: &Array, axis: isize) -> Array {
    scan(x, axis, Reduce::Prod)
}

/// The inclusive cumulative maximum; NaN from the first NaN on.
pub fn cummax(x: &Array, axis: isize) -> Array {
    scan(x, axis, Reduce::Max)
}

#[cfg(test)]
mod tests {
    use bessemer::DType;

    use super::*;

    #[test]
    fn scans_are_inclusive() {
        let x = Array::ints(DType::I8, &[2, 3], &[100, 100, 3, -4, 5, 6]);
        assert_eq!(cumsum(&x, 1).to_ints(), [100, 200, 203, -4, 1, 7]);
        assert_eq!(cumsum(&x, 0).to_ints(), [100, 100, 3, 96, 105, 9]);
        assert_eq!(
            cumprod(&x, 1).to_ints(),
            [100, 10_000, 30_000, -4, -20, -120]
        );
        assert_eq!(cummax(&x, -1).to_ints(), [100, 100, 100, -4, 5, 6]);
        assert_eq!(cummax(&x, -1).dtype, DType::I8);
    }
}
