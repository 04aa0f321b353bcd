//! Functions of three elements, with broadcasting: `select`, `clamp`, `mul_add`, `lerp`.

use super::{Meta, Rule};
use crate::dispatch_table::OpClass;
use crate::tensor::Operand;
use crate::{DType, Error, Kind, Result, Tensor};

/// A function of three elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ternary {
    /// `if c { a } else { b }`; the first input is a truth value.
    Select,
    /// `min(max(x, low), high)`; NaN if one is.
    Clamp,
    /// `a * b + c`, rounded once.
    MulAdd,
    /// `a + t * (b - a)`, from inputs `a`, `b`, `t`.
    Lerp,
}

impl Rule for Ternary {
    fn name(&self) -> &'static str {
        match self {
            Self::Select => "select",
            Self::Clamp => "clamp",
            Self::MulAdd => "mul_add",
            Self::Lerp => "lerp",
        }
    }

    fn measured_as(&self) -> Option<OpClass> {
        Some(OpClass::Elementwise)
    }

    fn infer(&self, inputs: &[&Tensor]) -> Result<Meta> {
        let name = self.name();
        let dtype = inputs[2].dtype();
        let refuse = |dtype, expected| {
            Err(Error::BadDType {
                op: name,
                dtype,
                expected,
            })
        };
        match self {
            Self::Select if inputs[0].dtype() != DType::Bool => {
                return refuse(inputs[0].dtype(), "the condition must be bool");
            }
            Self::MulAdd if dtype.kind() == Kind::Bool => return refuse(dtype, "a number type"),
            Self::Lerp if !dtype.is_float() => return refuse(dtype, "a float type"),
            _ => {}
        }
        let shape = inputs[0].shape().broadcast(name, inputs[1].shape())?;
        Ok((dtype, shape.broadcast(name, inputs[2].shape())?))
    }
}

impl Tensor {
    /// The elements of `a` where this tensor of truth values holds, those of `b` elsewhere. Elsewhere
    /// called `where`.
    pub fn select(&self, a: impl Into<Operand>, b: impl Into<Operand>) -> Self {
        let (a, b) = (a.into(), b.into());
        Self::attempt(|| {
            let met = a.meet(&b);
            let (a, b) = (a.cast("select", met)?, b.cast("select", met)?);
            Ok(Self::apply(Ternary::Select, &[self, &a, &b]))
        })
    }

    /// Each element, but at least `low` and at most `high`.
    pub fn clamp(&self, low: impl Into<Operand>, high: impl Into<Operand>) -> Self {
        self.ternary(Ternary::Clamp, low.into(), high.into())
    }

    /// `self * b + c`, rounded once for floats.
    pub fn mul_add(&self, b: impl Into<Operand>, c: impl Into<Operand>) -> Self {
        self.ternary(Ternary::MulAdd, b.into(), c.into())
    }

    /// `self + t * (b - self)`: from this to `b` as `t` goes from 0 to 1.
    pub fn lerp(&self, b: impl Into<Operand>, t: impl Into<Operand>) -> Self {
        self.ternary(Ternary::Lerp, b.into(), t.into())
    }

    fn ternary(&self, op: Ternary, b: Operand, c: Operand) -> Self {
        Self::attempt(|| {
            let me = Operand::from(self);
            let met = DType::promote(me.meet(&b), me.meet(&c));
            let (b, c) = (b.cast(op.name(), met)?, c.cast(op.name(), met)?);
            Ok(Self::apply(op, &[&self.cast(met), &b, &c]))
        })
    }
}
