//! The CPU backend: how ops run in native code. `cpu/x.rs` is how op X of `ops/x.rs` runs.

pub(crate) mod arange;
pub(crate) mod copy;
pub(crate) mod full;
pub(crate) mod fused;
pub mod pool;
pub(crate) mod reduce;
pub mod simd;
