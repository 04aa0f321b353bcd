//! The software Metal device: unmodified MSL on the CPU.

pub mod group;
pub mod ir;
pub mod plan;
