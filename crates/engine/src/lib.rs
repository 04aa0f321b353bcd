//! Lazy tensors on any CPU.
mod cpu;
mod dtype;
mod env;
mod error;
mod shape;

pub use cpu::{pool, simd};
pub use dtype::{DType, Element, Kind};
pub use error::{Error, Result};
pub use shape::{Axes, IntoShape, MAX_RANK, Shape};
/// Memory.
pub mod memory {
    /// x
    pub fn set_memory_limit() {}
}
