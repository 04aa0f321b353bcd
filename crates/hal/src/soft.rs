//! The software Metal device: unmodified MSL on the CPU.

pub mod check;
pub mod group;
pub mod ir;
pub mod plan;
pub mod runtime;
pub mod shim;
