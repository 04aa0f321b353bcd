//! Helpers of the software device's tests.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bessemer_hal::soft::{self, Mode, SoftOptions};
use bessemer_hal::{Buffer, CompileOptions, Device, Library, StorageMode};
use bytemuck::Pod;

pub(crate) const ADD: &str = "#include <metal_stdlib>
using namespace metal;
kernel void add(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                device float* c [[buffer(2)]], constant uint& n [[buffer(3)]],
                uint i [[thread_position_in_grid]]) {
  if (i < n) c[i] = a[i] + b[i];
}
";

/// Returns the cache directory that all tests share, so that the headers are precompiled once; it is kept between runs
/// with Cargo's target directory.
pub(crate) fn cache() -> &'static Path {
    static CACHE: LazyLock<PathBuf> =
        LazyLock::new(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("soft-cache"));
    &CACHE
}

pub(crate) fn options(mode: Mode) -> SoftOptions {
    SoftOptions {
        cache_dir: Some(cache().to_owned()),
        ..SoftOptions::in_mode(mode)
    }
}

pub(crate) fn device(mode: Mode) -> Device {
    soft::device(options(mode)).unwrap()
}

pub(crate) fn fast() -> Device {
    device(Mode::Fast)
}

/// Compiles a source that must be valid.
pub(crate) fn library(device: &Device, source: &str) -> Library {
    try_library(device, source).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn try_library(device: &Device, source: &str) -> bessemer_hal::Result<Library> {
    let options = CompileOptions::labelled("test.metal");
    // SAFETY: the kernels of these tests are correct, or fail in ways that the device contains.
    unsafe { device.library(source, &options) }
}

pub(crate) fn shared<T: Pod>(device: &Device, values: &[T]) -> Buffer {
    device
        .buffer_with_data(values, StorageMode::Shared)
        .unwrap()
}

pub(crate) fn empty<T>(device: &Device, count: usize) -> Buffer {
    device
        .buffer(count * size_of::<T>(), StorageMode::Shared)
        .unwrap()
}

pub(crate) fn assert_close(found: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(found.len(), expected.len());
    for (index, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!(
            (a - b).abs() <= tolerance * b.abs().max(1.0),
            "element {index}: {a} instead of {b}"
        );
    }
}

pub(crate) fn ramp(count: usize) -> Vec<f32> {
    (0..count)
        .map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0)
        .collect()
}

/// Compiles and runs an addition, to verify that the device works.
pub(crate) fn check_add(device: &Device) {
    let library = library(device, ADD);
    assert_eq!(library.function_names(), ["add"]);
    let pipeline = library.pipeline("add").unwrap();
    let n = 1000;
    let (a, b) = (ramp(n), ramp(2 * n)[n..].to_vec());
    let (left, right) = (shared(device, &a), shared(device, &b));
    let sum = empty::<f32>(device, n);
    let mut commands = device.commands();
    commands
        .dispatch(&pipeline)
        .read(0, &left)
        .read(1, &right)
        .read_write(2, &sum)
        .bytes(3, &(n as u32))
        .threads(n, 256)
        .unwrap();
    let done = commands.commit().unwrap().wait().unwrap();
    assert!(done.gpu_end >= done.gpu_start);
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(sum.to_vec::<f32>().unwrap(), expected);
}

/// The compiler that the tests drive.
pub(crate) fn clang() -> PathBuf {
    soft::compiler(&SoftOptions::default()).unwrap().path
}
