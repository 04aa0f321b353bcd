//! Matmul by the device's own library (MPS).
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use bessemer::{DType, Device, MatrixLibrary, Tensor};
use bessemer_hal as hal;
use bessemer_hal::soft::{self, SoftOptions};
use bessemer_testing::tolerance::bound;

/// A matrix, stored as it is or transposed, possibly as a slice of a larger one.
fn matrix(shape: [usize; 2], transposed: bool, part: bool, dtype: DType) -> Tensor {
    let [rows, columns] = if transposed {
        [shape[1], shape[0]]
    } else {
        shape
    };
    let more = if part { 3 } else { 0 };
    let wide = [rows + more, columns + more];
    let data: Vec<f32> = (0..wide[0] * wide[1])
        .map(|i| ((i * 29) % 31) as f32 / 16.0 - 1.0)
        .collect();
    let mut t = Tensor::from_slice(&data, wide).cast(dtype);
    t.eval().unwrap();
    if part {
        t = t.slice(0, 2, 2 + rows as isize, 1);
        t = t.slice(1, 1, 1 + columns as isize, 1);
    }
    if transposed { t.transpose(0, 1) } else { t }
}

fn numbers(t: &Tensor) -> Vec<f64> {
    t.to(&Device::cpu()).cast(DType::F64).to_vec().unwrap()
}

fn near(found: &Tensor, expected: &[f64], bound: f64, what: &str) {
    let found = numbers(found);
    assert_eq!(found.len(), expected.len(), "{what}");
    for (a, b) in found.iter().zip(expected) {
        assert!(
            (a - b).abs() <= bound * b.abs().max(1.0),
            "{what}: {a}, {b}"
        );
    }
}

#[test]
fn library_matmuls_agree_with_the_kernels() {
    let on = |library| {
        let device = Device::on(soft::device(SoftOptions::default()).unwrap());
        assert_eq!(device.matrix_library(), Some(MatrixLibrary::Msl));
        device.set_matrix_library(library).unwrap();
        assert_eq!(device.matrix_library(), Some(library));
        device
    };
    let devices = [on(MatrixLibrary::Msl), on(MatrixLibrary::Mps)];
    let sizes = [
        [1, 1, 1],
        [3, 5, 7],
        [33, 31, 65],
        [1, 40, 20],
        [40, 1, 20],
        [64, 2, 1],
    ];
    for dtype in [DType::F32, DType::F16] {
        for [m, n, k] in sizes {
            for case in 0..8 {
                let (left, right, part) = (case & 1 > 0, case & 2 > 0, case & 4 > 0);
                let a = matrix([m, k], left, part, dtype);
                let b = matrix([k, n], right, part, dtype);
                let (x, y) = (numbers(&a), numbers(&b));
                let cell = |i: usize| (0..k).map(|l| x[i / n * k + l] * y[l * n + i % n]).sum();
                let exact: Vec<f64> = (0..m * n).map(cell).collect();
                // Epilogue: a row added to every row of the product.
                let c = matrix([1, n], false, part, DType::F32);
                let z = numbers(&c);
                let sums: Vec<f64> = (0..m * n).map(|i| exact[i] + z[i % n]).collect();
                let bound = bound::library_matmul(dtype);
                for device in &devices {
                    let what = format!("{dtype} {m}x{k}x{n}, case {case}, {device}");
                    let [a, b, c] = [&a, &b, &c].map(|t| t.to(device));
                    near(&a.matmul(&b), &exact, bound, &what);
                    if dtype == DType::F32 {
                        near(&(a.matmul(&b) + &c), &sums, bound, &what);
                    }
                }
            }
        }
    }
}

/// Library matmuls and kernel launches recorded by a recording device.
fn counts(library: MatrixLibrary, graph: impl Fn() -> Tensor) -> (u64, u64) {
    let device = Device::on(hal::noop::device(hal::Family::Apple7));
    device.set_matrix_library(library).unwrap();
    device.scope(graph).eval().unwrap();
    device.synchronize().unwrap();
    let counts = hal::noop::record(device.hal().unwrap()).unwrap().counts;
    (counts.products, counts.dispatches)
}

#[test]
fn matmuls_that_the_library_rejects_run_as_kernels() {
    let device = Device::on(hal::noop::device(hal::Family::Apple7));
    device.set_matrix_library(MatrixLibrary::Mps).unwrap();
    let x = Tensor::ones([64, 64], DType::F32).to(&device).contiguous();
    x.eval().unwrap();
    let recorded = device.hal().unwrap();
    let counts = || {
        hal::noop::clear(recorded);
        x.matmul(&x).eval().unwrap();
        (x.matmul(&x) + &x).eval().unwrap();
        device.synchronize().unwrap();
        let counts = hal::noop::record(recorded).unwrap().counts;
        [counts.products, counts.dispatches]
    };
    // The addend is copied first.
    assert_eq!(counts(), [2, 1]);
    hal::noop::refuse_products(recorded);
    assert_eq!(counts(), [0, 2]);
}

#[test]
fn unsupported_matmuls_run_as_kernels() {
    type Graph<'a> = Box<dyn Fn() -> Tensor + 'a>;
    let f32s = |shape: &[usize]| {
        let count = shape.iter().product();
        Tensor::from_slice(&vec![1.0_f32; count], shape)
    };
    let product: Graph<'_> = Box::new(|| f32s(&[20, 30]).matmul(&f32s(&[30, 40])));
    assert_eq!(counts(MatrixLibrary::Msl, &product).0, 0);
    let cases: Vec<(&str, u64, Graph<'_>)> = vec![
        ("a product", 1, product),
        (
            "many rows of matrices and one on the right",
            1,
            Box::new(|| f32s(&[4, 5, 30]).matmul(&f32s(&[30, 40]))),
        ),
        (
            "a product and a row",
            1,
            Box::new(|| f32s(&[20, 30]).matmul(&f32s(&[30, 40])) + f32s(&[40])),
        ),
        (
            "a batch",
            0,
            Box::new(|| f32s(&[3, 20, 30]).matmul(&f32s(&[3, 30, 40]))),
        ),
        (
            "a broadcast factor",
            0,
            Box::new(|| {
                f32s(&[1, 30])
                    .broadcast_to([20, 30])
                    .matmul(&f32s(&[30, 40]))
            }),
        ),
        (
            "integers",
            0,
            Box::new(|| {
                let whole = |shape: &[usize]| f32s(shape).cast(DType::I32);
                whole(&[20, 30]).matmul(&whole(&[30, 40]))
            }),
        ),
        (
            "sums of nothing",
            0,
            Box::new(|| f32s(&[20, 0]).matmul(&f32s(&[0, 40]))),
        ),
    ];
    for (name, products, graph) in cases {
        let (found, launches) = counts(MatrixLibrary::Mps, graph);
        assert_eq!(found, products, "{name}");
        assert!(found + launches > 0, "{name}");
    }
}
