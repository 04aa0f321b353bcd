//! End-to-end tests of the software device: MSL sources in, results or typed errors out.
#![cfg(target_os = "linux")]
#![expect(
    unsafe_code,
    reason = "compiling a kernel that runs in this process is unsafe"
)]
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "soft_device/address_space.rs"]
mod address_space;
#[path = "soft_device/bits.rs"]
mod bits;
#[path = "soft_device/compiler.rs"]
mod compiler;
#[path = "soft_device/failure.rs"]
mod failure;
#[path = "soft_device/kernel.rs"]
mod kernel;
#[path = "soft_device/language.rs"]
mod language;
#[path = "soft_device/load.rs"]
mod load;
#[path = "soft_device/matrix.rs"]
mod matrix;
#[path = "soft_device/memory.rs"]
mod memory;
#[path = "soft_device/setup.rs"]
mod setup;
#[path = "soft_device/support.rs"]
mod support;
