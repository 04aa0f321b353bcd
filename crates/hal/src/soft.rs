//! The software Metal device: unmodified MSL on the CPU.

pub(crate) mod check;
pub mod group;
pub mod ir;
pub mod plan;
pub mod runtime;
pub mod shim;
