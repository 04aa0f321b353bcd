use bessemer::{ConvOptions, DType, Error, Tensor};

use crate::data::{assert_agrees, in_every_float, numbers, values};

fn reference(
    (x, [n, c, h, w]): (&[f64], [usize; 4]),
    (weight, [outputs, inner, kh, kw]): (&[f64], [usize; 4]),
    bias: &[f64],
    o: &ConvOptions<2>,
) -> Vec<f64> {
    let places = |i: usize, len: usize, taps: usize| {
        (len + 2 * o.padding[i] - o.dilation[i] * (taps - 1) - 1) / o.stride[i] + 1
    };
    let mut out = vec![];
    for image in 0..n {
        for output in 0..outputs {
            let group = output / (outputs / o.groups);
            for i in 0..places(0, h, kh) {
                for j in 0..places(1, w, kw) {
                    let mut sum = bias[output];
                    for ch in 0..inner {
                        for k in 0..kh {
                            for l in 0..kw {
                                let y = (i * o.stride[0] + k * o.dilation[0])
                                    .wrapping_sub(o.padding[0]);
                                let z = (j * o.stride[1] + l * o.dilation[1])
                                    .wrapping_sub(o.padding[1]);
                                if y < h && z < w {
                                    let from = ((image * c + group * inner + ch) * h + y) * w + z;
                                    sum +=
                                        x[from] * weight[((output * inner + ch) * kh + k) * kw + l];
                                }
                            }
                        }
                    }
                    out.push(sum);
                }
            }
        }
    }
    out
}

/// The convolution, the convolution of absolute values, and the number of terms of a sum.
struct Truth {
    expected: Vec<f64>,
    size: Vec<f64>,
    terms: usize,
}

impl Truth {
    fn new(
        (x, shape): (&[f64], [usize; 4]),
        (weight, taps): (&[f64], [usize; 4]),
        bias: &[f64],
        options: &ConvOptions<2>,
    ) -> Self {
        let sizes = |v: &[f64]| v.iter().map(|v| v.abs()).collect::<Vec<_>>();
        let (large, heavy) = (sizes(x), sizes(weight));
        Self {
            expected: reference((x, shape), (weight, taps), bias, options),
            size: reference((&large, shape), (&heavy, taps), &sizes(bias), options),
            terms: taps[1..].iter().product::<usize>() + 1,
        }
    }

    #[track_caller]
    fn judge(&self, y: &Tensor) {
        assert_agrees("conv", self.terms, y, &self.expected, Some(&self.size));
    }
}

#[test]
fn every_type_matches_the_formula() {
    struct Case {
        x: [usize; 4],
        weight: [usize; 4],
        options: ConvOptions<2>,
    }
    let case = |x, weight, stride, padding, dilation, groups| Case {
        x,
        weight,
        options: ConvOptions {
            stride,
            padding,
            dilation,
            groups,
        },
    };
    let cases = [
        case([2, 3, 7, 9], [4, 3, 3, 3], [1, 1], [1, 1], [1, 1], 1),
        case([1, 4, 8, 5], [6, 4, 1, 1], [1, 1], [0, 0], [1, 1], 1),
        case([1, 4, 8, 5], [6, 4, 1, 1], [2, 2], [1, 0], [1, 1], 1),
        case([2, 4, 9, 9], [6, 2, 3, 2], [2, 1], [2, 1], [1, 2], 2),
        case([2, 5, 9, 11], [5, 1, 3, 3], [1, 1], [1, 1], [1, 1], 5),
        case([1, 3, 9, 11], [6, 1, 3, 2], [2, 2], [1, 3], [2, 1], 3),
        case([1, 2, 3, 3], [2, 2, 3, 3], [1, 1], [4, 4], [1, 1], 1),
        case([1, 16, 40, 40], [8, 16, 3, 3], [1, 1], [1, 1], [1, 1], 1),
    ];
    for Case { x, weight, options } in cases {
        let (xs, ws, bs) = (
            numbers(1, x.iter().product()),
            numbers(2, weight.iter().product()),
            numbers(3, weight[0]),
        );
        let with = Truth::new((&xs, x), (&ws, weight), &bs, &options);
        let none = vec![0.0; weight[0]];
        let without = Truth::new((&xs, x), (&ws, weight), &none, &options);
        let (weights, biases) = (
            in_every_float(&ws, &weight),
            in_every_float(&bs, &[weight[0]]),
        );
        for (i, x) in in_every_float(&xs, &x).iter().enumerate() {
            let y = x.conv2d(&weights[i], Some(&biases[i]), &options);
            assert_eq!(y.dtype(), x.dtype());
            with.judge(&y);
            without.judge(&x.conv2d(&weights[i], None, &options));
        }
    }
}

