//! Functions of three elements on Metal.

use crate::ops::ternary::Ternary;
use crate::{DType, Kind};

/// All that take three elements of one type; `select` takes a truth value first.
pub(super) const OF_ONE_TYPE: [Ternary; 3] = [Ternary::Clamp, Ternary::MulAdd, Ternary::Lerp];

/// Whether there is such a function of elements of a type.
pub(super) fn exists(op: Ternary, dtype: DType) -> bool {
    match op {
        Ternary::Select | Ternary::Clamp => true,
        Ternary::MulAdd => dtype.kind() != Kind::Bool,
        Ternary::Lerp => dtype.is_float(),
    }
}
