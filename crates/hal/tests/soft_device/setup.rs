//! What the tests have in common.

use bessemer_hal::soft::{self, Mode, SoftOptions};
use bessemer_hal::{Buffer, CompileOptions, Device, Library, StorageMode};
use bytemuck::Pod;
use std::path::Path;
use std::sync::LazyLock;

/// One cache for the tests of a run, so that the headers are precompiled once; kept between runs where Cargo's target directory is.
pub(crate) fn cache() -> &'static Path {
    static CACHE: LazyLock<std::path::PathBuf> =
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

/// Compiles a source of ours.
pub(crate) fn library(device: &Device, source: &str) -> Library {
    try_library(device, source).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn try_library(device: &Device, source: &str) -> bessemer_hal::Result<Library> {
    let options = CompileOptions::labelled("test.metal");
    // SAFETY: the kernels of these tests are what their tests say; those that misbehave do so in ways the device contains.
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
