//! Persistent pipelines, in Metal's binary archives.
//!
//! An archive only saves time: if anything goes wrong with one, the kernel is compiled.

use std::fs;
use std::io;
use std::path::Path;

use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSArray, NSError, NSURL};
use objc2_metal::{
    MTLBinaryArchive, MTLBinaryArchiveDescriptor, MTLComputePipelineDescriptor,
    MTLComputePipelineReflection, MTLComputePipelineState, MTLDevice, MTLPipelineOption,
};

use super::cache::Directory;

/// A pipeline with its reflection.
pub(super) type Built = (
    Retained<ProtocolObject<dyn MTLComputePipelineState>>,
    Option<Retained<MTLComputePipelineReflection>>,
);

type Archive = Retained<ProtocolObject<dyn MTLBinaryArchive>>;

/// Loads the pipeline from its archive, or compiles and archives it.
///
/// # Errors
/// Metal's error.
pub(super) fn pipeline(
    device: &ProtocolObject<dyn MTLDevice>,
    descriptor: &MTLComputePipelineDescriptor,
    cached: Option<(&Directory, &Path)>,
) -> Result<Built, Retained<NSError>> {
    let Some((directory, file)) = cached else {
        return build(device, descriptor, MTLPipelineOption::None);
    };
    if let Some(found) = load(device, descriptor, file) {
        event!(DEBUG, "kernel loaded from the cache");
        return Ok(found);
    }
    event!(DEBUG, "kernel is not in the cache");
    if let Some((archive, built)) = record(device, descriptor) {
        // With a full disk or a read-only file system, the next process compiles again.
        let _ = directory.publish(file, |temporary| save(&archive, temporary));
        return Ok(built);
    }
    descriptor.setBinaryArchives(None);
    build(device, descriptor, MTLPipelineOption::None)
}

fn build(
    device: &ProtocolObject<dyn MTLDevice>,
    descriptor: &MTLComputePipelineDescriptor,
    extra_options: MTLPipelineOption,
) -> Result<Built, Retained<NSError>> {
    let mut reflection = None;
    let state = device.newComputePipelineStateWithDescriptor_options_reflection_error(
        descriptor,
        MTLPipelineOption::BindingInfo | MTLPipelineOption::BufferTypeInfo | extra_options,
        Some(&mut reflection),
    )?;
    Ok((state, reflection))
}

/// Loads the pipeline from its file; a file that is damaged or of another system version is removed.
fn load(
    device: &ProtocolObject<dyn MTLDevice>,
    descriptor: &MTLComputePipelineDescriptor,
    file: &Path,
) -> Option<Built> {
    if !file.exists() {
        return None;
    }
    let found = open(device, Some(file)).and_then(|archive| {
        descriptor.setBinaryArchives(Some(&NSArray::from_retained_slice(&[archive])));
        build(
            device,
            descriptor,
            MTLPipelineOption::FailOnBinaryArchiveMiss,
        )
        .ok()
    });
    if found.is_none() {
        let _ = fs::remove_file(file);
    }
    found
}

/// Compiles into a new archive and loads the pipeline from there, so that it is compiled only once.
fn record(
    device: &ProtocolObject<dyn MTLDevice>,
    descriptor: &MTLComputePipelineDescriptor,
) -> Option<(Archive, Built)> {
    descriptor.setBinaryArchives(None);
    let archive = open(device, None)?;
    archive
        .addComputePipelineFunctionsWithDescriptor_error(descriptor)
        .ok()?;
    descriptor.setBinaryArchives(Some(&NSArray::from_retained_slice(std::slice::from_ref(
        &archive,
    ))));
    let built = build(device, descriptor, MTLPipelineOption::None).ok()?;
    Some((archive, built))
}

fn open(device: &ProtocolObject<dyn MTLDevice>, file: Option<&Path>) -> Option<Archive> {
    let descriptor = MTLBinaryArchiveDescriptor::new();
    if let Some(file) = file {
        descriptor.setUrl(Some(&*NSURL::from_file_path(file)?));
    }
    device
        .newBinaryArchiveWithDescriptor_error(&descriptor)
        .ok()
}

fn save(archive: &ProtocolObject<dyn MTLBinaryArchive>, file: &Path) -> io::Result<()> {
    let url = NSURL::from_file_path(file).ok_or(io::ErrorKind::InvalidFilename)?;
    archive
        .serializeToURL_error(&url)
        .map_err(|error| io::Error::other(error.localizedDescription().to_string()))
}
