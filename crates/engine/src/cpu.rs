//! The CPU backend.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the elementwise kernels will call them")
)]
pub(crate) mod math;
pub mod pool;
pub mod simd;
