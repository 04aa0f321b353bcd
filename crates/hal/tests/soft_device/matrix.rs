//! Matrix multiplication on the software device, in place of Metal Performance Shaders.

use std::time::Duration;

use bessemer_hal::soft::{self, Mode, SoftOptions};
use bessemer_hal::{
    Device, Error, Fault, Matrix, MatrixElement, MatrixProduct, StorageMode, Submission,
};

use crate::setup::device;

/// Returns numbers that are exact in half precision, as are their products and short sums.
fn wave(count: usize, step: usize) -> Vec<f32> {
    let number = |i: usize| ((i * step) % 17) as f32 / 4.0 - 2.0;
    (0..count).map(number).collect()
}

/// A matrix product and its memory layout.
struct Case {
    sizes: [usize; 3],
    transposed: [bool; 2],
    /// Elements between rows.
    gap: usize,
    alpha: f64,
    beta: f64,
}

fn submit(device: &Device, product: &MatrixProduct) -> Submission {
    let mut commands = device.commands();
    commands.multiply(product).unwrap();
    commands.commit().unwrap()
}

fn check(device: &Device, case: &Case) {
    let [m, n, k] = case.sizes;
    let shapes = [
        (m, k, case.transposed[0]),
        (k, n, case.transposed[1]),
        (m, n, false),
    ];
    let stored = shapes.map(|(r, c, transposed)| if transposed { (c, r) } else { (r, c) });
    let data = stored.map(|(rows, columns)| wave(rows * (columns + case.gap), 5 + rows));
    let at = |which: usize, row: usize, column: usize| {
        let (row, column) = if shapes[which].2 {
            (column, row)
        } else {
            (row, column)
        };
        row * (stored[which].1 + case.gap) + column
    };
    let of = |which: usize, row, column| f64::from(data[which][at(which, row, column)]);
    let mut expected = data[2].clone();
    for i in 0..m {
        for j in 0..n {
            let sum: f64 = (0..k).map(|l| of(0, i, l) * of(1, l, j)).sum();
            expected[at(2, i, j)] = (case.alpha * sum + case.beta * of(2, i, j)) as f32;
        }
    }
    for element in [MatrixElement::F32, MatrixElement::F16] {
        let size = element.size();
        let skip = 3 * size;
        let buffers = [0, 1, 2].map(|i| {
            let mut bytes = vec![0_u8; skip];
            for &value in &data[i] {
                match element {
                    MatrixElement::F32 => bytes.extend(value.to_ne_bytes()),
                    MatrixElement::F16 => bytes.extend(half::f16::from_f32(value).to_ne_bytes()),
                }
            }
            device
                .buffer_with_data(&bytes, StorageMode::Shared)
                .unwrap()
        });
        let [left, right, result] = [0, 1, 2].map(|i| {
            let slice = buffers[i].slice(skip..buffers[i].length()).unwrap();
            let (rows, columns) = stored[i];
            let matrix = Matrix::new(slice, rows, columns, (columns + case.gap) * size);
            if shapes[i].2 {
                matrix.transposed()
            } else {
                matrix
            }
        });
        let mut product = MatrixProduct::new(element, left, right, result);
        (product.alpha, product.beta) = (case.alpha, case.beta);
        submit(device, &product).wait().unwrap();
        let mut found = vec![0.0_f32; expected.len()];
        match element {
            MatrixElement::F32 => buffers[2].read(skip, &mut found).unwrap(),
            MatrixElement::F16 => {
                let mut half = vec![half::f16::ZERO; expected.len()];
                buffers[2].read(skip, &mut half).unwrap();
                found = half.into_iter().map(half::f16::to_f32).collect();
            }
        }
        let tolerance = match element {
            MatrixElement::F32 => 1e-5,
            MatrixElement::F16 => 1e-3,
        };
        for (i, (a, b)) in found.iter().zip(&expected).enumerate() {
            let error = (a - b).abs();
            let sizes = case.sizes;
            assert!(
                error <= tolerance * b.abs().max(1.0),
                "{sizes:?} at {i}: {a}, {b}"
            );
        }
    }
}

