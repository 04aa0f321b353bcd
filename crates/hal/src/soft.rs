//! The software Metal device: unmodified MSL on the CPU.

pub mod ir;
pub mod plan;
pub mod shim;