#[test]
fn views_are_right_at_tile_edges() {
    let case = |x: [usize; 4], weight: [usize; 4], stride, padding, dilation, groups| {
        let options = ConvOptions {
            stride,
            padding,
            dilation,
            groups,
        };
        let (xs, ws, bs) = (
            numbers(1, x.iter().product()),
            numbers(2, weight.iter().product()),
            numbers(3, weight[0]),
        );
        let truth = Truth::new((&xs, x), (&ws, weight), &bs, &options);
        let (weights, biases) = (
            in_every_float(&ws, &weight),
            in_every_float(&bs, &[weight[0]]),
        );
        for (i, x) in in_every_float(&xs, &x).iter().enumerate() {
            // Channels last in memory, and taps first.
            let x = x.permute(&[0, 2, 3, 1]).contiguous().permute(&[0, 3, 1, 2]);
            let w = weights[i].permute(&[2, 3, 0, 1]).contiguous();
            let w = w.permute(&[2, 3, 0, 1]);
            truth.judge(&x.conv2d(&w, Some(&biases[i]), &options));
        }
    };
    case([2, 8, 7, 5], [33, 8, 3, 3], [1, 1], [1, 1], [1, 1], 1);
    case([2, 16, 9, 8], [64, 8, 3, 2], [2, 1], [1, 2], [1, 2], 2);
    case([2, 16, 5, 7], [24, 8, 1, 1], [1, 1], [0, 0], [1, 1], 2);
    case([1, 17, 5, 7], [9, 17, 1, 1], [2, 2], [0, 0], [1, 1], 1);
    // Enough windows for large tiles.
    case([5, 2, 32, 32], [9, 2, 3, 3], [1, 1], [1, 1], [1, 1], 1);
}

#[test]
fn large_images_are_processed_in_blocks() {
    let (x, weight) = ([1, 32, 70, 70], [4, 32, 5, 5]);
    let (xs, ws) = (
        numbers(1, x.iter().product()),
        numbers(2, weight.iter().product()),
    );
    let options = ConvOptions {
        padding: [2, 2],
        ..ConvOptions::default()
    };
    let truth = Truth::new((&xs, x), (&ws, weight), &[0.0; 4], &options);
    let weights = in_every_float(&ws, &weight);
    for (x, w) in in_every_float(&xs, &x).iter().zip(&weights) {
        truth.judge(&x.conv2d(w, None, &options));
    }
}

#[test]
fn conv1d_supports_stride_padding_and_dilation() {
    let x = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0], [1, 1, 5]);
    let w = Tensor::from_slice(&[1.0_f32, 0.0, -1.0], [1, 1, 3]);
    let run = |stride, padding, dilation| {
        values(&x.conv1d(
            &w,
            None,
            &ConvOptions {
                stride: [stride],
                padding: [padding],
                dilation: [dilation],
                groups: 1,
            },
        ))
    };
    assert_eq!(run(1, 0, 1), [-2.0, -2.0, -2.0]);
    assert_eq!(run(2, 1, 1), [-2.0, -2.0, 4.0]);
    assert_eq!(run(1, 0, 2), [-4.0]);
    assert_eq!(run(1, 2, 2), [-3.0, -4.0, -4.0, 2.0, 3.0]);
}