#[test]
fn products_with_every_transposition_and_odd_sizes_match_the_definition() {
    for mode in Mode::ALL {
        let device = device(mode);
        for sizes in [
            [1, 1, 1],
            [3, 5, 7],
            [64, 64, 16],
            [65, 63, 33],
            [1, 130, 9],
        ] {
            for transposed in [[false, false], [true, false], [false, true], [true, true]] {
                for (gap, alpha, beta) in [(0, 1.0, 0.0), (3, 0.5, 2.0)] {
                    check(
                        &device,
                        &Case {
                            sizes,
                            transposed,
                            gap,
                            alpha,
                            beta,
                        },
                    );
                }
            }
        }
    }
}

#[test]
fn with_beta_zero_the_old_result_is_ignored() {
    let device = device(Mode::Fast);
    let shared = StorageMode::Shared;
    let a = device.buffer_with_data(&[1.0_f32, 2.0], shared).unwrap();
    let c = device.buffer_with_data(&[f32::NAN], shared).unwrap();
    let product = MatrixProduct::new(
        MatrixElement::F32,
        Matrix::new(&a, 1, 2, 8),
        Matrix::new(&a, 2, 1, 4),
        Matrix::new(&c, 1, 1, 4),
    );
    submit(&device, &product).wait().unwrap();
    assert_eq!(c.to_vec::<f32>().unwrap(), [5.0]);
}

#[test]
fn a_product_past_the_time_limit_is_an_error() {
    for mode in [Mode::Fast, Mode::Isolated] {
        let options = SoftOptions {
            timeout: Duration::from_millis(20),
            ..SoftOptions::in_mode(mode)
        };
        let device = soft::device(options).unwrap();
        let n = 4096;
        let [a, c] = [(); 2].map(|()| device.buffer(4 * n * n, StorageMode::Private).unwrap());
        let matrix = |buffer| Matrix::new(buffer, n, n, 4 * n);
        let product = MatrixProduct::new(MatrixElement::F32, matrix(&a), matrix(&a), matrix(&c));
        let error = submit(&device, &product).wait().unwrap_err();
        let timeout = matches!(
            error,
            Error::Execution {
                fault: Fault::Timeout,
                ..
            }
        );
        assert!(timeout, "{mode}: {error}");
    }
}

#[test]
fn products_flush_single_precision_subnormals() {
    let shared = StorageMode::Shared;
    let min_normal = f32::MIN_POSITIVE;
    for mode in Mode::ALL {
        let device = device(mode);
        // A subnormal operand, a subnormal product, a subnormal sum, a subnormal result of alpha, and a normal one.
        for (left, right, alpha, expected) in [
            ([min_normal / 2.0, 0.0], [4.0, 1.0], 1.0, 0.0),
            ([1e-20, 1.0], [1e-20, min_normal], 1.0, min_normal),
            ([1.5 * min_normal, -1.0], [1.0, min_normal], 4.0, 0.0),
            ([min_normal, 0.0], [1.0, 1.0], 0.25, 0.0),
            ([2.0 * min_normal, 0.0], [1.0, 1.0], 0.5, min_normal),
        ] {
            let a = device.buffer_with_data::<f32>(&left, shared).unwrap();
            let b = device.buffer_with_data::<f32>(&right, shared).unwrap();
            let c = device.buffer_with_data(&[1.0_f32], shared).unwrap();
            let mut product = MatrixProduct::new(
                MatrixElement::F32,
                Matrix::new(&a, 1, 2, 8),
                Matrix::new(&b, 2, 1, 4),
                Matrix::new(&c, 1, 1, 4),
            );
            product.alpha = alpha;
            submit(&device, &product).wait().unwrap();
            let found = c.to_vec::<f32>().unwrap();
            assert_eq!(found, [expected], "{mode}: {left:?} {right:?}");
        }
        // Half precision keeps its subnormals: 2^-24 times 1.
        let [a, b, c] =
            [[1_u16], [0x3c00], [0]].map(|bits| device.buffer_with_data(&bits, shared).unwrap());
        let matrix = |buffer| Matrix::new(buffer, 1, 1, 2);
        let product = MatrixProduct::new(MatrixElement::F16, matrix(&a), matrix(&b), matrix(&c));
        submit(&device, &product).wait().unwrap();
        assert_eq!(c.to_vec::<u16>().unwrap(), [1], "{mode}");
    }
}
