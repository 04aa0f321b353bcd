//! Several elementwise ops in one pass over memory. Made by the graph, never by users.

use super::binary::Binary;
use super::ternary::Ternary;
use super::unary::Unary;
use super::{Meta, Op, Rule};
use crate::{DType, Result, Shape, Tensor};

/// A straight-line program that computes one element of the result from one element of each input.
/// Its values are numbered: first the inputs of the node, in order, then the result of each step. The last one is the
/// result. Every step rounds to its own type, so the bits are the same as without fusion.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fused {
    /// The shape of the result; inputs are broadcast to it.
    pub(crate) shape: Shape,
    /// The steps.
    pub(crate) steps: Vec<Step>,
}

/// One step of a [`Fused`] program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    /// The function.
    pub(crate) action: Action,
    /// The indices of its arguments; unused ones are 0.
    pub(crate) args: [u16; 3],
    /// The type of its result.
    pub(crate) dtype: DType,
}

/// The function of a [`Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// `f(a)`
    Unary(Unary),
    /// `f(a, b)`, of one type.
    Binary(Binary),
    /// `f(a, b, c)`
    Ternary(Ternary),
    /// Conversion to the step's type.
    Cast,
}

impl Action {
    /// The action of an elementwise op.
    pub(crate) fn of(op: &Op) -> Option<Self> {
        match op {
            Op::Unary(f) => Some(Self::Unary(*f)),
            Op::Binary(f) => Some(Self::Binary(*f)),
            Op::Ternary(f) => Some(Self::Ternary(*f)),
            Op::Cast(_) => Some(Self::Cast),
            _ => None,
        }
    }
}

impl Rule for Fused {
    fn name(&self) -> &'static str {
        "fused"
    }

    fn infer(&self, _: &[&Tensor]) -> Result<Meta> {
        let last = self.steps.last().expect("a program has a step");
        Ok((last.dtype, self.shape))
    }
}
