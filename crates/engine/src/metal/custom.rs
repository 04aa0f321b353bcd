//! Custom kernels on Metal: compiling them, and recording their launches.
#![expect(
    unsafe_code,
    reason = "compiles kernels of users, who promised that they are sound"
)]

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bessemer_hal::{
    self as hal, Access, BufferSlice, CompileOptions, FunctionConstants, Library, Pipeline,
};

use super::input::{Input, Output};
use super::record::Recorder;
use super::{Block, Metal, copy};
use crate::custom::{BoundTensor, CustomLaunch};
use crate::storage::Storage;
use crate::{Error, Result, Tensor};

/// The text of a custom kernel.
#[derive(Clone, Copy)]
pub(crate) struct CustomSource<'a> {
    /// The name of the kernel.
    pub(crate) name: &'static str,
    pub(crate) text: &'a str,
    /// Whether its user has promised that it is sound.
    pub(crate) is_trusted: bool,
}

/// The compiled libraries of a device by text: those without a promise, and those with one.
#[derive(Default)]
pub(super) struct CustomLibraries([RwLock<HashMap<String, Library>>; 2]);

/// The pipeline of a custom kernel, compiled on first use.
///
/// # Errors
/// [`Error::Unsupported`] for a kernel without a promise on a device that does not contain kernels, [`Error::Device`] for
/// text that does not compile.
pub(crate) fn compile(
    metal: &Arc<Metal>,
    source: &CustomSource<'_>,
    constants: FunctionConstants,
) -> Result<Pipeline> {
    let op = source.name;
    let device = |e| Error::device(op, e);
    library(metal, source)?
        .function_with(op, constants)
        .and_then(|function| function.pipeline())
        .map_err(device)
}

fn library(metal: &Arc<Metal>, source: &CustomSource<'_>) -> Result<Library> {
    let libraries = &metal.custom_libraries.0[usize::from(source.is_trusted)];
    let known = libraries.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = known.get(source.text) {
        return Ok(library.clone());
    }
    drop(known);
    let options = CompileOptions {
        label: source.name.to_owned(),
        math_mode: metal.kernels.math_mode(),
        ..CompileOptions::default()
    };
    let library = if source.is_trusted {
        // SAFETY: the user has promised that the kernel stays inside its arguments, is free of data races and ends
        // (`KernelCall::trust`), or the device is in check mode, which makes no access that it has not checked.
        unsafe { metal.device.library(source.text, &options) }
    } else {
        metal.device.library_contained(source.text, &options)
    };
    let library = library.map_err(|error| match error {
        hal::Error::Unsupported { .. } if !source.is_trusted => Error::Unsupported {
            op: source.name,
            what: "the device does not contain kernels; promise that this one is sound with `KernelCall::trust`, or \
                   use the software device in isolated mode"
                .to_owned(),
            device: metal.device.name().to_owned(),
        },
        error => Error::device(source.name, error),
    })?;
    let mut known = libraries.write().unwrap_or_else(PoisonError::into_inner);
    let text = source.text.to_owned();
    Ok(known.entry(text).or_insert(library).clone())
}

/// Records a launch that writes these results; each comes with whether its memory has its previous value.
pub(crate) fn run(
    metal: &Arc<Metal>,
    launch: &CustomLaunch,
    tensors: &[Tensor],
    results: &[(Storage, bool)],
) -> Result<()> {
    let op = launch.name;
    let mut inputs = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let block = match tensor.node.value.get() {
            Some(storage) => Some(storage.block_on(metal, op)?),
            // Its memory is that of a result.
            None => None,
        };
        inputs.push(Input::new(block, tensor.dtype(), *tensor.layout(), None));
    }
    let blocks: Vec<&Block> = results
        .iter()
        .map(|(storage, _)| storage.block_on(metal, op))
        .collect::<Result<_>>()?;

    let mut recorder = Recorder::new(metal, op);
    let has_value: Vec<_> = results.iter().map(|(_, has_value)| *has_value).collect();
    record(&mut recorder, launch, &inputs, &blocks, &has_value)?;
    recorder.finish_all(&blocks, &inputs)
}

/// Records the copies and the launch; `has_value` says of each result whether its memory has its previous value.
pub(super) fn record(
    recorder: &mut Recorder<'_>,
    launch: &CustomLaunch,
    inputs: &[Input<'_>],
    blocks: &[&Block],
    has_value: &[bool],
) -> Result<()> {
    let all = || launch.results.iter().zip(blocks).zip(has_value);
    for ((result, block), has_value) in all() {
        if let Some(input) = result.updates.and_then(|i| inputs.get(i))
            && !has_value
            && result.shape.count() > 0
        {
            let output = Output::new(block, result.dtype, result.shape, None);
            copy::record_copy(recorder, input, &output)?;
        }
    }
    let mut builder = launch.pipeline.launch().label(launch.name);
    let mut traffic = [0; 2];
    for &(index, bound) in &launch.tensors {
        let (slice, access) = match bound {
            BoundTensor::Input(i) => (inputs.get(i).and_then(input_slice), Access::Read),
            BoundTensor::Result(i) => {
                let result = &launch.results[i];
                let access = match result.updates {
                    Some(_) => Access::ReadWrite,
                    None => Access::Write,
                };
                (Some(blocks[i].slice(0..result.bytes())), access)
            }
        };
        let Some(slice) = slice else { continue };
        let length = slice.length() as u64;
        traffic[0] += if access.reads() { length } else { 0 };
        traffic[1] += if access.writes() { length } else { 0 };
        builder = builder.bind(index, slice, access);
    }
    for (index, bytes) in &launch.values {
        builder = builder.set_bytes(*index, bytes);
    }
    for &(index, bytes) in &launch.threadgroup {
        builder = builder.threadgroup_memory(index, bytes);
    }
    let grid = launch.grid;
    recorder.push_custom(
        if grid.counts_threadgroups {
            builder.threadgroups(grid.size, grid.group)
        } else {
            builder.threads(grid.size, grid.group)
        },
        traffic,
    );
    Ok(())
}

/// The range from the first to the last element of an input.
fn input_slice(input: &Input<'_>) -> Option<BufferSlice> {
    let size = input.dtype.size();
    let span = input.layout.span();
    let block = input.block?;
    Some(block.slice(span.start * size..span.end * size))
}

/// Waits for the batch that computes an evaluated tensor, and returns its time on the device; zero if the host has written
/// the value.
pub(crate) fn batch_time(op: &'static str, tensor: &Tensor) -> Result<Duration> {
    let (Some(metal), Some(storage)) = (tensor.device().metal_backend(), tensor.node.value.get())
    else {
        return Ok(Duration::ZERO);
    };
    let batch = storage.block_on(metal, op)?.writer();
    storage.ready(op)?;
    Ok(batch.map_or(Duration::ZERO, |batch| batch.gpu_time()))
}
