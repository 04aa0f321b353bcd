use bessemer::{DType, Error, PoolOptions, Tensor};

use crate::data::{assert_agrees, in_every_float, numbers, values};

/// The maximum and both means of each window.
fn reference(x: &[f64], [planes, h, w]: [usize; 3], o: &PoolOptions<2>) -> [Vec<f64>; 3] {
    let places = |i: usize, len: usize| (len + 2 * o.padding[i] - o.kernel[i]) / o.stride[i] + 1;
    let mut out = [vec![], vec![], vec![]];
    for p in 0..planes {
        for i in 0..places(0, h) {
            for j in 0..places(1, w) {
                let mut seen = vec![];
                for k in 0..o.kernel[0] {
                    for l in 0..o.kernel[1] {
                        let y = (i * o.stride[0] + k)
                            .checked_sub(o.padding[0])
                            .filter(|&y| y < h);
                        let z = (j * o.stride[1] + l)
                            .checked_sub(o.padding[1])
                            .filter(|&z| z < w);
                        if let (Some(y), Some(z)) = (y, z) {
                            seen.push(x[(p * h + y) * w + z]);
                        }
                    }
                }
                let sum: f64 = seen.iter().sum();
                out[0].push(seen.iter().copied().fold(f64::NEG_INFINITY, f64::max));
                out[1].push(sum / (o.kernel[0] * o.kernel[1]) as f64);
                out[2].push(sum / seen.len() as f64);
            }
        }
    }
    out
}

#[test]
fn every_type_matches_the_formula() {
    let options = |kernel, stride, padding| PoolOptions {
        kernel,
        stride,
        padding,
        count_padding: true,
    };
    let cases = [
        options([2, 2], [2, 2], [0, 0]),
        options([3, 3], [1, 1], [1, 1]),
        options([3, 2], [2, 3], [2, 1]),
        options([1, 5], [1, 2], [0, 4]),
    ];
    for o in cases {
        for shape in [[6, 7, 9], [2, 5, 5], [3, 20, 33]] {
            let x = numbers(1, shape.iter().product());
            let [max, mean, inside] = reference(&x, shape, &o);
            let sizes: Vec<f64> = x.iter().map(|x| x.abs()).collect();
            let [_, mean_size, inside_size] = reference(&sizes, shape, &o);
            let terms = o.kernel[0] * o.kernel[1];
            for t in in_every_float(&x, &[shape[0], 1, shape[1], shape[2]]) {
                let y = t.max_pool2d(&o);
                assert_eq!((y.rank(), y.dtype()), (4, t.dtype()));
                assert_agrees("max", 1, &y, &max, None);
                let y = t.avg_pool2d(&o);
                assert_agrees("avg_pool", terms, &y, &mean, Some(&mean_size));
                let apart = PoolOptions {
                    count_padding: false,
                    ..o
                };
                let y = t.avg_pool2d(&apart);
                assert_agrees("avg_pool", terms, &y, &inside, Some(&inside_size));
            }
        }
    }
}

#[test]
fn pool1d_equals_pool2d_with_one_row() {
    let x = Tensor::from_slice(&[-1.0_f32, -2.0, -3.0, 5.0, 4.0], [1, 1, 5]);
    let o = PoolOptions {
        stride: [2],
        padding: [1],
        ..PoolOptions::new([2])
    };
    assert_eq!(values(&x.max_pool1d(&o)), [-1.0, -2.0, 5.0]);
    assert_eq!(values(&x.avg_pool1d(&o)), [-0.5, -2.5, 4.5]);
    assert_eq!(*x.max_pool1d(&o).shape(), [1, 1, 3]);
}

#[test]
fn nan_is_the_maximum_of_its_windows() {
    let x = Tensor::from_slice(&[1.0_f32, f32::NAN, 3.0, 4.0], [4]);
    let y = values(&x.max_pool1d(&PoolOptions {
        stride: [1],
        ..PoolOptions::new([2])
    }));
    assert!(y[0].is_nan() && y[1].is_nan() && y[2] == 4.0);
}

