//! Softmax and its logarithm.

use super::exact::sum;
use crate::Array;

/// eˣ / Σ eˣ along an axis. A lane with only -∞, or with +∞, gives NaN, as the formula does.
pub fn softmax(x: &Array, axis: isize) -> Array {
    let axis = x.axis(axis);
    Array::from_float_fn(x.dtype.to_float(), &x.shape, |i| {
        let lane: Vec<_> = x.lane(axis, i).iter().map(|v| v.float()).collect();
        let top = lane.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (x.float(i) - top).exp() / sum(lane.iter().map(|x| (x - top).exp()))
    })
}

/// x - ln Σ eˣ along an axis.
pub fn log_softmax(x: &Array, axis: isize) -> Array {
    let axis = x.axis(axis);
    Array::from_float_fn(x.dtype.to_float(), &x.shape, |i| {
        let lane: Vec<_> = x.lane(axis, i).iter().map(|v| v.float()).collect();
        let top = lane.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // In this order: a large maximum would absorb the logarithm.
        x.float(i) - top - sum(lane.iter().map(|x| (x - top).exp())).ln()
    })
}

#[cfg(test)]
mod tests {
    use bessemer::DType;

    use super::*;

    #[test]
    fn values_match_scipy() {
        let x = Array::floats(
            DType::F64,
            &[2, 3],
            &[1.0, 2.0, 3.0, 1000.0, 1000.0, -1000.0],
        );
        let expected = [
            0.090_030_573_170_380_46,
            0.24472847105479767,
            0.665_240_955_774_821_8,
            0.5,
            0.5,
            0.0,
        ];
        for (got, e) in softmax(&x, -1).to_floats().into_iter().zip(expected) {
            assert!((got - e).abs() < 1e-15, "{got} {e}");
        }
        let log = log_softmax(&x, 1).to_floats();
        assert!((log[0] + 2.4076059644443806).abs() < 1e-15);
        assert!((log[5] + 2000.69314718056).abs() < 1e-11);
    }
}
