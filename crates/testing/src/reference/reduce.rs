//! Reductions over any axes.

use std::cmp::Ordering;

use bessemer::{DType, Kind};

use super::exact::{dot, sum};
use crate::Array;
use crate::array::{axis_of, indices};
use crate::number::{Value, wrap};
use crate::subnormal::operands;

/// The function of a reduction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reduce {
    /// Σ x
    Sum,
    /// Σ x / n
    Mean,
    /// Π x
    Prod,
    /// The smallest, NaN if there is one.
    Min,
    /// The largest, NaN if there is one.
    Max,
    /// `true` if any value is nonzero.
    Any,
    /// `true` if all values are nonzero.
    All,
    /// Σ (x - mean)² / (n - ddof)
    Var {
        /// What is taken off the count.
        ddof: f64,
    },
    /// The square root of the variance.
    Std {
        /// What is taken off the count.
        ddof: f64,
    },
    /// ln Σ eˣ
    LogSumExp,
    /// (Σ |x|ᵖ)^(1/p); for infinity the largest |x|, for 0 the number of nonzero values.
    Norm {
        /// The power.
        p: f64,
    },
}

use Reduce::{All, Any, LogSumExp, Max, Mean, Min, Norm, Prod, Std, Sum, Var};

impl Reduce {
    /// All functions, with common parameters.
    pub const ALL: [Self; 14] = [
        Sum,
        Mean,
        Prod,
        Min,
        Max,
        Any,
        All,
        Var { ddof: 0.0 },
        Var { ddof: 1.0 },
        Std { ddof: 1.0 },
        LogSumExp,
        Norm { p: 1.0 },
        Norm { p: 2.0 },
        Norm { p: f64::INFINITY },
    ];

    /// The engine's name of the function.
    pub fn name(self) -> &'static str {
        match self {
            Sum => "sum",
            Mean => "mean",
            Prod => "prod",
            Min => "min",
            Max => "max",
            Any => "any",
            All => "all",
            Var { .. } => "var",
            Std { .. } => "std",
            LogSumExp => "logsumexp",
            Norm { .. } => "norm",
        }
    }

    /// The result type for elements of `dtype`.
    pub fn dtype(self, dtype: DType) -> DType {
        match self {
            Sum | Prod => dtype.to_sum(),
            Min | Max => dtype,
            Any | All => DType::Bool,
            _ if dtype.is_float() => dtype,
            _ => DType::F64,
        }
    }

    /// Returns `true` if the reduction of no values is defined.
    pub fn has_empty(self) -> bool {
        !matches!(self, Min | Max) && !matches!(self, Norm { p } if p.is_infinite())
    }

    /// Reduces values of type `dtype`; a float is not rounded.
    pub fn apply(self, dtype: DType, x: &[Value]) -> Value {
        let floats = || x.iter().map(|v| v.float());
        let ints = || x.iter().map(|v| v.int());
        let integer = dtype.kind() != Kind::Float;
        let n = x.len() as f64;
        match self {
            Sum if integer => Value::Int(wrap(dtype.to_sum(), ints().sum())),
            Prod if integer => {
                let product = ints().fold(1_i128, |p, i| wrap(dtype.to_sum(), p.wrapping_mul(i)));
                Value::Int(product)
            }
            Min if integer => Value::Int(ints().min().expect("min of something")),
            Max if integer => Value::Int(ints().max().expect("max of something")),
            Any => x.iter().any(|v| v.is_nonzero()).into(),
            All => x.iter().all(|v| v.is_nonzero()).into(),
            _ => Value::Float(match self {
                Sum => sum(floats()),
                Mean => sum(floats()) / n,
                Prod => floats().product(),
                Min => extreme(floats(), f64::min),
                Max => extreme(floats(), f64::max),
                Var { ddof } => variance(floats(), n, ddof),
                Std { ddof } => variance(floats(), n, ddof).sqrt(),
                LogSumExp => logsumexp(floats()),
                Norm { p } => norm(floats(), p),
                Any | All => unreachable!("answered above"),
            }),
        }
    }
}

