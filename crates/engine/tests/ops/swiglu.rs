use bessemer::{DType, Error, Tensor, explain};

use crate::data::{assert_agrees, in_every_float, numbers};

fn swiglu(g: f64, u: f64) -> f64 {
    g / (1.0 + (-g).exp()) * u
}

fn geglu(g: f64, u: f64) -> f64 {
    bessemer_testing::reference::unary::gelu_tanh(g) * u
}

#[test]
fn every_type_matches_the_formula() {
    let (g, u) = (numbers(1, 300), numbers(2, 300));
    let of = |f: fn(f64, f64) -> f64| -> Vec<f64> {
        let pairs = g.iter().zip(&u);
        pairs.map(|(&g, &u)| f(g, u)).collect()
    };
    let ups = in_every_float(&u, &[3, 100]);
    for (gate, up) in in_every_float(&g, &[3, 100]).iter().zip(&ups) {
        assert_eq!(gate.swiglu(up).dtype(), gate.dtype());
        assert_agrees("swiglu", 1, &gate.swiglu(up), &of(swiglu), None);
        assert_agrees("geglu", 1, &gate.geglu(up), &of(geglu), None);
    }
}

#[test]
fn half_precision_is_one_pass_too() {
    let (g, u) = (numbers(3, 64), numbers(4, 64));
    let expected: Vec<f64> = g.iter().zip(&u).map(|(&g, &u)| swiglu(g, u)).collect();
    let ups = in_every_float(&u, &[64]);
    for (gate, up) in in_every_float(&g, &[64]).iter().zip(&ups) {
        let y = gate.swiglu(up);
        assert_eq!(explain(&[&y]).unwrap().steps.len(), 1);
        assert_agrees("swiglu", 1, &y, &expected, None);
        // Swapped operands give another result: only the gate is activated.
        assert!(
            bessemer_testing::layout::array(&y)
                != bessemer_testing::layout::array(&up.swiglu(gate))
        );
    }
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
    fn every_type_layout_and_broadcast_is_right() {
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
                let cases = pair(dtype, &Fill::IN_RANGE, broadcasting(4, 500));
                check(&format!("{name} of {dtype}"), 40, cases, |[gate, up]| {
                    let expected = reference(&gate.array(), &up.array());
                    let got = op(&gate.tensor(), &up.tensor());
                    agree(name, 1, &got, &expected, None)
                });
            }
        }
    }
}
