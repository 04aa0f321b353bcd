//! Normalisations.

use super::exact::{dot, sum};
use crate::Array;

fn mean(x: &[f64]) -> f64 {
    sum(x.iter().copied()) / x.len() as f64
}

fn variance(x: &[f64]) -> f64 {
    let m = mean(x);
    dot(x.iter().map(|x| (x - m, x - m))) / x.len() as f64
}

fn last_lane(x: &Array, index: &[usize]) -> Vec<f64> {
    let lane = x.lane(x.rank() - 1, index);
    lane.into_iter().map(|v| v.float()).collect()
}

/// x / √(mean(x²) + eps) · weight along the last axis.
pub fn rms_norm(x: &Array, weight: Option<&Array>, eps: f64) -> Array {
    Array::from_float_fn(x.dtype, &x.shape, |i| {
        let lane = last_lane(x, i);
        let square = dot(lane.iter().map(|&x| (x, x))) / lane.len() as f64;
        let w = weight.map_or(1.0, |w| w.float(&i[i.len() - 1..]));
        x.float(i) / (square + eps).sqrt() * w
    })
}

/// (x - mean) / √(variance + eps) · weight + bias along the last axis.
pub fn layer_norm(x: &Array, weight: Option<&Array>, bias: Option<&Array>, eps: f64) -> Array {
    Array::from_float_fn(x.dtype, &x.shape, |i| {
        let lane = last_lane(x, i);
        let last = &i[i.len() - 1..];
        let w = weight.map_or(1.0, |w| w.float(last));
        let b = bias.map_or(0.0, |b| b.float(last));
        (x.float(i) - mean(&lane)) / (variance(&lane) + eps).sqrt() * w + b
    })
}

/// Like [`layer_norm`], over all values of a group of channels; channels are axis 1, and weight and bias have an
/// element per channel.
pub fn group_norm(
    x: &Array,
    groups: usize,
    weight: Option<&Array>,
    bias: Option<&Array>,
    eps: f64,
) -> Array {
    let (batches, channels) = (x.shape[0], x.shape[1]);
    let inner: usize = x.shape[2..].iter().product();
    let size = channels / groups;
    assert_eq!(size * groups, channels);
    let flat = x.to_floats();
    let statistics: Vec<_> = (0..batches * groups)
        .map(|g| {
            let members = &flat[g * size * inner..][..size * inner];
            (mean(members), variance(members))
        })
        .collect();
    Array::from_float_fn(x.dtype.to_float(), &x.shape, |i| {
        let (m, v) = statistics[i[0] * groups + i[1] / size];
        let w = weight.map_or(1.0, |w| w.float(&i[1..2]));
        let b = bias.map_or(0.0, |b| b.float(&i[1..2]));
        (x.float(i) - m) / (v + eps).sqrt() * w + b
    })
}

/// Statistics and parameters of [`batch_norm`], per channel.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// The running mean.
    pub mean: &'a Array,
    /// The running variance.
    pub variance: &'a Array,
    /// Factor after the normalisation.
    pub weight: Option<&'a Array>,
    /// Addend after the factor.
    pub bias: Option<&'a Array>,
}

/// (x - mean) / √(variance + eps) · weight + bias with given statistics per channel, axis 1.
pub fn batch_norm(x: &Array, given: &Batch<'_>, eps: f64) -> Array {
    Array::from_float_fn(x.dtype.to_float(), &x.shape, |i| {
        let channel = &i[1..2];
        let w = given.weight.map_or(1.0, |w| w.float(channel));
        let b = given.bias.map_or(0.0, |b| b.float(channel));
        let centred = x.float(i) - given.mean.float(channel);
        centred / (given.variance.float(channel) + eps).sqrt() * w + b
    })
}

#[cfg(test)]
mod tests {
    use bessemer::DType;

    use super::*;

    fn f64s(shape: &[usize], data: &[f64]) -> Array {
        Array::floats(DType::F64, shape, data)
    }

    fn close(got: &Array, expected: &[f64]) {
        for (g, e) in got.to_floats().into_iter().zip(expected) {
            assert!((g - e).abs() < 1e-12, "{g} {e}");
        }
    }

    #[test]
    fn rows_are_normalised() {
        let x = f64s(&[2, 2], &[3.0, 4.0, 0.0, 2.0]);
        let w = f64s(&[2], &[1.0, 2.0]);
        let b = f64s(&[2], &[0.0, 10.0]);
        let r = 12.5_f64.sqrt();
        let s = 2.0_f64.sqrt();
        close(
            &rms_norm(&x, Some(&w), 0.0),
            &[3.0 / r, 8.0 / r, 0.0, 4.0 / s],
        );
        close(
            &layer_norm(&x, Some(&w), Some(&b), 0.0),
            &[-1.0, 12.0, -1.0, 12.0],
        );
        // Variance ¼, and eps ¾ makes it 1.
        close(
            &layer_norm(&x, None, None, 0.75),
            &[-0.5, 0.5, -0.755_928_946_018_454_5, 0.755_928_946_018_454_5],
        );
    }

    #[test]
    fn channels_are_normalised_in_groups() {
        let x = f64s(&[1, 4, 1], &[1.0, 3.0, 10.0, 30.0]);
        close(&group_norm(&x, 2, None, None, 0.0), &[-1.0, 1.0, -1.0, 1.0]);
        let weight = f64s(&[4], &[1.0, 2.0, 3.0, 4.0]);
        close(
            &group_norm(&x, 2, Some(&weight), Some(&weight), 0.0),
            &[0.0, 4.0, 0.0, 8.0],
        );
    }

    #[test]
    fn given_statistics_are_used() {
        let x = f64s(&[1, 2], &[5.0, 6.0]);
        let given = Batch {
            mean: &f64s(&[2], &[1.0, 2.0]),
            variance: &f64s(&[2], &[4.0, 15.0]),
            weight: None,
            bias: Some(&f64s(&[2], &[0.0, 1.0])),
        };
        close(&batch_norm(&x, &given, 1.0), &[4.0 / 5.0_f64.sqrt(), 2.0]);
    }
}
