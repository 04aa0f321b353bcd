//! Conversions on Metal.

use crate::DType;

/// Whether there is such a conversion: Metal has no `f64`, and nothing is converted to its own type.
pub(super) fn exists(from: DType, to: DType) -> bool {
    from != to && to != DType::F64
}
