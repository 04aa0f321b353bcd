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

mod against_the_reference {
    use bessemer::{DType, Tensor};
    use bessemer_testing::Array;
    use bessemer_testing::case::{Fill, broadcasting, check};
    use bessemer_testing::layout::agree;
    use bessemer_testing::reference::gated::{geglu, swiglu};

    use crate::axis::pair;

    #[test]
    fn gates_of_every_type_layout_and_broadcast_are_right() {
        type Both = (
            &'static str,
            fn(&Tensor, &Tensor) -> Tensor,
            fn(&Array, &Array) -> Array,
        );
        let both: [Both; 2] = [
            ("swiglu", Tensor::swiglu, swiglu),
            ("geglu", Tensor::geglu, geglu),
        ];
        for (name, op, reference) in both {
            for dtype in DType::ALL {
                let cases = pair(dtype, &Fill::TAME, broadcasting(4, 500));
                check(&format!("{name} of {dtype}"), 40, cases, |[gate, up]| {
                    let expected = reference(&gate.array(), &up.array());
                    let got = op(&gate.tensor(), &up.tensor());
                    agree(name, 1, &got, &expected, None)
                });
            }
        }
    }
}
