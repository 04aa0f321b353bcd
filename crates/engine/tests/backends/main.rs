//! The compatibility APIs: each snippet of the documents as a test, on the software Metal device.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::sync::Arc;

use bessemer::backends::array::{self, ArrayOp, ElementwiseKind};
use bessemer::backends::executor::{BOUNDARY_BYTES, BackendType, CLASSES, Executor};
use bessemer::backends::kernel::{self, BackendPreference, KernelBackend, init_backend};
use bessemer::backends::metal::{
    MTLResourceOptions, MetalBackend, MetalKVCache, MetalMemoryPool, MetalOps, MetalTensor,
    MetalTensorBatch,
};
use bessemer::backends::{Backend, BufferHandle, CpuBackend};
use bessemer::{AttentionOptions, DType, Device, Error, MatrixLibrary, Tensor};
use bessemer_hal::soft::{self, SoftOptions};
use bessemer_hal::{self as hal, StorageMode};

mod hologram;
#[path = "../../examples/metal_demo.rs"]
mod metal_demo;
mod minitensor;
mod mps;
mod numrs;
mod torchless;

fn backend() -> Arc<MetalBackend> {
    Arc::new(MetalBackend::software().unwrap())
}

/// A device of the test's own, for injected failures. Default options: kernels are optimised here, as users have them.
fn lonely() -> Arc<MetalBackend> {
    let device = Device::on(soft::device(SoftOptions::default()).unwrap());
    Arc::new(MetalBackend::on(&device).unwrap())
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|b| f32::from_ne_bytes(*b))
        .collect()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// As many numbers as are expected, each within a few steps of `f32`.
fn assert_near(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(expected) {
        let off = (f64::from(*a) - b).abs();
        assert!(
            off <= 1e-6 * b.abs().max(1.0),
            "{found:?} instead of {expected:?}"
        );
    }
}

fn invalid(error: Error) -> String {
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    error.to_string()
}
