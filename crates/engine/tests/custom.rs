//! Custom kernels on tensors, on the software Metal device.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]
#![expect(unsafe_code, reason = "asserts that its own kernels are correct")]

#[path = "custom/arguments.rs"]
mod arguments;
#[path = "custom/checked.rs"]
mod checked;
#[path = "custom/errors.rs"]
mod errors;
#[path = "custom/numerics.rs"]
mod numerics;
#[path = "custom/program.rs"]
mod program;
#[path = "custom/schedule.rs"]
mod schedule;

use bessemer::custom::{KernelCall, MetalKernel};
use bessemer::{DType, Device, Error, Tensor};

/// The software device of all tests: kernels that are compiled once stay compiled.
fn device() -> Device {
    Device::software().unwrap()
}

/// Allows a call on a device that does not contain kernels.
fn trusted(call: KernelCall) -> KernelCall {
    // SAFETY: the kernels of this suite access what their calls give them. Those that do not are only run by `check` and
    // on the isolating device.
    unsafe { call.trust() }
}

fn run(call: KernelCall) -> Tensor {
    trusted(call).run().unwrap()
}

fn on_device(tensor: &Tensor) -> Tensor {
    tensor.to(&device())
}

/// Values without a pattern between -3 and 3, in steps that f32 represents.
fn wave(count: usize) -> Vec<f32> {
    let value = |i: usize| ((i * 7919 + i * i * 31) % 1537) as f32 / 256.0 - 3.0;
    (0..count).map(value).collect()
}

/// `out = a * x + y`.
fn axpy() -> MetalKernel {
    MetalKernel::body("axpy", "out[i] = a * x[i] + y[i];")
        .input("x")
        .input("y")
        .output("out")
        .scalar("a", DType::F32)
        .index("i")
        .build()
        .unwrap()
}

/// Doubles its argument in place.
fn double() -> MetalKernel {
    MetalKernel::body("double_it", "x[i] += x[i];")
        .inout("x")
        .index("i")
        .build()
        .unwrap()
}

/// The message of an error of `run`.
fn refusal(call: KernelCall) -> String {
    trusted(call).run_all().unwrap_err().to_string()
}

/// The error of the device in an error of the engine.
fn of_device(error: Error) -> bessemer_hal::Error {
    match error {
        Error::Device { source, .. } => *source,
        other => panic!("{other}"),
    }
}
