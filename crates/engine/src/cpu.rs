//! The CPU backend: how ops run in native code. `cpu/x.rs` is how op X of `ops/x.rs` runs.

pub(crate) mod arange;
pub(crate) mod attention;
pub(crate) mod binary;
pub(crate) mod cast;
pub(crate) mod copy;
pub(crate) mod full;
pub(crate) mod fused;
pub(crate) mod gemm;
pub(crate) mod grid;
pub(crate) mod layer_norm;
pub(crate) mod map;
pub(crate) mod math;
pub(crate) mod matmul;
pub(crate) mod packed_matmul;
pub mod pool;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod rms_norm;
pub(crate) mod rope;
pub(crate) mod row;
pub mod simd;
pub(crate) mod softmax;
pub(crate) mod ternary;
pub(crate) mod unary;
