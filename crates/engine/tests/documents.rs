//! What the five documents promise of computing, on the CPU.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use bessemer::{DType, Tensor};

fn vector(data: &[f32]) -> Tensor {
    Tensor::from_slice(data, [data.len()])
}

fn values(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

#[test]
fn the_worked_values_of_minitensor() {
    let (a, b) = (vector(&[1.0, 2.0, 3.0, 4.0]), vector(&[5.0, 6.0, 7.0, 8.0]));
    assert_eq!(values(&(&a + &b)), [6.0, 8.0, 10.0, 12.0]);
    assert_eq!(values(&(&a * &b)), [5.0, 12.0, 21.0, 32.0]);
    let product = a.reshape([2, 2]).matmul(&b.reshape([2, 2]));
    assert_eq!(values(&product), [19.0, 22.0, 43.0, 50.0]);
    assert_eq!(values(&vector(&[-1.0, 0.0, 2.0]).relu()), [0.0, 0.0, 2.0]);
    assert_eq!(values(&vector(&[0.0]).sigmoid()), [0.5]);
}

#[test]
fn the_calls_of_torchless() {
    let weights = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
    let x = vector(&[1.0, 0.0, -1.0]);
    assert_eq!(values(&weights.matvec(&x)), [-2.0, -2.0]);
    assert_eq!(values(&vector(&[2.0, 2.0]).softmax(-1)), [0.5, 0.5]);
    let ones = Tensor::ones([2], DType::F32);
    assert_eq!(
        values(&vector(&[3.0, -3.0]).rms_norm(&ones, 0.0)),
        [1.0, -1.0]
    );
    // Attention scores of one query with two keys, then the sum of two rows by weight.
    let keys = Tensor::from_slice(&[1.0_f32, 0.0, 0.0, 2.0], [2, 2]);
    let scores = keys.matvec(&vector(&[3.0, 4.0])) / 2.0;
    assert_eq!(values(&scores), [1.5, 4.0]);
    let rows = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [2, 2]);
    assert_eq!(values(&vector(&[0.5, 0.25]).matmul(&rows)), [1.25, 2.0]);
    let gate = vector(&[0.0, 20.0]).swiglu(&vector(&[7.0, 0.5]));
    assert_eq!(values(&gate), [0.0, 10.0]);
}

/// The 21 kinds of its enum: each with the value of one element.
#[test]
fn the_kinds_of_numrs() {
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
        // Four units in the last place: twice the largest bound of these functions.
        assert!(
            (got - expected).abs() <= 4.0 * f64::from(f32::EPSILON),
            "{name}: {got}, {expected}"
        );
    }
}

#[test]
fn the_functions_of_pydotcompute() {
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
        let bound = 4.0 * f64::from(f32::EPSILON) * expected.abs();
        assert!((got - expected).abs() <= bound, "{name}: {got}, {expected}");
    }
}

#[test]
fn a_matrix_beyond_2048() {
    let n = 2050;
    let line = |m: usize| Tensor::arange(0, n, 1, DType::F32) % Tensor::scalar(m as f32);
    let column = line(7).reshape([n, 1]).broadcast_to([n, n]);
    let row = line(5).reshape([1, n]).broadcast_to([n, n]);
    let product = values(&column.matmul(&row));
    // Whole numbers below 2^24: every order of summation gives them exactly.
    for (at, &got) in product.iter().enumerate() {
        let (i, j) = (at / n, at % n);
        assert_eq!(got, (n * (i % 7) * (j % 5)) as f32, "{i}, {j}");
    }
}
