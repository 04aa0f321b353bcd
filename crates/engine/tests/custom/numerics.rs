//! The three kernels of the page, against references in f64.

use bessemer::custom::MetalKernel;
use bessemer::{DType, Shape, Tensor};
use bessemer_testing::tolerance::bound;

use super::{axpy, on_device, run, wave};

const SIZES: [usize; 8] = [1, 2, 31, 255, 256, 257, 1000, 4099];

const ROW_SOFTMAX: &str = "
    const uint row = threadgroup_position_in_grid.x;
    const uint lane = thread_position_in_threadgroup.x;
    const uint lanes = threads_per_threadgroup.x;
    const uint n = x_shape[1];
    device const float* values = x + row * n;

    float top = -INFINITY;
    for (uint k = lane; k < n; k += lanes) top = max(top, values[k]);
    scratch[lane] = top;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint step = lanes / 2; step > 0; step /= 2) {
        if (lane < step) scratch[lane] = max(scratch[lane], scratch[lane + step]);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    top = scratch[0];
    threadgroup_barrier(mem_flags::mem_threadgroup);

    float sum = 0;
    for (uint k = lane; k < n; k += lanes) sum += exp(values[k] - top);
    scratch[lane] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint step = lanes / 2; step > 0; step /= 2) {
        if (lane < step) scratch[lane] += scratch[lane + step];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint k = lane; k < n; k += lanes) out[row * n + k] = exp(values[k] - top) / scratch[0];
";

pub(super) fn row_softmax() -> MetalKernel {
    MetalKernel::body("row_softmax", ROW_SOFTMAX)
        .input("x")
        .output("out")
        .threadgroup("scratch", DType::F32)
        .build()
        .unwrap()
}

pub(super) fn histogram() -> MetalKernel {
    let body =
        "atomic_fetch_add_explicit(&counts[min(x[i], counts_size - 1)], 1u, memory_order_relaxed);";
    MetalKernel::body("histogram", body)
        .input("x")
        .output("counts")
        .dtype("counts", DType::U32)
        .atomic("counts")
        .index("i")
        .build()
        .unwrap()
}

#[test]
fn axpy_agrees_with_f64() {
    let kernel = axpy();
    for n in SIZES {
        let (x, y) = (wave(n), wave(2 * n).split_off(n));
        let tensors = [&x, &y].map(|v| on_device(&Tensor::from_slice(v, [n])));
        let call = kernel.call(&[&tensors[0], &tensors[1]]).scalar("a", 2.5);
        let found = run(call.threads(n)).to_vec::<f32>().unwrap();
        // All intermediate values are multiples of 1/512 below 2^4: exact.
        let expected = x
            .iter()
            .zip(&y)
            .map(|(&x, &y)| (2.5 * f64::from(x) + f64::from(y)) as f32);
        assert_eq!(found, expected.collect::<Vec<_>>(), "{n}");
    }
}

#[test]
fn row_softmax_agrees_with_f64() {
    let kernel = row_softmax();
    for (rows, n, lanes) in [
        (1, 1, 1),
        (3, 7, 8),
        (5, 64, 64),
        (2, 1000, 256),
        (7, 33, 16),
    ] {
        let data = wave(rows * n);
        let x = on_device(&Tensor::from_slice(&data, [rows, n]));
        let call = kernel.call(&[&x]).threadgroups(rows).group(lanes);
        let found = run(call.threadgroup("scratch", lanes))
            .to_vec::<f32>()
            .unwrap();
        for (row, found) in data.chunks(n).zip(found.chunks(n)) {
            let exps: Vec<f64> = row.iter().map(|&v| f64::from(v).exp()).collect();
            let sum: f64 = exps.iter().sum();
            for (found, exp) in found.iter().zip(&exps) {
                let expected = exp / sum;
                let error = (f64::from(*found) - expected).abs();
                assert!(
                    error <= bound::F32_CUSTOM_SOFTMAX * expected,
                    "{rows}x{n}: {found} instead of {expected}"
                );
            }
        }
    }
}

#[test]
fn histogram_counts_every_element() {
    let kernel = histogram();
    for n in SIZES {
        let bins = 1 + n % 13;
        let data: Vec<u32> = (0..n).map(|i| (i * 7919 % 17) as u32).collect();
        let x = on_device(&Tensor::from_slice(&data, [n]));
        let call = kernel.call(&[&x]).shape("counts", [bins]).init("counts", 0);
        let found = run(call.threads(n)).to_vec::<u32>().unwrap();
        let mut expected = vec![0; bins];
        for &value in &data {
            expected[(value as usize).min(bins - 1)] += 1;
        }
        assert_eq!(found, expected, "{n}");
    }
}

#[test]
fn a_rule_gives_the_shape_of_an_output() {
    let body = "float sum = 0; for (uint k = 0; k < x_shape[1]; k++) sum += x[i * x_shape[1] + k]; out[i] = sum;";
    let kernel = MetalKernel::body("row_sum", body)
        .input("x")
        .output("out")
        .shape_rule("out", |shapes| Shape::new("row_sum", &shapes[0][..1]))
        .index("i")
        .build()
        .unwrap();
    for (rows, n) in [(1, 5), (37, 3), (4, 0)] {
        let data = wave(rows * n);
        let x = on_device(&Tensor::from_slice(&data, [rows, n]));
        let found = run(kernel.call(&[&x]).threads(rows));
        assert_eq!(found.shape()[..], [rows]);
        let expected: Vec<f32> = (0..rows).map(|r| data[r * n..][..n].iter().sum()).collect();
        assert_eq!(found.to_vec::<f32>().unwrap(), expected);
    }
}
