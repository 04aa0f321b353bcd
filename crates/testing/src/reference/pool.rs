//! Pooling over the last one or two axes.

use super::conv::Window;
use super::exact::sum;
use crate::Array;
use crate::subnormal::operands;

/// The reduction of a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pool {
    /// The maximum; padding does not count, NaN propagates.
    Max,
    /// The mean, including the zeros of the padding.
    Mean,
    /// The mean, excluding the padding.
    MeanInside,
}

/// Pools the last two axes with windows of `size`.
pub fn pool2d(how: Pool, x: &Array, size: [usize; 2], windows: [Window; 2]) -> Array {
    let x = &operands(x);
    let last = x.rank() - 2;
    let (height, width) = (x.shape[last], x.shape[last + 1]);
    let mut shape = x.shape.clone();
    shape[last] = windows[0].outputs(height, size[0]);
    shape[last + 1] = windows[1].outputs(width, size[1]);
    Array::from_float_fn(x.dtype.to_float(), &shape, |i| {
        let mut seen = Vec::new();
        for ky in 0..size[0] {
            for kx in 0..size[1] {
                let y = windows[0].input_index(i[last], ky, height);
                let x_at = windows[1].input_index(i[last + 1], kx, width);
                if let (Some(y), Some(x_at)) = (y, x_at) {
                    let mut at = i.to_vec();
                    at[last] = y;
                    at[last + 1] = x_at;
                    seen.push(x.float(&at));
                }
            }
        }
        let inside = seen.len() as f64;
        match how {
            Pool::Max => seen.into_iter().fold(f64::NEG_INFINITY, |a, b| {
                if a.is_nan() || b.is_nan() {
                    f64::NAN
                } else {
                    a.max(b)
                }
            }),
            Pool::Mean => sum(seen) / (size[0] * size[1]) as f64,
            Pool::MeanInside => sum(seen) / inside,
        }
    })
}

/// Pools the last axis.
pub fn pool1d(how: Pool, x: &Array, size: usize, window: Window) -> Array {
    let mut shape = x.shape.clone();
    shape.insert(x.rank() - 1, 1);
    let out = pool2d(
        how,
        &x.reshape(&shape),
        [1, size],
        [Window::default(), window],
    );
    let mut shape = out.shape.clone();
    shape.remove(x.rank() - 1);
    out.reshape(&shape)
}

#[cfg(test)]
mod tests {
    use bessemer::DType;

    use super::*;

    #[test]
    fn windows_have_a_maximum_and_a_mean() {
        let x = Array::floats(DType::F32, &[1, 5], &[-1.0, -2.0, -3.0, 5.0, 4.0]);
        let window = Window {
            stride: 2,
            padding: 1,
            dilation: 1,
        };
        assert_eq!(
            pool1d(Pool::Max, &x, 2, window).to_floats(),
            [-1.0, -2.0, 5.0]
        );
        assert_eq!(
            pool1d(Pool::Mean, &x, 2, window).to_floats(),
            [-0.5, -2.5, 4.5]
        );
        assert_eq!(
            pool1d(Pool::MeanInside, &x, 2, window).to_floats(),
            [-1.0, -2.5, 4.5]
        );
        let x = Array::floats(DType::F32, &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let two = pool2d(Pool::Max, &x, [2, 2], [Window::default(); 2]);
        assert_eq!(two.to_floats(), [4.0]);
    }
}