fn extreme(x: impl Iterator<Item = f64>, f: fn(f64, f64) -> f64) -> f64 {
    x.reduce(|a, b| {
        if a.is_nan() || b.is_nan() {
            f64::NAN
        } else {
            f(a, b)
        }
    })
    .expect("extreme of something")
}

fn variance(x: impl Iterator<Item = f64> + Clone, n: f64, ddof: f64) -> f64 {
    let mean = sum(x.clone()) / n;
    let squares = dot(x.map(|x| (x - mean, x - mean)));
    // NumPy: no negative divisor.
    squares / (n - ddof).max(0.0)
}

fn logsumexp(x: impl Iterator<Item = f64> + Clone) -> f64 {
    let top = x.clone().fold(f64::NEG_INFINITY, |a, b| {
        if a.is_nan() || b.is_nan() {
            f64::NAN
        } else {
            a.max(b)
        }
    });
    if top.is_infinite() || top.is_nan() {
        return top;
    }
    top + sum(x.map(|x| (x - top).exp())).ln()
}

fn norm(x: impl Iterator<Item = f64> + Clone, p: f64) -> f64 {
    let size = x.map(f64::abs);
    if p == f64::INFINITY {
        extreme(size, f64::max)
    } else if p == f64::NEG_INFINITY {
        extreme(size, f64::min)
    } else if p == 0.0 {
        size.filter(|&x| x != 0.0).count() as f64
    } else if p == 1.0 {
        sum(size)
    } else if p == 2.0 {
        dot(size.map(|x| (x, x))).sqrt()
    } else {
        sum(size.map(|x| x.powf(p))).powf(1.0 / p)
    }
}

/// The shape without `axes`, or with length 1 for them.
fn reduced(shape: &[usize], axes: &[usize], keepdims: bool) -> Vec<usize> {
    let kept = shape.iter().enumerate();
    if keepdims {
        kept.map(|(a, &n)| if axes.contains(&a) { 1 } else { n })
            .collect()
    } else {
        kept.filter(|(a, _)| !axes.contains(a))
            .map(|(_, &n)| n)
            .collect()
    }
}

/// The values of each result of a reduction over `axes`, in row-major order.
fn groups(x: &Array, axes: &[usize]) -> Vec<Vec<Value>> {
    let kept = reduced(&x.shape, axes, true);
    let inner: Vec<_> = axes.iter().map(|&a| x.shape[a]).collect();
    indices(&kept)
        .map(|outer| {
            indices(&inner)
                .map(|i| {
                    let mut index = outer.clone();
                    for (&a, &i) in axes.iter().zip(&i) {
                        index[a] = i;
                    }
                    x.at(&index)
                })
                .collect()
        })
        .collect()
}

/// The reduction over `axes`, or over all if `axes` is empty.
pub fn reduce(f: Reduce, x: &Array, axes: &[isize], keepdims: bool) -> Array {
    let mut axes: Vec<_> = axes.iter().map(|&a| axis_of(x.rank(), a)).collect();
    if axes.is_empty() {
        axes = (0..x.rank()).collect();
    }
    axes.sort_unstable();
    let x = &operands(x);
    Array {
        dtype: f.dtype(x.dtype),
        shape: reduced(&x.shape, &axes, keepdims),
        data: groups(x, &axes)
            .iter()
            .map(|g| f.apply(x.dtype, g))
            .collect(),
    }
}

/// Index of the minimum along an axis: the first of equals, or the first NaN.
pub fn argmin(x: &Array, axis: isize, keepdims: bool) -> Array {
    arg(x, axis, keepdims, Ordering::Less)
}

