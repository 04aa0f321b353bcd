//! Functions of two values, with broadcasting.

use bessemer::{DType, Kind, Tensor};

use crate::Array;
use crate::array::broadcast;
use crate::number::{Value, wrap};
use crate::subnormal::operand;

/// Declares [`Binary`] from the engine's table: only the names, not the arithmetic.
macro_rules! declare {
    ($(
        $(#[$doc:meta])*
        $variant:ident $name:ident $types:ident $file:ident $($bound:ident($($number:literal),+))*;
    )*) => {
        /// A function of two numbers.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Binary {
            $($(#[$doc])* $variant,)*
        }

        use Binary::{$($variant),*};

        impl Binary {
            /// All functions.
            pub const ALL: &[Self] = &[$($variant,)*];

            /// The engine's name of the function.
            pub fn name(self) -> &'static str {
                match self {
                    $($variant => stringify!($name),)*
                }
            }

            /// The engine's function.
            pub fn call(self, a: &Tensor, b: &Tensor) -> Tensor {
                match self {
                    $($variant => a.$name(b),)*
                }
            }
        }
    };
}

bessemer::for_each_binary!(declare);

impl Binary {
    /// The type that operands of these types are converted to, or `None` if the function is not defined for them.
    pub fn operand_dtype(self, a: DType, b: DType) -> Option<DType> {
        let both = a.promote(b);
        match self {
            Div if !both.is_float() => Some(DType::F64),
            Atan2 | Hypot => Some(both.to_float()),
            BitwiseAnd | BitwiseOr | BitwiseXor => (!both.is_float()).then_some(both),
            ShiftLeft | ShiftRight => both.is_int().then_some(both),
            Sub | FloorDiv | Rem | Pow => (both.kind() != Kind::Bool).then_some(both),
            _ => Some(both),
        }
    }

    /// The result type for operands of `dtype`.
    pub fn result_dtype(self, dtype: DType) -> DType {
        match self {
            Eq | Ne | Lt | Le | Gt | Ge | LogicalAnd | LogicalOr | LogicalXor => DType::Bool,
            _ => dtype,
        }
    }

    /// Applies the function to two values of type `dtype`; a float is not rounded.
    pub fn apply(self, dtype: DType, a: Value, b: Value) -> Value {
        match (a, b) {
            (Value::Int(a), Value::Int(b)) => self.of_ints(dtype, a, b),
            (a, b) => self.of_floats(a.float(), b.float()),
        }
    }

    fn of_ints(self, dtype: DType, a: i128, b: i128) -> Value {
        let bits = 8 * dtype.size() as i128;
        let truth = dtype == DType::Bool;
        let i = match self {
            // For booleans + is or, * is and.
            Add if truth => a | b,
            Add => a + b,
            Sub => a - b,
            Mul => a.wrapping_mul(b),
            FloorDiv if b == 0 => 0,
            FloorDiv => floor_div(a, b),
            Rem if b == 0 => 0,
            Rem => a - b.wrapping_mul(floor_div(a, b)),
            Pow => power(a, b),
            Minimum => a.min(b),
            Maximum => a.max(b),
            Eq => (a == b).into(),
            Ne => (a != b).into(),
            Lt => (a < b).into(),
            Le => (a <= b).into(),
            Gt => (a > b).into(),
            Ge => (a >= b).into(),
            LogicalAnd => (a != 0 && b != 0).into(),
            LogicalOr => (a != 0 || b != 0).into(),
            LogicalXor => ((a != 0) != (b != 0)).into(),
            BitwiseAnd => a & b,
            BitwiseOr => a | b,
            BitwiseXor => a ^ b,
            // A negative shift, as an unsigned number, is too large as well.
            ShiftLeft if !(0..bits).contains(&b) => 0,
            ShiftLeft => a << b,
            ShiftRight if !(0..bits).contains(&b) => a >> 127,
            ShiftRight => a >> b,
            Div | Atan2 | Hypot => return self.of_floats(a as f64, b as f64),
        };
        Value::Int(wrap(self.result_dtype(dtype), i))
    }

    /// Applies the function to two floats.
    ///
    /// # Panics
    ///
    /// If the function is bitwise.
    pub fn of_floats(self, a: f64, b: f64) -> Value {
        let f = match self {
            Add => a + b,
            Sub => a - b,
            Mul => a * b,
            Div => a / b,
            FloorDiv => divide(a, b).0,
            Rem => divide(a, b).1,
            Pow => a.powf(b),
            Minimum | Maximum if a.is_nan() || b.is_nan() => f64::NAN,
            Minimum => a.min(b),
            Maximum => a.max(b),
            Atan2 => a.atan2(b),
            Hypot => a.hypot(b),
            Eq => return (a == b).into(),
            Ne => return (a != b).into(),
            Lt => return (a < b).into(),
            Le => return (a <= b).into(),
            Gt => return (a > b).into(),
            Ge => return (a >= b).into(),
            LogicalAnd => return (a != 0.0 && b != 0.0).into(),
            LogicalOr => return (a != 0.0 || b != 0.0).into(),
            LogicalXor => return ((a != 0.0) != (b != 0.0)).into(),
            BitwiseAnd | BitwiseOr | BitwiseXor | ShiftLeft | ShiftRight => {
                unreachable!("{self:?} of floats")
            }
        };
        Value::Float(f)
    }
}

/// Applies a function to every pair.
pub fn binary(f: Binary, a: &Array, b: &Array) -> Array {
    let dtype = f
        .operand_dtype(a.dtype, b.dtype)
        .unwrap_or_else(|| panic!("{f:?} of {} and {}", a.dtype, b.dtype));
    let shape = broadcast(&a.shape, &b.shape);
    let dtypes = [a.dtype, b.dtype];
    Array::from_fn(f.result_dtype(dtype), &shape, |i| {
        let (a, b) = (a.at_broadcast(i), b.at_broadcast(i));
        let [a, b] = match f {
            // Each is true or false in its own type; `f64` is computed on the CPU.
            LogicalAnd | LogicalOr | LogicalXor if dtypes.iter().all(|&d| d != DType::F64) => {
                [operand(dtypes[0], a), operand(dtypes[1], b)]
            }
            _ => [a, b],
        };
        let [a, b] = [a, b].map(|v| operand(dtype, v.cast(dtype)));
        f.apply(dtype, a, b)
    })
}

/// The quotient rounded down.
fn floor_div(a: i128, b: i128) -> i128 {
    let q = a / b;
    if a % b != 0 && (a < 0) != (b < 0) {
        q - 1
    } else {
        q
    }
}

/// Integer power, modulo 2^128; a negative power is truncated to 0, unless the base is ±1.
fn power(base: i128, exponent: i128) -> i128 {
    if exponent < 0 {
        return match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut result, mut square, mut left) = (1_i128, base, exponent);
    while left > 0 {
        if left % 2 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        left /= 2;
    }
    result
}

/// Python's divmod: the remainder has the sign of the divisor.
fn divide(a: f64, b: f64) -> (f64, f64) {
    let mut rem = a % b;
    if b == 0.0 {
        return (a / b, rem);
    }
    let mut quotient = (a - rem) / b;
    if rem != 0.0 {
        if (b < 0.0) != (rem < 0.0) {
            rem += b;
            quotient -= 1.0;
        }
    } else {
        rem = 0.0_f64.copysign(b);
    }
    let floor = if quotient == 0.0 {
        0.0_f64.copysign(a / b)
    } else if quotient - quotient.floor() > 0.5 {
        quotient.floor() + 1.0
    } else {
        quotient.floor()
    };
    (floor, rem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn float_division_matches_numpy() {
        let inf = f64::INFINITY;
        // a, b, floor_divide, remainder of NumPy 2.4.
        let known = [
            (7.0, 2.0, 3.0, 1.0),
            (-7.0, 2.0, -4.0, 1.0),
            (7.0, -2.0, -4.0, -1.0),
            (-1.0, inf, -1.0, inf),
            (1.0, -inf, -1.0, -inf),
            (0.3, 0.1, 2.0, 0.09999999999999998),
            (1.0, 0.0, inf, f64::NAN),
            (inf, 1.0, f64::NAN, f64::NAN),
        ];
        let same = |a: f64, b: f64| a == b || a.is_nan() && b.is_nan();
        for (a, b, q, r) in known {
            let got = divide(a, b);
            assert!(same(got.0, q) && same(got.1, r), "{a} by {b}: {got:?}");
        }
    }

    #[test]
    fn integers_wrap_floor_and_never_trap() {
        let byte = |f: Binary, a, b| f.apply(DType::I8, Value::Int(a), Value::Int(b)).int();
        assert_eq!(byte(Add, 127, 1), -128);
        assert_eq!(byte(Mul, 100, 100), 16);
        assert_eq!(byte(FloorDiv, -128, -1), -128);
        assert_eq!(byte(FloorDiv, -7, 2), -4);
        assert_eq!(byte(Rem, -7, 2), 1);
        assert_eq!(byte(Rem, 7, -2), -1);
        assert_eq!(byte(Rem, 7, 0), 0);
        assert_eq!(byte(Pow, 3, 5), -13);
        assert_eq!(byte(Pow, -1, -3), -1);
        assert_eq!(byte(Pow, 2, -1), 0);
        assert_eq!(byte(ShiftLeft, 1, 9), 0);
        assert_eq!(byte(ShiftRight, -5, 100), -1);
        assert_eq!(byte(ShiftRight, -5, 1), -3);
    }

    #[test]
    fn operands_are_promoted_before_comparison() {
        let a = Array::ints(DType::U8, &[2, 1], &[200, 3]);
        let b = Array::ints(DType::I8, &[2], &[-1, 100]);
        let sum = binary(Add, &a, &b);
        assert_eq!(sum.dtype, DType::I16);
        assert_eq!(sum.to_ints(), [199, 300, 2, 103]);
        assert_eq!(binary(Lt, &a, &b).to_ints(), [0, 0, 0, 1]);
        assert_eq!(binary(Div, &a, &a).dtype, DType::F64);
    }
}
