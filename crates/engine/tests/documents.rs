//! The computations that the five documents specify, on the CPU.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use bessemer::{Device, Tensor};
use bessemer_testing::tolerance::bound;

fn vector(data: &[f32]) -> Tensor {
    Tensor::from_slice(data, [data.len()])
}

fn values(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

fn assert_near(found: &Tensor, expected: &[f64]) {
    let found = values(found);
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(expected) {
        let off = (f64::from(*a) - b).abs();
        assert!(
            off <= bound::F32_FEW_STEPS * b.abs().max(1.0),
            "{found:?} instead of {expected:?}"
        );
    }
}

#[test]
fn worked_examples_of_minitensor() {
    let (a, b) = (vector(&[1.0, 2.0, 3.0, 4.0]), vector(&[5.0, 6.0, 7.0, 8.0]));
    assert_eq!(values(&(&a + &b)), [6.0, 8.0, 10.0, 12.0]);
    assert_eq!(values(&(&a * &b)), [5.0, 12.0, 21.0, 32.0]);
    let product = a.reshape([2, 2]).matmul(&b.reshape([2, 2]));
    assert_eq!(values(&product), [19.0, 22.0, 43.0, 50.0]);
    assert_eq!(values(&vector(&[-1.0, 0.0, 2.0]).relu()), [0.0, 0.0, 2.0]);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let x = [-1.5_f64, 0.25, 3.0];
    assert_near(&vector(&x.map(|v| v as f32)).sigmoid(), &x.map(sigmoid));
}

#[test]
fn calls_of_torchless() {
    let weights = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, -6.0], [2, 3]);
    let x = vector(&[2.0, 0.5, -1.0]);
    assert_eq!(values(&weights.matvec(&x)), [0.0, 16.5]);
    let e = [1.0_f64, 3.0, -2.0].map(f64::exp);
    let sum: f64 = e.iter().sum();
    assert_near(&vector(&[1.0, 3.0, -2.0]).softmax(-1), &e.map(|v| v / sum));
    // The mean square is 12.5, and eps makes it 15.
    let root = 15_f64.sqrt();
    assert_near(
        &vector(&[3.0, -4.0]).rms_norm(&vector(&[2.0, 0.5]), 2.5),
        &[6.0 / root, -2.0 / root],
    );
    // Attention scores of one query with three keys, then the weighted sum of three rows.
    let keys = Tensor::from_slice(&[1.0_f32, 2.0, -1.0, 4.0, 0.0, 3.0], [3, 2]);
    let scores = keys.matvec(&vector(&[3.0, 0.5])) / 4.0;
    assert_eq!(values(&scores), [1.0, -0.25, 0.375]);
    assert_eq!(
        values(&vector(&[0.5, 0.25, 2.0]).matmul(&keys)),
        [0.25, 8.0]
    );
    let gate = vector(&[-2.0, 3.0]).swiglu(&vector(&[7.0, -0.5]));
    let silu = |x: f64| x / (1.0 + (-x).exp());
    assert_near(&gate, &[7.0 * silu(-2.0), -0.5 * silu(3.0)]);
}

