use bessemer::{DType, Error, Tensor, explain};

use crate::near::{assert_near, in_every_float, numbers};

#[test]
fn gated_activations_are_their_formulas_in_every_type() {
    let (g, u) = (numbers(1, 300), numbers(2, 300));
    let pairs = || g.iter().zip(&u);
    let swiglu: Vec<f64> = pairs().map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
    let tanh = |x: f64| ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh();
    let geglu: Vec<f64> = pairs()
        .map(|(g, u)| g * (1.0 + tanh(*g)) / 2.0 * u)
        .collect();
    let ups = in_every_float(&u, &[3, 100]);
    for ((gate, error), (up, _)) in in_every_float(&g, &[3, 100]).iter().zip(&ups) {
        assert_eq!(gate.swiglu(up).dtype(), gate.dtype());
        assert_near(&gate.swiglu(up), &swiglu, *error);
        assert_near(&gate.geglu(up), &geglu, *error);
    }
}

#[test]
fn a_gate_is_one_pass_in_half_precision_too() {
    let x = Tensor::from_slice(&[half::f16::ONE; 64], [64]);
    let y = x.swiglu(&x);
    assert_eq!(explain(&[&y]).unwrap().steps.len(), 1);
}

#[test]
fn rejects_shapes_that_do_not_broadcast() {
    let (a, b) = (
        Tensor::zeros([3], DType::F32),
        Tensor::zeros([4], DType::F32),
    );
    let error = a.swiglu(&b).check().unwrap_err();
    assert!(
        matches!(error, Error::ShapeMismatch { op: "mul", .. }),
        "{error}"
    );
}
