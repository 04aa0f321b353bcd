//! `attention`: scaled dot products of queries and keys, their softmax, and sums of values weighted by it.

use super::group_norm::computed_in;
use super::{Meta, Rule};
use crate::{DType, Error, Result, Shape, Tensor};

/// Softmax of `scale * q kᵀ`, masked, times `v`. The inputs are `q`, `k`, `v` and, if there is one, the
/// mask, broadcast to the scores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attention {
    /// The bits of a number, so that equal ones are found equal.
    scale: u64,
    /// The bits of a number.
    soft_cap: Option<u64>,
    pub(crate) causal: bool,
    pub(crate) window: Option<usize>,
}

impl Attention {
    pub(crate) fn scale(&self) -> f64 {
        f64::from_bits(self.scale)
    }

    pub(crate) fn soft_cap(&self) -> Option<f64> {
        self.soft_cap.map(f64::from_bits)
    }

    /// The keys, of `keys`, that query `i` of `queries` may see, masks apart.
    pub(crate) fn reach(&self, i: usize, queries: usize, keys: usize) -> std::ops::Range<usize> {
        // Where the query stands among the keys, plus `queries` to keep it above 0.
        let at = keys + i;
        let (mut low, mut high) = (0, keys);
        if self.causal {
            high = (at + 1).saturating_sub(queries).min(keys);
        }
        if let Some(window) = self.window {
            low = (at + 1).saturating_sub(queries).saturating_sub(window);
        }
        low.min(high)..high
    }
}

impl Rule for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let [q, k, v] = [inputs[0], inputs[1], inputs[2]].map(Tensor::shape);
        let op = "attention";
        for &shape in [q, k, v] {
            if shape.rank() != 4 {
                return Err(Error::BadShape {
                    op,
                    shape,
                    reason: "queries, keys and values are [batch, heads, length, dim]".to_owned(),
                });
            }
        }
        let mismatch = |left: &Shape, right: &Shape, reason| {
            Err(Error::ShapeMismatch {
                op,
                left: *left,
                right: *right,
                reason,
            })
        };
        if q[0] != k[0] || q[3] != k[3] {
            return mismatch(q, k, "queries and keys must have as many batches and dims");
        }
        if k[..3] != v[..3] {
            return mismatch(
                k,
                v,
                "keys and values must have as many batches, heads and rows",
            );
        }
        if q[1] != k[1] && (k[1] == 0 || q[1] % k[1] != 0) {
            return mismatch(q, k, "heads of queries must be a multiple of heads of keys");
        }
        Ok((inputs[0].dtype(), q.with(3, v[3])))
    }
}

/// What [`Tensor::attention`] does besides its formula; nothing by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionOptions<'a> {
    /// What scores are multiplied with; `1 / sqrt(dim)` where `None`.
    pub scale: Option<f64>,
    /// Whether a query sees only keys up to its own position. The last query stands at the last key, so
    /// query `i` of `n` sees keys up to `keys - n + i`.
    pub causal: bool,
    /// Which keys a query sees, where it is `bool`; what is added to the scores, where it is a float.
    /// Anything that can be broadcast to `[batch, heads, queries, keys]`.
    pub mask: Option<&'a Tensor>,
    /// How far back a query sees: keys `window` positions or more before its own are hidden. With `causal`
    /// it sees the last `window` keys, its own included.
    pub window: Option<usize>,
    /// Scores are bent into `-cap ..= cap` by `cap * tanh(score / cap)`, before any mask.
    pub soft_cap: Option<f64>,
}

