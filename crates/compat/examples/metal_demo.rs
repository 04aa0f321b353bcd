//! A tour of the Metal backend: `cargo run --release --example metal_demo --features metal`.
//!
//! It uses the Metal GPU if there is one, otherwise the software Metal device.

use std::sync::Arc;

use bessemer::Result;
use bessemer_compat::minitensor::{MTLResourceOptions, MetalBackend, MetalOps};

#[expect(clippy::print_stdout, reason = "this is what a demo is for")]
pub(crate) fn main() -> Result<()> {
    let backend = Arc::new(if MetalBackend::is_available() {
        MetalBackend::initialize()?
    } else {
        MetalBackend::software()?
    });
    let device = backend.metal_device();
    println!("Device: {}", device.name());
    let max = device.max_threads_per_threadgroup().width;
    println!("Max threads per threadgroup: {max}");

    let ops = MetalOps::new(backend.clone())?;
    let shared = MTLResourceOptions::StorageModeShared;
    let a = backend.create_buffer_with_data(&[1.0_f32, 2.0, 3.0, 4.0], shared)?;
    let b = backend.create_buffer_with_data(&[5.0_f32, 6.0, 7.0, 8.0], shared)?;
    let c = backend.create_buffer(16, shared)?;
    let show = |what: &str| -> Result<()> {
        let mut result = [0.0_f32; 4];
        backend.copy_buffer_to_host(&c, &mut result)?;
        println!("{what}: {result:?}");
        Ok(())
    };
    ops.add(&a, &b, &c, 4)?;
    show("a + b")?;
    ops.matmul(&a, &b, &c, 2, 2, 2)?;
    show("a·b as 2×2 matrices")?;
    ops.sigmoid(&a, &c, 4)?;
    show("sigmoid(a)")?;

    if let Some(pipeline) = backend.get_compute_pipeline("add_kernel") {
        println!(
            "Thread execution width: {}",
            pipeline.thread_execution_width()
        );
        let max = pipeline.max_total_threads_per_threadgroup();
        println!("Max total threads: {max}");
    }
    Ok(())
}
