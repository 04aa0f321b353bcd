//! Conversions on Metal.

use crate::DType;

/// The types that Metal has, which are all but `f64`.
pub(super) fn types() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|&dtype| dtype != DType::F64)
}
