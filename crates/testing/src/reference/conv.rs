//! Convolutions (strictly, cross-correlations) over one and two axes.

use super::exact::Sum;
use crate::Array;

/// The window of a convolution or pooling along one axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Distance between windows.
    pub stride: usize,
    /// Zeros before and after.
    pub padding: usize,
    /// Distance between taps.
    pub dilation: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            stride: 1,
            padding: 0,
            dilation: 1,
        }
    }
}

impl Window {
    /// Number of outputs along an axis of length `len` for a kernel of `taps`; 0 if the kernel is larger.
    pub fn outputs(&self, len: usize, taps: usize) -> usize {
        let span = self.dilation * taps.saturating_sub(1) + 1;
        (len + 2 * self.padding)
            .checked_sub(span)
            .map_or(0, |rest| rest / self.stride + 1)
    }

    /// The input index of tap `tap` of output `out`, unless it is in the padding.
    pub fn input_index(&self, out: usize, tap: usize, len: usize) -> Option<usize> {
        (out * self.stride + tap * self.dilation)
            .checked_sub(self.padding)
            .filter(|&at| at < len)
    }
}

/// `[batch, channels, height, width]` with `[outputs, channels / groups, height, width]`.
pub fn conv2d(
    x: &Array,
    weight: &Array,
    bias: Option<&Array>,
    windows: [Window; 2],
    groups: usize,
) -> Array {
    let [batches, channels, height, width] = x.shape[..] else {
        panic!("images of {:?}", x.shape)
    };
    let [outputs, inner, kh, kw] = weight.shape[..] else {
        panic!("weights of {:?}", weight.shape)
    };
    assert_eq!(channels, inner * groups);
    assert_eq!(outputs % groups, 0);
    let shape = [
        batches,
        outputs,
        windows[0].outputs(height, kh),
        windows[1].outputs(width, kw),
    ];
    let dtype = bias.map_or(weight.dtype, |b| weight.dtype.promote(b.dtype));
    let dtype = x.dtype.promote(dtype).to_float();
    Array::from_float_fn(dtype, &shape, |i| {
        let group = i[1] / (outputs / groups);
        let mut sum = Sum::default();
        for c in 0..inner {
            for ky in 0..kh {
                for kx in 0..kw {
                    let y = windows[0].input_index(i[2], ky, height);
                    let x_at = windows[1].input_index(i[3], kx, width);
                    if let (Some(y), Some(x_at)) = (y, x_at) {
                        sum.add_product(
                            x.float(&[i[0], group * inner + c, y, x_at]),
                            weight.float(&[i[1], c, ky, kx]),
                        );
                    }
                }
            }
        }
        if let Some(b) = bias {
            sum.add(b.float(&[i[1]]));
        }
        sum.total()
    })
}

/// `[batch, channels, length]` with `[outputs, channels / groups, length]`.
pub fn conv1d(
    x: &Array,
    weight: &Array,
    bias: Option<&Array>,
    window: Window,
    groups: usize,
) -> Array {
    let flat = |a: &Array| a.reshape(&[a.shape[0], a.shape[1], 1, a.shape[2]]);
    let windows = [Window::default(), window];
    let out = conv2d(&flat(x), &flat(weight), bias, windows, groups);
    out.reshape(&[out.shape[0], out.shape[1], out.shape[3]])
}

#[cfg(test)]
mod tests {
    use bessemer::DType;

    use super::*;

    fn f32s(shape: &[usize], data: &[f64]) -> Array {
        Array::floats(DType::F32, shape, data)
    }

    #[test]
    fn conv1d_supports_stride_padding_and_dilation() {
        let x = f32s(&[1, 1, 5], &[1.0, 2.0, 3.0, 4.0, 5.0]);
        let w = f32s(&[1, 1, 3], &[1.0, 0.0, -1.0]);
        let run = |stride, padding, dilation| {
            let window = Window {
                stride,
                padding,
                dilation,
            };
            conv1d(&x, &w, None, window, 1).to_floats()
        };
        assert_eq!(run(1, 0, 1), [-2.0, -2.0, -2.0]);
        assert_eq!(run(2, 1, 1), [-2.0, -2.0, 4.0]);
        assert_eq!(run(1, 0, 2), [-4.0]);
        assert_eq!(run(1, 2, 2), [-3.0, -4.0, -4.0, 2.0, 3.0]);
    }

    #[test]
    fn groups_are_independent() {
        let x = f32s(&[1, 2, 2], &[1.0, 2.0, 10.0, 20.0]);
        let w = f32s(&[2, 1, 1], &[3.0, 5.0]);
        let b = f32s(&[2], &[0.5, -0.5]);
        let got = conv1d(&x, &w, Some(&b), Window::default(), 2);
        assert_eq!(got.to_floats(), [3.5, 6.5, 49.5, 99.5]);
    }

    #[test]
    fn conv2d_matches_scipy() {
        let x = f32s(
            &[1, 1, 3, 3],
            &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        );
        let w = f32s(&[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let got = conv2d(&x, &w, None, [Window::default(); 2], 1);
        // scipy.signal.correlate2d(x, w, 'valid')
        assert_eq!(got.to_floats(), [37.0, 47.0, 67.0, 77.0]);
    }
}
