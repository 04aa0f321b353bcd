//! Functions of three values, with broadcasting.

use bessemer::{DType, Tensor};

use crate::Array;
use crate::array::broadcast;
use crate::number::{Value, wrap};
use crate::subnormal::operand;

/// Declares [`CALLS`].
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident($b:ident, $c:ident) $types:ident $file:ident
        $($bound:ident($($number:literal),+))*;
    )*) => {
        /// The engine's functions of three values, each with its reference.
        pub const CALLS: &[(&str, TernaryCall, TernaryReference)] =
            &[$((stringify!($name), |a, b, c| a.$name(b, c), $name)),*];
    };
}

/// A function of the engine.
pub type TernaryCall = fn(&Tensor, &Tensor, &Tensor) -> Tensor;

/// A function of arrays.
pub type TernaryReference = fn(&Array, &Array, &Array) -> Array;

bessemer::for_each_ternary!(calls);

fn zip(dtype: DType, [a, b, c]: [&Array; 3], f: impl Fn(Value, Value, Value) -> Value) -> Array {
    let shape = broadcast(&broadcast(&a.shape, &b.shape), &c.shape);
    Array::from_fn(dtype, &shape, |i| {
        f(a.at_broadcast(i), b.at_broadcast(i), c.at_broadcast(i))
    })
}

/// `a` where the condition is true, else `b`.
pub fn select(condition: &Array, a: &Array, b: &Array) -> Array {
    let dtype = a.dtype.promote(b.dtype);
    zip(dtype, [condition, a, b], |c, a, b| {
        if c.is_nonzero() { a } else { b }.cast(dtype)
    })
}

/// `min(max(x, low), high)`; NaN where any operand is NaN.
pub fn clamp(x: &Array, low: &Array, high: &Array) -> Array {
    let dtype = x.dtype.promote(low.dtype).promote(high.dtype);
    zip(dtype, [x, low, high], |x, low, high| {
        match [x, low, high].map(|v| operand(dtype, v.cast(dtype))) {
            [Value::Int(x), Value::Int(low), Value::Int(high)] => Value::Int(x.max(low).min(high)),
            [x, low, high] if x.is_nan() || low.is_nan() || high.is_nan() => Value::Float(f64::NAN),
            [x, low, high] => Value::Float(x.float().max(low.float()).min(high.float())),
        }
    })
}

/// `a · b + c`, rounded once.
pub fn mul_add(a: &Array, b: &Array, c: &Array) -> Array {
    let dtype = a.dtype.promote(b.dtype).promote(c.dtype);
    zip(dtype, [a, b, c], |a, b, c| {
        match [a, b, c].map(|v| operand(dtype, v.cast(dtype))) {
            [Value::Int(a), Value::Int(b), Value::Int(c)] => {
                Value::Int(wrap(dtype, a.wrapping_mul(b).wrapping_add(c)))
            }
            [a, b, c] => Value::Float(a.float().mul_add(b.float(), c.float())),
        }
    })
}

/// `a + t · (b - a)`, of floats.
pub fn lerp(a: &Array, b: &Array, t: &Array) -> Array {
    let dtype = a.dtype.promote(b.dtype).promote(t.dtype);
    zip(dtype, [a, b, t], |a, b, t| {
        let [a, b, t] = [a, b, t].map(|v| operand(dtype, v).float());
        Value::Float(t.mul_add(b - a, a))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(data: &[f64]) -> Array {
        Array::floats(DType::F32, &[data.len()], data)
    }

    #[test]
    fn select_follows_the_condition_and_promotes() {
        let c = Array::ints(DType::Bool, &[2, 1], &[1, 0]);
        let a = Array::ints(DType::I8, &[2], &[-1, -2]);
        let b = Array::ints(DType::U8, &[], &[255]);
        let got = select(&c, &a, &b);
        assert_eq!(
            (got.dtype, got.to_ints()),
            (DType::I16, vec![-1, -2, 255, 255])
        );
    }

    #[test]
    fn clamp_with_swapped_bounds_gives_the_upper_one() {
        let got = clamp(&f32s(&[-5.0, 0.5, 9.0]), &f32s(&[1.0]), &f32s(&[0.0]));
        assert_eq!(got.to_floats(), [0.0, 0.0, 0.0]);
    }

    #[test]
    fn lerp_interpolates() {
        let got = lerp(&f32s(&[1.0, 2.0]), &f32s(&[3.0, 4.0]), &f32s(&[0.25, 2.0]));
        assert_eq!(got.to_floats(), [1.5, 6.0]);
        let got = mul_add(&f32s(&[2.0]), &f32s(&[3.0]), &f32s(&[1.0]));
        assert_eq!(got.to_floats(), [7.0]);
    }
}