#[test]
fn without_channels_the_result_is_the_bias() {
    let x = Tensor::zeros([1, 0, 3, 3], DType::F32);
    let w = Tensor::zeros([2, 0, 3, 3], DType::F32);
    let b = Tensor::from_slice(&[1.0_f32, 2.0], [2]);
    let y = x.conv2d(&w, Some(&b), &ConvOptions::default());
    assert_eq!(values(&y), [1.0, 2.0]);
    assert_eq!(
        values(&x.conv2d(&w, None, &ConvOptions::default())),
        [0.0, 0.0]
    );
    let none = Tensor::zeros([0, 2, 3, 3], DType::F32);
    let w = Tensor::zeros([2, 2, 3, 3], DType::F32);
    assert_eq!(
        values(&none.conv2d(&w, None, &ConvOptions::default())),
        [0_f64; 0]
    );
}

#[test]
fn rejects_mismatched_shapes() {
    let zeros = |shape: [usize; 4]| Tensor::zeros(shape, DType::F32);
    let x = zeros([1, 4, 5, 5]);
    let with = |groups| ConvOptions {
        groups,
        ..ConvOptions::default()
    };
    for (w, groups) in [([2, 3, 1, 1], 1), ([3, 2, 1, 1], 2), ([2, 4, 1, 1], 0)] {
        let error = x
            .conv2d(&zeros(w), None, &with(groups))
            .check()
            .unwrap_err();
        assert!(
            matches!(error, Error::ShapeMismatch { op: "conv2d", .. }),
            "{error}"
        );
    }
    let error = x
        .conv2d(&zeros([2, 4, 6, 1]), None, &with(1))
        .check()
        .unwrap_err();
    assert!(
        matches!(error, Error::BadShape { op: "conv2d", .. }),
        "{error}"
    );
    let still = ConvOptions {
        stride: [0, 1],
        ..with(1)
    };
    assert!(
        x.conv2d(&zeros([2, 4, 1, 1]), None, &still)
            .check()
            .is_err()
    );
    let bias = Tensor::zeros([3], DType::F32);
    let error = x
        .conv2d(&zeros([2, 4, 1, 1]), Some(&bias), &with(1))
        .check()
        .unwrap_err();
    assert!(
        matches!(error, Error::ShapeMismatch { op: "conv2d", .. }),
        "{error}"
    );
    let line = Tensor::zeros([4, 5], DType::F32);
    let error = line
        .conv1d(&line, None, &ConvOptions::default())
        .check()
        .unwrap_err();
    assert!(
        matches!(error, Error::BadShape { op: "conv1d", .. }),
        "{error}"
    );
}

mod against_the_reference {
    use bessemer::{ConvOptions, DType};
    use bessemer_testing::case::{Fill, Input, check, input};
    use bessemer_testing::layout::agree;
    use bessemer_testing::reference::conv::{Window, conv1d, conv2d};
    use proptest::prelude::Strategy;
    use proptest::sample::select;

    use crate::axis::another_of;

    /// `[batch, channels per group, groups, outputs per group, height, width, kernel height, kernel width]`
    /// and the window of each axis.
    #[derive(Clone, Debug)]
    struct Case {
        x: Input,
        weight: [usize; 4],
        windows: [Window; 2],
        groups: usize,
        bias: bool,
    }