/// Index of the maximum along an axis: the first of equals, or the first NaN.
pub fn argmax(x: &Array, axis: isize, keepdims: bool) -> Array {
    arg(x, axis, keepdims, Ordering::Greater)
}

/// Subnormal numbers are not flushed on any device: the kernels compare integers.
fn arg(x: &Array, axis: isize, keepdims: bool, better: Ordering) -> Array {
    let axis = x.axis(axis);
    let best = |lane: &Vec<Value>| {
        let mut best = 0;
        for (i, v) in lane.iter().enumerate() {
            if lane[best].is_nan() {
                break;
            }
            if v.is_nan() || order(*v, lane[best]) == better {
                best = i;
            }
        }
        Value::Int(best as i128)
    };
    Array {
        dtype: DType::I64,
        shape: reduced(&x.shape, &[axis], keepdims),
        data: groups(x, &[axis]).iter().map(best).collect(),
    }
}

/// The order of two values of one type, NaN last.
pub fn order(a: Value, b: Value) -> Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(&b),
        _ => match (a.is_nan(), b.is_nan()) {
            (false, false) => a.float().partial_cmp(&b.float()).expect("neither is a NaN"),
            (a, b) => a.cmp(&b),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_removed_or_kept_with_length_one() {
        let x = Array::ints(DType::I32, &[2, 3], &[1, 2, 3, 4, 5, 6]);
        assert_eq!(reduce(Sum, &x, &[0], false).to_ints(), [5, 7, 9]);
        let rows = reduce(Sum, &x, &[-1], true);
        assert_eq!(
            (rows.shape.as_slice(), rows.to_ints()),
            (&[2, 1][..], vec![6, 15])
        );
        let all = reduce(Prod, &x, &[], false);
        assert_eq!((all.dtype, all.to_ints()), (DType::I64, vec![720]));
    }

    #[test]
    fn values_match_numpy() {
        let x = Array::floats(DType::F64, &[4], &[1.0, 2.0, 4.0, 8.5]);
        let known = [
            (Mean, 3.875),
            (Var { ddof: 0.0 }, 8.296875),
            (Std { ddof: 1.0 }, 3.326_033_673_912_517_6),
            (LogSumExp, 8.513_079_607_872_848),
            (Norm { p: 2.0 }, 9.656603957913981),
            (Norm { p: 3.0 }, 8.8242658426736),
            (Norm { p: f64::INFINITY }, 8.5),
        ];
        for (f, expected) in known {
            let got = reduce(f, &x, &[], false).float(&[]);
            assert!((got / expected - 1.0).abs() < 1e-14, "{f:?} = {got}");
        }
    }

    #[test]
    fn empty_sums_and_products_are_defined() {
        let x = Array::floats(DType::F32, &[0, 2], &[]);
        assert_eq!(reduce(Sum, &x, &[0], false).to_floats(), [0.0, 0.0]);
        assert_eq!(reduce(Prod, &x, &[], false).to_floats(), [1.0]);
        assert!(reduce(Mean, &x, &[], false).float(&[]).is_nan());
        assert_eq!(
            reduce(LogSumExp, &x, &[], false).float(&[]),
            f64::NEG_INFINITY
        );
        assert_eq!(reduce(All, &x, &[], false).to_ints(), [1]);
    }

    #[test]
    fn arg_reductions_prefer_the_first_and_nan() {
        let x = Array::floats(DType::F32, &[5], &[1.0, 3.0, 3.0, 0.0, 0.0]);
        assert_eq!(argmax(&x, 0, false).to_ints(), [1]);
        assert_eq!(argmin(&x, 0, true).to_ints(), [3]);
        let x = Array::floats(DType::F32, &[3], &[1.0, f64::NAN, 0.0]);
        assert_eq!(argmax(&x, 0, false).to_ints(), [1]);
        assert_eq!(argmin(&x, 0, false).to_ints(), [1]);
        assert!(reduce(Max, &x, &[], false).float(&[]).is_nan());
    }
}
