//! The CPU backend.
#[expect(dead_code, reason = "the ops that multiply matrices come after it")]
pub(crate) mod gemm;
pub mod pool;
pub mod simd;