impl Tensor {
    /// Attention of these queries: `softmax(scale * q kᵀ + mask) v`, each head on its own.
    ///
    /// Shape: `self` is `[batch, heads, queries, dim]`, `keys` `[batch, key heads, keys, dim]`, `values`
    /// `[batch, key heads, keys, value dim]`; the result is `[batch, heads, queries, value dim]`. Where
    /// there are fewer key heads, neighbouring heads of queries share one (grouped-query attention).
    /// Only the last axis of each must be without gaps to be read in place.
    ///
    /// Type: all are converted to the float in which they meet; `f16`, `bf16` and `f32` are computed in
    /// `f32`, and rounded once, `f64` in `f64`. The scores are never all in memory: blocks of keys are
    /// taken in one after the other, with a running maximum and sum.
    /// NaN: a query with a NaN, or with a NaN among the keys it sees, answers NaN. A query that sees no
    /// key (there are none, or all are masked) answers 0, not NaN: it adds nothing. Empty: no queries, no
    /// result.
    ///
    /// ```
    /// # use bessemer::{AttentionOptions, Tensor};
    /// let q = Tensor::from_slice(&[0.0_f32, 0.0], [1, 1, 1, 2]);
    /// let k = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0], [1, 1, 2, 2]);
    /// let v = Tensor::from_slice(&[1.0_f32, 3.0], [1, 1, 2, 1]);
    /// // Scores of 0: the mean of the values.
    /// assert_eq!(q.attention(&k, &v, &AttentionOptions::default()).item::<f32>()?, 2.0);
    /// # Ok::<(), bessemer::Error>(())
    /// ```
    pub fn attention(&self, keys: &Self, values: &Self, options: &AttentionOptions<'_>) -> Self {
        let met = self.dtype().promote(keys.dtype()).promote(values.dtype());
        let dtype = met.to_float();
        let [q, k, v] = [self, keys, values].map(|t| t.cast(dtype));
        let dim = q.shape().last().copied().unwrap_or(1);
        let op = Attention {
            scale: options
                .scale
                .unwrap_or_else(|| 1.0 / (dim.max(1) as f64).sqrt())
                .to_bits(),
            soft_cap: options.soft_cap.map(f64::to_bits),
            causal: options.causal,
            window: options.window,
        };
        let Some(mask) = options.mask else {
            return Self::apply(op, &[&q, &k, &v]);
        };
        Self::attempt(|| {
            for t in [&q, &k, &v, mask] {
                t.check()?;
            }
            // The rule first: it says what is wrong with the shapes that the mask is measured by.
            op.infer(&[&q, &k, &v])?;
            let scores = q.shape().with(3, k.shape()[2]);
            let mask = match mask.dtype() {
                DType::Bool => mask.clone(),
                met if met.is_float() => mask.cast(dtype),
                met => {
                    return Err(Error::BadDType {
                        op: "attention",
                        dtype: met,
                        expected: "a mask is bool (which keys to see) or float (added to the scores)",
                    });
                }
            };
            let layout = mask.layout().broadcast_to("attention", scores)?;
            let mask = mask.with_layout(layout);
            Ok(Self::apply(op, &[&q, &k, &v, &mask]))
        })
    }

    /// [`Tensor::attention`] as a formula of simpler ops, with all scores in memory, which tests compare
    /// with it.
    #[doc(hidden)]
    pub fn decompose_attention(
        &self,
        keys: &Self,
        values: &Self,
        options: &AttentionOptions<'_>,
    ) -> Self {
        Self::attempt(|| {
            // The op itself says what is wrong with its inputs.
            self.attention(keys, values, options).check()?;
            let met = self.dtype().promote(keys.dtype()).promote(values.dtype());
            let wide = computed_in(met.to_float());
            let [q, k, v] = [self, keys, values].map(|t| t.cast(wide));
            let (&[b, h, n, d], &[_, shared, m, _]) = (&q.shape()[..], &k.shape()[..]) else {
                unreachable!("checked");
            };
            let group = h / shared.max(1);
            let scale = options.scale.unwrap_or(1.0 / (d.max(1) as f64).sqrt());
            let q = q.reshape([b, shared, group, n, d]);
            let scores = q.matmul(&k.expand_dims(2).t()).reshape([b, h, n, m]) * scale;
            let scores = match options.soft_cap {
                Some(cap) => (scores / cap).tanh() * cap,
                None => scores,
            };
            // How many positions before its own a query finds a key.
            let at = Self::arange(0, n, 1, DType::I64).expand_dims(1) + (m as i64 - n as i64);
            let back = at - Self::arange(0, m, 1, DType::I64);
            let mut seen = back.ge(i64::MIN);
            if options.causal {
                seen = seen & back.ge(0);
            }
            if let Some(window) = options.window {
                seen = seen & back.lt(i64::try_from(window).unwrap_or(i64::MAX));
            }
            let scores = match options.mask {
                Some(mask) if mask.dtype() == DType::Bool => mask.select(scores, f64::NEG_INFINITY),
                Some(mask) => scores + mask.cast(wide),
                None => scores,
            };
            let scores = seen.select(scores, f64::NEG_INFINITY).cast(wide);
            let blind = scores.eq(f64::NEG_INFINITY).all(&[-1], true);
            let weights = blind.select(0.0, scores.softmax(-1)).cast(wide);
            let weights = weights.reshape([b, shared, group, n, m]);
            let sums = weights.matmul(&v.expand_dims(2));
            Ok(sums.reshape([b, h, n, v.shape()[3]]).cast(met.to_float()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach_is_aligned_at_the_last_key() {
        let op = |causal, window| Attention {
            scale: 0,
            soft_cap: None,
            causal,
            window,
        };
        assert_eq!(op(false, None).reach(0, 2, 5), 0..5);
        assert_eq!(op(true, None).reach(0, 2, 5), 0..4);
        assert_eq!(op(true, None).reach(1, 2, 5), 0..5);
        assert_eq!(op(true, Some(2)).reach(0, 2, 5), 2..4);
        assert_eq!(op(false, Some(2)).reach(0, 3, 5), 1..5);
        assert_eq!(op(true, Some(0)).reach(1, 2, 5), 5..5);
        // More queries than keys: the first ones see nothing.
        assert_eq!(op(true, None).reach(0, 3, 1), 0..0);
        assert_eq!(op(true, None).reach(2, 3, 1), 0..1);
        assert_eq!(op(true, Some(usize::MAX)).reach(2, 3, 1), 0..1);
    }
}
