//! Copies and fills that a blit cannot do: on a Mac, offsets and lengths of a blit are whole words.
#![expect(
    unsafe_code,
    reason = "binds buffers and lengths to two kernels of our own"
)]

use super::buffer::WORD;
use crate::error::{Error, Result};
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSString, ns_string};
use objc2_metal::{
    MTLBuffer, MTLCommandEncoder, MTLComputeCommandEncoder, MTLComputePipelineDescriptor,
    MTLComputePipelineState, MTLDevice, MTLLibrary, MTLPipelineOption, MTLSize,
};
use std::ptr::NonNull;

/// Threads that share a copy; each walks over the rest in steps of their number.
const THREADS: usize = 1 << 16;

const SOURCE: &str = "
#include <metal_stdlib>
using namespace metal;

kernel void copy(device uchar *target [[buffer(0)]],
                 constant ulong &length [[buffer(1)]],
                 const device uchar *source [[buffer(2)]],
                 uint thread_index [[thread_position_in_grid]],
                 uint threads [[threads_per_grid]]) {
    for (ulong i = thread_index; i < length; i += threads) {
        target[i] = source[i];
    }
}

kernel void fill(device uchar *target [[buffer(0)]],
                 constant ulong &length [[buffer(1)]],
                 constant uchar &value [[buffer(2)]],
                 uint thread_index [[thread_position_in_grid]],
                 uint threads [[threads_per_grid]]) {
    for (ulong i = thread_index; i < length; i += threads) {
        target[i] = value;
    }
}
";

/// Whether a blit can do it.
pub(super) fn blit_takes(numbers: &[usize]) -> bool {
    !cfg!(target_os = "macos") || numbers.iter().all(|n| n.is_multiple_of(WORD))
}

/// The two kernels.
#[derive(Debug)]
pub(super) struct ByteKernels {
    copy: Retained<ProtocolObject<dyn MTLComputePipelineState>>,
    fill: Retained<ProtocolObject<dyn MTLComputePipelineState>>,
}

/// A place in a buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) buffer: &'a ProtocolObject<dyn MTLBuffer>,
    pub(super) offset: usize,
}

/// Where the bytes come from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bytes<'a> {
    From(Place<'a>),
    Value(u8),
}

impl ByteKernels {
    pub(super) fn new(device: &ProtocolObject<dyn MTLDevice>) -> Result<Self> {
        let failed = |message: String| Error::Toolchain {
            message: format!("the driver's kernels for unaligned copies: {message}"),
        };
        let library = device
            .newLibraryWithSource_options_error(&NSString::from_str(SOURCE), None)
            .map_err(|error| failed(error.localizedDescription().to_string()))?;
        let pipeline = |name: &NSString| {
            let function = library
                .newFunctionWithName(name)
                .ok_or_else(|| failed(format!("`{name}` is missing")))?;
            let descriptor = MTLComputePipelineDescriptor::new();
            descriptor.setLabel(Some(name));
            descriptor.setComputeFunction(Some(&function));
            device
                .newComputePipelineStateWithDescriptor_options_reflection_error(
                    &descriptor,
                    MTLPipelineOption::None,
                    None,
                )
                .map_err(|error| failed(error.localizedDescription().to_string()))
        };
        Ok(Self {
            copy: pipeline(ns_string!("copy"))?,
            fill: pipeline(ns_string!("fill"))?,
        })
    }

    /// Encodes one of them; both places have `length` bytes, which the front checked.
    pub(super) fn encode(
        &self,
        encoder: &ProtocolObject<dyn MTLComputeCommandEncoder>,
        bytes: Bytes<'_>,
        target: Place<'_>,
        length: usize,
    ) {
        let count = length as u64;
        let (name, pipeline) = match bytes {
            Bytes::From(_) => (ns_string!("copy"), &self.copy),
            Bytes::Value(_) => (ns_string!("fill"), &self.fill),
        };
        encoder.pushDebugGroup(name);
        encoder.setComputePipelineState(pipeline);
        // SAFETY: the offsets lie inside their buffers, the commands keep the buffers alive, Metal copies
        // the two values, and the kernels touch `length` bytes at each place and nothing else.
        unsafe {
            encoder.setBuffer_offset_atIndex(Some(target.buffer), target.offset, 0);
            encoder.setBytes_length_atIndex(NonNull::from(&count).cast(), size_of::<u64>(), 1);
            match bytes {
                Bytes::From(source) => {
                    encoder.setBuffer_offset_atIndex(Some(source.buffer), source.offset, 2);
                }
                Bytes::Value(value) => {
                    encoder.setBytes_length_atIndex(NonNull::from(&value).cast(), 1, 2);
                }
            }
        }
        let line = |width| MTLSize {
            width,
            height: 1,
            depth: 1,
        };
        let group = self.copy.threadExecutionWidth();
        encoder.dispatchThreads_threadsPerThreadgroup(line(length.min(THREADS)), line(group));
        encoder.popDebugGroup();
    }
}
