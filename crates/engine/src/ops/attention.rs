//! `attention`: scaled dot-product attention.

use super::group_norm::computed_in;
use super::{Meta, Rule};
use crate::{DType, Error, Result, Shape, Tensor};

/// `softmax(mask(scale * q kᵀ)) v`. The inputs are `q`, `k`, `v` and, if there is one, the mask, broadcast to the
/// scores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attention {
    /// The bits of an `f64`: equal ops must compare equal.
    scale: u64,
    /// The bits of an `f64`.
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

    /// The range of the `keys` that query `i` of `queries` attends to, before masks.
    pub(crate) fn reach(&self, i: usize, queries: usize, keys: usize) -> std::ops::Range<usize> {
        // The position of the query among the keys, plus `queries` to keep it above 0.
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
            return mismatch(q, k, "queries and keys must have the same batch and dim");
        }
        if k[..3] != v[..3] {
            return mismatch(
                k,
                v,
                "keys and values must have the same batch, heads and length",
            );
        }
        if q[1] != k[1] && (k[1] == 0 || q[1] % k[1] != 0) {
            return mismatch(q, k, "the query heads must be a multiple of the key heads");
        }
        Ok((inputs[0].dtype(), q.with(3, v[3])))
    }
}

/// Options of [`Tensor::attention`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionOptions<'a> {
    /// Factor of the scores; `None` stands for `1 / sqrt(dim)`.
    pub scale: Option<f64>,
    /// Whether queries attend only to keys up to their own position. The last query is at the position of the last key,
    /// so query `i` of `n` attends to keys up to `keys - n + i`.
    pub causal: bool,
    /// A mask that broadcasts to `[batch, heads, queries, keys]`: `bool` selects the keys to attend to, a float is
    /// added to the scores.
    pub mask: Option<&'a Tensor>,
    /// Sliding window: keys `window` positions or more before the query are masked. With `causal` a query attends to
    /// the last `window` keys, its own included.
    pub window: Option<usize>,
    /// Logit soft-capping: scores become `cap * tanh(score / cap)`, before any mask.
    pub soft_cap: Option<f64>,
}

impl Tensor {
    /// Scaled dot-product attention with this tensor as the queries: `softmax(scale * q kᵀ + mask) v` per head.
    ///
    /// Shape: `self` is `[batch, heads, queries, dim]`, `keys` `[batch, key heads, keys, dim]`, `values`
    /// `[batch, key heads, keys, value dim]`; the result is `[batch, heads, queries, value dim]`. Where
    /// there are fewer key heads, neighbouring query heads share one (grouped-query attention).
    /// Inputs are read in place if their last axis is contiguous.
    ///
    /// Type: all are converted to the float that they promote to; `f16`, `bf16` and `f32` are computed in `f32` and
    /// rounded once, `f64` in `f64`. The scores are never all in memory: blocks of keys are processed with an online
    /// softmax. NaN: a NaN in a query, or in a key it attends to, makes its result NaN. A query that attends to no key
    /// (there are none, or all are masked) gives 0, not NaN. Empty: without queries the result is empty.
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
        let promoted = self.dtype().promote(keys.dtype()).promote(values.dtype());
        let dtype = promoted.to_float();
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
            // Check the shapes first: the mask is broadcast to the scores that they imply.
            op.infer(&[&q, &k, &v])?;
            let scores = q.shape().with(3, k.shape()[2]);
            let mask = match mask.dtype() {
                DType::Bool => mask.clone(),
                float if float.is_float() => mask.cast(dtype),
                other => {
                    return Err(Error::BadDType {
                        op: "attention",
                        dtype: other,
                        expected: "a mask is bool (keys to attend to) or float (added to the scores)",
                    });
                }
            };
            let layout = mask.layout().broadcast_to("attention", scores)?;
            let mask = mask.with_layout(layout);
            Ok(Self::apply(op, &[&q, &k, &v, &mask]))
        })
    }

    /// [`Tensor::attention`] as a formula of simpler ops, with all scores in memory, for tests.
    #[doc(hidden)]
    pub fn decompose_attention(
        &self,
        keys: &Self,
        values: &Self,
        options: &AttentionOptions<'_>,
    ) -> Self {
        Self::attempt(|| {
            // The op checks the inputs.
            self.attention(keys, values, options).check()?;
            let dtype = self.dtype().promote(keys.dtype()).promote(values.dtype());
            let dtype = dtype.to_float();
            let wide = computed_in(dtype);
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
            // The distance in positions from a query back to a key.
            let at = Self::arange(0, n, 1, DType::I64).expand_dims(1) + (m as i64 - n as i64);
            let back = at - Self::arange(0, m, 1, DType::I64);
            let mut visible = back.ge(i64::MIN);
            if options.causal {
                visible = visible & back.ge(0);
            }
            if let Some(window) = options.window {
                visible = visible & back.lt(i64::try_from(window).unwrap_or(i64::MAX));
            }
            let scores = match options.mask {
                Some(mask) if mask.dtype() == DType::Bool => mask.select(scores, f64::NEG_INFINITY),
                Some(mask) => scores + mask.cast(wide),
                None => scores,
            };
            let scores = visible.select(scores, f64::NEG_INFINITY).cast(wide);
            let all_masked = scores.eq(f64::NEG_INFINITY).all(&[-1], true);
            let weights = all_masked.select(0.0, scores.softmax(-1)).cast(wide);
            let weights = weights.reshape([b, shared, group, n, m]);
            let sums = weights.matmul(&v.expand_dims(2));
            Ok(sums.reshape([b, h, n, v.shape()[3]]).cast(dtype))
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
        // More queries than keys: the first ones attend to nothing.
        assert_eq!(op(true, None).reach(0, 3, 1), 0..0);
        assert_eq!(op(true, None).reach(2, 3, 1), 0..1);
        assert_eq!(op(true, Some(usize::MAX)).reach(2, 3, 1), 0..1);
    }
}
