//! `einsum`.

use bessemer::{DType, Tensor};

fn ramp(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::arange(0, n, 1, DType::F64).reshape(shape)
}

fn same(formula: &str, operands: &[&Tensor], expected: &Tensor) {
    let y = Tensor::einsum(formula, operands);
    y.check().unwrap_or_else(|e| panic!("{formula}: {e}"));
    assert_eq!(y.shape(), expected.shape(), "{formula}");
    let values = |t: &Tensor| t.to_vec::<f64>().unwrap();
    assert_eq!(values(&y), values(expected), "{formula}");
}

#[test]
fn formulas_match_the_equivalent_ops() {
    let (a, b) = (ramp(&[2, 3]), ramp(&[3, 4]));
    same("ij,jk->ik", &[&a, &b], &a.matmul(&b));
    same("ij, jk", &[&a, &b], &a.matmul(&b));
    same("ij,jk->ki", &[&a, &b], &a.matmul(&b).t());
    same("ij->ji", &[&a], &a.t());
    same("ba", &[&a], &a.t());
    same("ij->", &[&a], &a.sum(&[], false));
    same("ij->j", &[&a], &a.sum(&[0], false));
    same("ij,ij->ij", &[&a, &a], &a.square());
    let (x, y) = (ramp(&[3]), ramp(&[4]));
    same("i,j->ij", &[&x, &y], &x.outer(&y));
    same("i,i->", &[&x, &x], &x.dot(&x));
    let square = ramp(&[3, 3]);
    same("ii->i", &[&square], &square.diagonal(0, 0, 1));
    same("ii", &[&square], &square.diagonal(0, 0, 1).sum(&[], false));
    let (p, q) = (ramp(&[5, 2, 3]), ramp(&[5, 3, 4]));
    same("bij,bjk->bik", &[&p, &q], &p.matmul(&q));
    same("...ij,...jk->...ik", &[&p, &q], &p.matmul(&q));
    same("...ij,jk", &[&p, &b], &p.matmul(&b));
    same("bij,bjk->ik", &[&p, &q], &p.matmul(&q).sum(&[0], false));
}

#[test]
fn three_operands_are_multiplied_left_to_right() {
    let (a, b, c) = (ramp(&[2, 3]), ramp(&[3, 4]), ramp(&[4, 5]));
    same("ij,jk,kl->il", &[&a, &b, &c], &a.matmul(&b).matmul(&c));
    // An axis that a later operand has is not summed early.
    let w = ramp(&[3]);
    let expected = a.mul(&w).matmul(&b);
    same("ij,j,jk->ik", &[&a, &w, &b], &expected);
}

#[test]
fn axes_of_length_one_broadcast() {
    let (a, b) = (ramp(&[1, 3]), ramp(&[4, 3]));
    same("ij,ij->ij", &[&a, &b], &a.mul(&b));
    same("ij,ij->i", &[&a, &b], &a.mul(&b).sum(&[1], false));
}

#[test]
fn a_sum_over_an_empty_axis_is_zero() {
    let (a, b) = (ramp(&[2, 0]), ramp(&[0, 3]));
    same("ij,jk->ik", &[&a, &b], &Tensor::zeros([2, 3], DType::F64));
}

#[test]
fn rejects_invalid_formulas() {
    let a = ramp(&[2, 3]);
    let cases = [
        ("ij,jk->ik", "has 2 operands, but 1 are given"),
        ("i->i", "names 1 axes"),
        ("ij->k", "repeats an axis, or names one that no operand has"),
        ("ij->ii", "repeats an axis"),
        ("i1->i", "`1` is not an axis"),
        ("ijk", "names 3 axes"),
        ("", "names 0 axes"),
    ];
    for (formula, message) in cases {
        let error = Tensor::einsum(formula, &[&a]).check().unwrap_err();
        assert!(error.to_string().contains(message), "{formula}: {error}");
    }
    let error = Tensor::einsum("ij,ij->ij", &[&a, &ramp(&[2, 4])])
        .check()
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "einsum: axis `j` has length 3 in one operand and 4 in another"
    );
    assert!(Tensor::einsum("->", &[]).check().is_err());
}

mod against_the_reference {
    use bessemer::{DType, Tensor};
    use bessemer_testing::case::{Fill, Input, LayoutKind};
    use bessemer_testing::layout::agree;
    use bessemer_testing::random::Rng;
    use bessemer_testing::reference::einsum::einsum;

    const FORMULAS: [&str; 22] = [
        "ij,jk->ik",
        "ij,jk",
        "ij,kj->ik",
        "ij->ji",
        "ijk->kij",
        "ij->",
        "ij->j",
        "ii",
        "ii->i",
        "iij->j",
        "i,i->",
        "i,j->ij",
        "i,i->i",
        "ij,ij->ij",
        "bij,bjk->bik",
        "bij,jk->bik",
        "bhid,bhjd->bhij",
        "ijk,kl->ijl",
        "ij,jk,kl->il",
        "i,ij,j->",
        "ij,k->kj",
        "abc,cd,b->da",
    ];

    #[test]
    fn formulas_match_the_reference() {
        let mut rng = Rng::new(11);
        for dtype in [DType::F32, DType::F64, DType::F16, DType::I32] {
            for formula in FORMULAS {
                for _ in 0..4 {
                    let lengths: Vec<_> = (0..26).map(|_| rng.pick(&[1, 2, 3, 5, 8, 9])).collect();
                    let inputs: Vec<_> = formula
                        .split("->")
                        .next()
                        .unwrap()
                        .split(',')
                        .map(|letters| Input {
                            dtype,
                            shape: letters
                                .bytes()
                                .map(|c| lengths[usize::from(c - b'a')])
                                .collect(),
                            fill: Fill::Small,
                            layout: rng.pick(&LayoutKind::ALL),
                            seed: rng.bits(),
                        })
                        .collect();
                    judge(formula, &inputs);
                }
            }
        }
    }

    fn judge(formula: &str, inputs: &[Input]) {
        let arrays: Vec<_> = inputs.iter().map(Input::array).collect();
        let sizes: Vec<_> = arrays.iter().map(|a| a.magnitudes()).collect();
        let tensors: Vec<_> = inputs.iter().map(Input::tensor).collect();
        let expected = einsum(formula, &arrays.iter().collect::<Vec<_>>());
        let size = einsum(formula, &sizes.iter().collect::<Vec<_>>());
        let got = Tensor::einsum(formula, &tensors.iter().collect::<Vec<_>>());
        // Three operands are two matmuls, and the first is rounded to the type in between.
        let terms = 100 * arrays.len();
        let op = if inputs.len() > 2 && inputs[0].dtype == DType::F16 {
            "f16 chain"
        } else {
            "einsum"
        };
        if op == "einsum" {
            agree(op, terms, &got, &expected, Some(&size))
                .unwrap_or_else(|e| panic!("{formula} of {inputs:?}: {e}"));
        }
    }

    #[test]
    fn an_ellipsis_stands_for_batch_axes() {
        let a = Input::new(DType::F32, &[2, 1, 3, 4], Fill::Normal, 1);
        let b = Input::new(DType::F32, &[5, 4, 2], Fill::Normal, 2);
        let got = Tensor::einsum("...ij,...jk->...ik", &[&a.tensor(), &b.tensor()]);
        crate::matmul::judge(&got, &a.array(), &b.array()).unwrap();
    }
}