/// The 21 variants of its enum, each with the value of one element.
#[test]
fn unary_functions_of_numrs() {
    let (x, y) = (vector(&[0.75]), vector(&[0.5]));
    let kinds: [(&str, Tensor, f64); 21] = [
        ("add", &x + &y, 1.25),
        ("mul", &x * &y, 0.375),
        ("sub", &x - &y, 0.25),
        ("div", &x / &y, 1.5),
        ("pow", x.pow(&y), 0.75_f64.sqrt()),
        ("sqrt", x.sqrt(), 0.75_f64.sqrt()),
        ("sin", x.sin(), 0.75_f64.sin()),
        ("cos", x.cos(), 0.75_f64.cos()),
        ("tan", x.tan(), 0.75_f64.tan()),
        ("asin", x.asin(), 0.75_f64.asin()),
        ("acos", x.acos(), 0.75_f64.acos()),
        ("atan", x.atan(), 0.75_f64.atan()),
        ("exp", x.exp(), 0.75_f64.exp()),
        ("log", x.log(), 0.75_f64.ln()),
        ("abs", (-&x).abs(), 0.75),
        ("neg", -&x, -0.75),
        ("relu", (-&x).relu(), 0.0),
        ("leaky_relu", (-&x).leaky_relu(0.01), -0.0075),
        ("sigmoid", x.sigmoid(), 1.0 / (1.0 + (-0.75_f64).exp())),
        ("tanh", x.tanh(), 0.75_f64.tanh()),
        ("softplus", x.softplus(), 0.75_f64.exp().ln_1p()),
    ];
    for (name, result, expected) in kinds {
        let got = f64::from(result.item::<f32>().unwrap());
        assert!(
            (got - expected).abs() <= bound::F32_FUNCTION,
            "{name}: {got}, {expected}"
        );
    }
}

#[test]
fn functions_of_pydotcompute() {
    let (x, y) = (vector(&[4.0]), vector(&[2.0]));
    let functions: [(&str, Tensor, f64); 12] = [
        ("add", &x + &y, 6.0),
        ("sub", &x - &y, 2.0),
        ("mul", &x * &y, 8.0),
        ("div", &x / &y, 2.0),
        ("sqrt", x.sqrt(), 2.0),
        ("exp", y.exp(), 2.0_f64.exp()),
        ("log", x.log(), 4.0_f64.ln()),
        ("sin", x.sin(), 4.0_f64.sin()),
        ("cos", x.cos(), 4.0_f64.cos()),
        ("abs", (-&x).abs(), 4.0),
        ("square", x.square(), 16.0),
        ("negative", x.neg(), -4.0),
    ];
    for (name, result, expected) in functions {
        let got = f64::from(result.item::<f32>().unwrap());
        let bound = bound::F32_FUNCTION * expected.abs();
        assert!((got - expected).abs() <= bound, "{name}: {got}, {expected}");
    }
}

/// Elements of both factors have distinct weights, so that repeated, missing or misplaced products change the result.
/// Integers below 2^24, so that every order of summation is exact.
#[test]
fn matrices_larger_than_2048() {
    check_larger_than_2048(&Device::cpu(), [2050, 2053, 2051]);
    check_larger_than_2048(&Device::cpu(), [3, 5, 4099]);
}

#[cfg(target_os = "linux")]
#[test]
fn matrices_larger_than_2048_on_the_software_device() {
    let device = Device::software().unwrap();
    check_larger_than_2048(&device, [2050, 2053, 6]);
    check_larger_than_2048(&device, [33, 5, 2051]);
    check_larger_than_2048(&device, [3, 2053, 2051]);
}

fn check_larger_than_2048(device: &Device, [m, n, k]: [usize; 3]) {
    let left = |i: usize, l: usize| ((i * 7 + l * 3) % 11) as i64 - 5;
    let right = |l: usize, j: usize| ((l * 5 + j * 2) % 13) as i64 - 6;
    let matrix = |rows: usize, cols: usize, f: &dyn Fn(usize, usize) -> i64| {
        let data: Vec<f32> = (0..rows * cols)
            .map(|at| f(at / cols, at % cols) as f32)
            .collect();
        Tensor::from_vec(data, [rows, cols]).to(device)
    };
    let product = matrix(m, k, &left).matmul(&matrix(k, n, &right));
    let product = values(&product);
    assert_eq!(product.len(), m * n);
    // The factors repeat after 11 rows and 13 columns, and so does their product.
    let cell = |i: usize, j: usize| (0..k).map(|l| left(i, l) * right(l, j)).sum::<i64>() as f32;
    let block: Vec<f32> = (0..11 * 13).map(|at| cell(at / 13, at % 13)).collect();
    for (at, &got) in product.iter().enumerate() {
        let (i, j) = (at / n, at % n);
        assert_eq!(got, block[i % 11 * 13 + j % 13], "{i}, {j}");
    }
}