#[test]
fn rejects_oversized_windows() {
    let x = Tensor::zeros([1, 1, 4, 4], DType::F32);
    for kernel in [[5, 1], [0, 1], [usize::MAX, 1]] {
        let error = x.max_pool2d(&PoolOptions::new(kernel)).check().unwrap_err();
        assert!(
            matches!(error, Error::BadShape { op: "max_pool", .. }),
            "{error}"
        );
    }
    let wide = PoolOptions {
        padding: [0, 2],
        ..PoolOptions::new([2, 2])
    };
    let error = x.avg_pool2d(&wide).check().unwrap_err();
    assert!(
        matches!(error, Error::Invalid { op: "avg_pool", .. }),
        "{error}"
    );
    assert!(
        Tensor::scalar(1.0_f32)
            .max_pool1d(&PoolOptions::new([1]))
            .check()
            .is_err()
    );
}

mod against_the_reference {
    use bessemer::{DType, PoolOptions, Tensor};
    use bessemer_testing::case::{Fill, Input, check, input, shape};
    use bessemer_testing::layout::agree;
    use bessemer_testing::random::Rng;
    use bessemer_testing::reference::conv::Window;
    use bessemer_testing::reference::pool::{Pool, pool1d, pool2d};

    /// A window that fits on an axis of this length.
    fn window(rng: &mut Rng, len: usize) -> (usize, Window) {
        let kernel = rng.pick(&[1, 2, 3, 5, 4, 7]);
        let padding = rng.below(kernel);
        let window = Window {
            stride: 1 + rng.below(4),
            padding,
            dilation: 1,
        };
        if kernel <= len + 2 * padding {
            return (kernel, window);
        }
        let one = Window {
            padding: 0,
            ..window
        };
        (1, one)
    }

    fn judge(how: Pool, case: &Input) -> Result<(), String> {
        let rank = case.shape.len();
        let mut rng = Rng::new(case.seed ^ 0x9001);
        let axes = 1 + rng.below(2);
        // Pooling requires nonempty axes; 1-d pooling is that of an image with one row.
        if rank < 2 || case.shape[rank - 2..].contains(&0) {
            return Ok(());
        }
        let (x, t) = (case.array(), case.tensor());
        let (height, across) = window(&mut rng, case.shape[rank - 2]);
        let (width, along) = window(&mut rng, case.shape[rank - 1]);
        let pool = |x| match axes {
            1 => pool1d(how, x, width, along),
            _ => pool2d(how, x, [height, width], [across, along]),
        };
        let count_padding = how == Pool::Mean;
        let got = if axes == 1 {
            let options = PoolOptions {
                kernel: [width],
                stride: [along.stride],
                padding: [along.padding],
                count_padding,
            };
            let f = match how {
                Pool::Max => Tensor::max_pool1d,
                Pool::Mean | Pool::MeanInside => Tensor::avg_pool1d,
            };
            f(&t, &options)
        } else {
            let options = PoolOptions {
                kernel: [height, width],
                stride: [across.stride, along.stride],
                padding: [across.padding, along.padding],
                count_padding,
            };
            let f = match how {
                Pool::Max => Tensor::max_pool2d,
                Pool::Mean | Pool::MeanInside => Tensor::avg_pool2d,
            };
            f(&t, &options)
        };
        match how {
            Pool::Max => agree("max", 1, &got, &pool(&x), None),
            Pool::Mean | Pool::MeanInside => {
                let sizes = x.magnitudes();
                let size = pool(&sizes);
                agree("avg_pool", height * width, &got, &pool(&x), Some(&size))
            }
        }
    }

    #[test]
    fn max_pool_of_every_type_layout_and_window_is_exact() {
        for dtype in DType::ALL {
            let cases = input(&[dtype], &Fill::ALL, shape(4, 800));
            let name = format!("max_pool of {dtype}");
            check(&name, 50, cases, |case| judge(Pool::Max, case));
        }
    }

    #[test]
    fn avg_pool_of_every_type_layout_and_window_is_right() {
        for how in [Pool::Mean, Pool::MeanInside] {
            for dtype in DType::ALL {
                let cases = input(&[dtype], &Fill::IN_RANGE, shape(4, 800));
                let name = format!("{how:?} of {dtype}");
                check(&name, 40, cases, |case| judge(how, case));
            }
        }
    }
}
