//! Nearest-neighbour upsampling.

use crate::Array;

/// Repeats each value `scale` times along each axis after the second.
pub fn upsample_nearest(x: &Array, scale: usize) -> Array {
    let mut shape = x.shape.clone();
    shape[2..].iter_mut().for_each(|n| *n *= scale);
    Array::from_fn(x.dtype, &shape, |i| {
        let mut from = i.to_vec();
        from[2..].iter_mut().for_each(|i| *i /= scale);
        x.at(&from)
    })
}

#[cfg(test)]
mod tests {
    use bessemer::DType;

    use super::*;

    #[test]
    fn values_become_blocks() {
        let x = Array::ints(DType::U8, &[1, 1, 1, 2], &[1, 2]);
        let got = upsample_nearest(&x, 2);
        assert_eq!(got.shape, [1, 1, 2, 4]);
        assert_eq!(got.to_ints(), [1, 1, 2, 2, 1, 1, 2, 2]);
    }
}
