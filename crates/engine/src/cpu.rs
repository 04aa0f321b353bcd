//! The CPU backend: how ops run in native code. `cpu/x.rs` is how op X of `ops/x.rs` runs.

pub(crate) mod arange;
pub(crate) mod attention;
pub(crate) mod copy;
pub(crate) mod full;
pub(crate) mod fused;
pub(crate) mod grid;
pub(crate) mod layer_norm;
pub mod pool;
pub(crate) mod rms_norm;
pub(crate) mod rope;
pub(crate) mod row;
pub mod simd;
pub(crate) mod softmax;
