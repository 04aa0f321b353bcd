//! Attention with the full score matrix.

use super::exact::{dot, sum};
use crate::Array;

/// Options of [`attention`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Factor of the scores; `None` stands for 1/√d.
    pub scale: Option<f64>,
    /// Queries attend to keys up to their own position; the last query is at the position of the last key.
    pub causal: bool,
    /// Keys this many positions or more before the query are masked.
    pub window: Option<usize>,
    /// Scores become `cap · tanh(score / cap)`.
    pub softcap: Option<f64>,
    /// Broadcasts to `[batch, heads, queries, keys]`: booleans select the keys to attend to, floats are added.
    pub mask: Option<&'a Array>,
}

/// Softmax(scale · q kᵀ) v of `[batch, heads, time, size]`; several query heads share a key head. A query that attends
/// to no key gives zeros.
pub fn attention(q: &Array, k: &Array, v: &Array, options: &Options<'_>) -> Array {
    let [batches, heads, queries, size] = q.shape[..] else {
        panic!("queries of {:?}", q.shape)
    };
    let (kv_heads, keys) = (k.shape[1], k.shape[2]);
    let share = heads / kv_heads;
    assert_eq!(share * kv_heads, heads);
    let scale = options.scale.unwrap_or(1.0 / (size as f64).sqrt());
    let out = [batches, heads, queries, v.shape[3]];
    let mut weights = Vec::new();
    Array::from_float_fn(q.dtype, &out, |index| {
        let &[b, h, i, d] = index else {
            unreachable!("four axes")
        };
        let shared = h / share;
        if d == 0 {
            let scores: Vec<_> = (0..keys)
                .map(|j| {
                    if !visible(options, i, j, queries, keys) {
                        return f64::NEG_INFINITY;
                    }
                    let score =
                        dot((0..size)
                            .map(|d| (q.float(&[b, h, i, d]), k.float(&[b, shared, j, d]))));
                    let score = capped(score * scale, options.softcap);
                    masked(score, options.mask, &[b, h, i, j])
                })
                .collect();
            weights = normalised(&scores);
        }
        let seen = weights.iter().enumerate().filter(|&(_, &w)| w != 0.0);
        dot(seen.map(|(j, &w)| (w, v.float(&[b, shared, j, d]))))
    })
}

fn visible(options: &Options<'_>, i: usize, j: usize, queries: usize, keys: usize) -> bool {
    // Position of the query, such that the last one is at the position of the last key.
    let at = i as isize + keys as isize - queries as isize;
    let j = j as isize;
    let causal = !options.causal || j <= at;
    let near = options.window.is_none_or(|w| at - j < w as isize);
    causal && near
}

fn capped(score: f64, cap: Option<f64>) -> f64 {
    cap.map_or(score, |cap| cap * (score / cap).tanh())
}

fn masked(score: f64, mask: Option<&Array>, index: &[usize]) -> f64 {
    match mask {
        None => score,
        Some(m) if m.dtype.is_float() => score + m.at_broadcast(index).float(),
        Some(m) if m.at_broadcast(index).is_nonzero() => score,
        Some(_) => f64::NEG_INFINITY,
    }
}

fn normalised(scores: &[f64]) -> Vec<f64> {
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if top == f64::NEG_INFINITY && !scores.iter().any(|s| s.is_nan()) {
        return vec![0.0; scores.len()];
    }
    let e: Vec<_> = scores.iter().map(|s| (s - top).exp()).collect();
    let total = sum(e.iter().copied());
    e.iter().map(|e| e / total).collect()
}

#[cfg(test)]
mod tests {
    use bessemer::DType;

    use super::*;

    fn f64s(shape: &[usize], data: &[f64]) -> Array {
        Array::floats(DType::F64, shape, data)
    }

    #[test]
    fn weights_are_the_softmax_of_the_scores() {
        let q = f64s(&[1, 1, 1, 1], &[1.0]);
        let k = f64s(&[1, 1, 2, 1], &[0.0, 3.0_f64.ln()]);
        let v = f64s(&[1, 1, 2, 2], &[0.0, 8.0, 4.0, 0.0]);
        let got = attention(&q, &k, &v, &Options::default()).to_floats();
        assert!(
            (got[0] - 3.0).abs() < 1e-14 && (got[1] - 2.0).abs() < 1e-14,
            "{got:?}"
        );
    }

    #[test]
    fn masked_keys_have_no_effect() {
        // Equal scores: the result is the mean of the visible values.
        let q = f64s(&[1, 2, 3, 1], &[0.0; 6]);
        let k = f64s(&[1, 1, 3, 1], &[1.0; 3]);
        let v = f64s(&[1, 1, 3, 1], &[1.0, 2.0, 6.0]);
        let run = |o: &Options<'_>| attention(&q, &k, &v, o).to_floats()[..3].to_vec();
        assert_eq!(run(&Options::default()), [3.0; 3]);
        let causal = Options {
            causal: true,
            ..Options::default()
        };
        assert_eq!(run(&causal), [1.0, 1.5, 3.0]);
        assert_eq!(
            run(&Options {
                window: Some(2),
                ..causal
            }),
            [1.0, 1.5, 4.0]
        );
        let mask = Array::ints(DType::Bool, &[3], &[0, 1, 1]);
        assert_eq!(
            run(&Options {
                mask: Some(&mask),
                ..Options::default()
            }),
            [4.0; 3]
        );
        assert_eq!(
            run(&Options {
                mask: Some(&mask),
                ..causal
            }),
            [0.0, 2.0, 4.0]
        );
        let add = f64s(&[3, 1, 1], &[0.0, 0.0, 0.0]);
        let one = attention(
            &q.reshape(&[1, 2, 3, 1]),
            &k,
            &v,
            &Options {
                mask: Some(&add.reshape(&[1, 3, 1])),
                ..causal
            },
        );
        assert_eq!(one.to_floats(), [1.0, 1.5, 3.0, 1.0, 1.5, 3.0]);
    }

    #[test]
    fn a_single_query_attends_to_all_keys() {
        let q = f64s(&[1, 1, 1, 1], &[0.0]);
        let k = f64s(&[1, 1, 3, 1], &[1.0; 3]);
        let v = f64s(&[1, 1, 3, 1], &[1.0, 2.0, 6.0]);
        let causal = Options {
            causal: true,
            ..Options::default()
        };
        assert_eq!(attention(&q, &k, &v, &causal).to_floats(), [3.0]);
    }

    #[test]
    fn scores_are_capped_before_they_are_masked() {
        assert_eq!(capped(1e9, Some(30.0)), 30.0);
        assert!((capped(1.0, Some(30.0)) - 0.9996298).abs() < 1e-6);
    }
}
