//! The compatibility APIs: each snippet of the documents as a test, on the software Metal device.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

use std::sync::Arc;

use bessemer::dispatch_table::{BackendKind, OpClass};
use bessemer::{AttentionOptions, DType, Device, Error, Tensor};
use bessemer_compat::hologram::{
    BOUNDARY_BYTES, Backend, BackendError, BackendType, BufferHandle, CLASSES, CpuBackend, Executor,
};
use bessemer_compat::minitensor::{MTLResourceOptions, MetalBackend, MetalOps};
use bessemer_compat::numrs::{self as array, ElementwiseKind};
use bessemer_compat::torchless::{
    self as kernel, BackendPreference, KernelBackend, MetalKVCache, MetalMemoryPool, MetalTensor,
    MetalTensorBatch, init_backend,
};
use bessemer_hal::soft::{self, SoftOptions};
use bessemer_hal::{self as hal, StorageMode};

mod hologram;
mod hologram_metal;
mod hologram_ops;
mod hologram_program;
#[path = "../../examples/metal_demo.rs"]
mod metal_demo;
mod minitensor;
mod numrs;
mod torchless;

fn backend() -> Arc<MetalBackend> {
    Arc::new(MetalBackend::software().unwrap())
}

/// A backend with its own device, for injected failures. Default options: kernels are optimised, as for users.
fn private_backend() -> Arc<MetalBackend> {
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

/// Compares lengths and elements, within a few ulps of `f32`.
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