    fn cases(dtype: DType, axes: usize) -> impl Strategy<Value = Case> {
        let small = |from: &'static [usize]| select(from);
        let sizes = (
            small(&[1, 2, 3, 0]),
            small(&[1, 2, 3, 5, 0]),
            small(&[1, 2, 3]),
            small(&[1, 2, 3, 4]),
        );
        let axis = || {
            (
                small(&[1, 2, 3, 5, 8, 13, 17, 33]),
                small(&[1, 2, 3, 5]),
                small(&[1, 2, 3]),
                small(&[0, 1, 2, 4]),
                small(&[1, 2, 3]),
            )
        };
        let x = input(&[dtype], &Fill::IN_RANGE, proptest::strategy::Just(vec![]));
        let bias = proptest::bool::ANY;
        (x, sizes, axis(), axis(), bias).prop_map(move |(x, sizes, across, along, bias)| {
            let (batch, inner, groups, each) = sizes;
            let across = if axes == 1 { (1, 1, 1, 0, 1) } else { across };
            let window = |(_, _, stride, padding, dilation)| Window {
                stride,
                padding,
                dilation,
            };
            let windows = [window(across), window(along)];
            // An oversized window is an error, which another test covers: the axis is made long enough.
            let len = |(len, taps, _, padding, dilation): (usize, usize, usize, usize, usize)| {
                len.max((dilation * (taps - 1) + 1).saturating_sub(2 * padding))
            };
            let shape = vec![batch, groups * inner, len(across), len(along)];
            Case {
                x: Input { shape, ..x },
                weight: [groups * each, inner, across.1, along.1],
                windows,
                groups,
                bias,
            }
        })
    }

    #[test]
    fn conv2d_of_every_type_layout_window_and_group_is_right() {
        for dtype in DType::ALL {
            let name = format!("conv2d of {dtype}");
            check(&name, 50, cases(dtype, 2), |case| judge(case, 2));
        }
    }

    #[test]
    fn conv1d_of_every_type_layout_window_and_group_is_right() {
        for dtype in DType::ALL {
            let name = format!("conv1d of {dtype}");
            check(&name, 50, cases(dtype, 1), |case| judge(case, 1));
        }
    }

    fn judge(case: &Case, axes: usize) -> Result<(), String> {
        let without_height = |shape: &[usize]| match axes {
            1 => [&shape[..2], &shape[3..]].concat(),
            _ => shape.to_vec(),
        };
        let x = Input {
            shape: without_height(&case.x.shape),
            ..case.x.clone()
        };
        let weight = another_of(&x, 1, &without_height(&case.weight));
        let bias = another_of(&x, 2, &case.weight[..1]);
        let bias = case.bias.then_some(bias);
        let arrays = (x.array(), weight.array(), bias.as_ref().map(Input::array));
        let sizes = (
            arrays.0.magnitudes(),
            arrays.1.magnitudes(),
            arrays.2.as_ref().map(|b| b.magnitudes()),
        );
        let (tensor, by, plus) = (x.tensor(), weight.tensor(), bias.map(|b| b.tensor()));
        let [w0, w1] = case.windows;
        let groups = case.groups;
        let (got, expected, size) = if axes == 1 {
            let options = ConvOptions {
                stride: [w1.stride],
                padding: [w1.padding],
                dilation: [w1.dilation],
                groups,
            };
            (
                tensor.conv1d(&by, plus.as_ref(), &options),
                conv1d(&arrays.0, &arrays.1, arrays.2.as_ref(), w1, groups),
                conv1d(&sizes.0, &sizes.1, sizes.2.as_ref(), w1, groups),
            )
        } else {
            let options = ConvOptions {
                stride: [w0.stride, w1.stride],
                padding: [w0.padding, w1.padding],
                dilation: [w0.dilation, w1.dilation],
                groups,
            };
            let both = case.windows;
            (
                tensor.conv2d(&by, plus.as_ref(), &options),
                conv2d(&arrays.0, &arrays.1, arrays.2.as_ref(), both, groups),
                conv2d(&sizes.0, &sizes.1, sizes.2.as_ref(), both, groups),
            )
        };
        let terms = case.weight[1..].iter().product::<usize>() + 1;
        agree("conv", terms, &got, &expected, Some(&size))
    }
}
