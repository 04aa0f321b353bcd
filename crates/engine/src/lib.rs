//! Lazy tensors on any CPU.

mod cpu;
mod dispatch;
mod dtype;
mod env;
mod error;
mod graph;
mod layout;
pub mod memory;
mod ops;
mod scalar;
mod shape;
mod storage;
mod tensor;

pub use cpu::{pool, simd};
pub use dtype::{DType, Element, Kind};
pub use error::{Error, Result};
pub use graph::{Plan, PlannedStep, async_eval, eval, explain, synchronize};
pub use layout::Layout;
pub use ops::attention::AttentionOptions;
pub use ops::rope::{Positions, RopeOptions, RopeScaling, RopeStyle, RopeTable};
pub use scalar::Scalar;
pub use shape::{Axes, IntoShape, MAX_RANK, Shape};
pub use tensor::{Operand, Tensor};
