//! Einstein summation, by one loop over all letters.

use std::collections::BTreeMap;

use super::exact::Sum;
use crate::Array;
use crate::array::{indices, position};
use crate::number::{Value, wrap};

/// The sum of products of an equation such as `ij,jk->ik`. Without an arrow, the result has the letters that occur
/// once, in alphabetical order. No ellipsis.
pub fn einsum(equation: &str, operands: &[&Array]) -> Array {
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match equation.split_once("->") {
        Some((i, o)) => (i.to_owned(), o.to_owned()),
        None => (equation.clone(), implied(&equation)),
    };
    let inputs: Vec<Vec<char>> = inputs.split(',').map(|i| i.chars().collect()).collect();
    assert_eq!(inputs.len(), operands.len(), "{equation}");
    let mut lengths = BTreeMap::new();
    for (letters, x) in inputs.iter().zip(operands) {
        assert_eq!(letters.len(), x.rank(), "{equation}");
        for (&c, &n) in letters.iter().zip(&x.shape) {
            let known = lengths.entry(c).or_insert(n);
            // A length of 1 broadcasts, as in NumPy.
            if *known == 1 {
                *known = n;
            }
            assert!(n == *known || n == 1, "{equation}: {c}");
        }
    }
    let output: Vec<char> = output.chars().collect();
    let shape: Vec<_> = output.iter().map(|c| lengths[c]).collect();
    let dtype = operands
        .iter()
        .map(|x| x.dtype)
        .reduce(|a, b| a.promote(b))
        .expect("an operand");
    let letters: Vec<_> = lengths.keys().copied().collect();
    let all: Vec<_> = lengths.values().copied().collect();
    let axis_of = |c: &char| letters.iter().position(|l| l == c).expect("a known letter");

    let mut floats = vec![Sum::default(); crate::array::count(&shape)];
    let mut ints = vec![0_i128; floats.len()];
    for index in indices(&all) {
        let factors = inputs.iter().zip(operands).map(|(letters, x)| {
            let own = letters.iter().zip(&x.shape);
            let own: Vec<_> = own
                .map(|(c, &n)| if n == 1 { 0 } else { index[axis_of(c)] })
                .collect();
            x.at(&own).cast(dtype)
        });
        let out: Vec<_> = output.iter().map(|c| index[axis_of(c)]).collect();
        let out = position(&shape, &out);
        if dtype.is_float() {
            floats[out].add(factors.map(Value::float).product());
        } else {
            let product = factors.fold(1, |p, v| wrap(dtype, v.int().wrapping_mul(p)));
            ints[out] = wrap(dtype, ints[out] + product);
        }
    }
    let data = if dtype.is_float() {
        floats.iter().map(|s| Value::Float(s.total())).collect()
    } else {
        ints.into_iter().map(Value::Int).collect()
    };
    Array { dtype, shape, data }
}

fn implied(inputs: &str) -> String {
    let mut counts = BTreeMap::new();
    for c in inputs.chars().filter(|&c| c != ',') {
        *counts.entry(c).or_insert(0) += 1;
    }
    let once = counts.into_iter().filter(|&(_, n)| n == 1);
    once.map(|(c, _)| c).collect()
}

#[cfg(test)]
mod tests {
    use bessemer::DType;

    use super::*;

    #[test]
    fn common_equations_match_numpy() {
        let a = Array::ints(DType::I32, &[2, 3], &[1, 2, 3, 4, 5, 6]);
        let b = Array::ints(DType::I32, &[3, 2], &[1, 2, 3, 4, 5, 6]);
        let sq = Array::ints(DType::I32, &[2, 2], &[1, 2, 3, 4]);
        assert_eq!(einsum("ij,jk->ik", &[&a, &b]).to_ints(), [22, 28, 49, 64]);
        assert_eq!(einsum("ij, jk", &[&a, &b]).to_ints(), [22, 28, 49, 64]);
        assert_eq!(einsum("ij->ji", &[&a]).to_ints(), [1, 4, 2, 5, 3, 6]);
        assert_eq!(einsum("ii", &[&sq]).to_ints(), [5]);
        assert_eq!(einsum("ii->i", &[&sq]).to_ints(), [1, 4]);
        assert_eq!(einsum("ij->", &[&a]).to_ints(), [21]);
        assert_eq!(
            einsum("ij,ij,ij->j", &[&a, &a, &a]).to_ints(),
            [65, 133, 243]
        );
        let outer = einsum("ij,kl->ljki", &[&sq, &sq]);
        assert_eq!(outer.shape, [2; 4]);
        assert_eq!(outer.to_ints()[..4], [1, 3, 3, 9]);
    }
}
