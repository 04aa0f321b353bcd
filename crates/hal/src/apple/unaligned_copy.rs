//! Unaligned copies and fills: on a Mac, offsets and lengths of a blit must be whole words.
#![expect(
    unsafe_code,
    reason = "binds buffers and lengths to two kernels of the driver"
)]

use std::ptr::NonNull;

use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSString, ns_string};
use objc2_metal::{
    MTLBuffer, MTLCommandEncoder, MTLComputeCommandEncoder, MTLComputePipelineDescriptor,
    MTLComputePipelineState, MTLDevice, MTLLibrary, MTLPipelineOption, MTLSize,
};

use super::buffer::BLIT_ALIGNMENT_BYTES;
use crate::error::{Error, Result};

/// Maximum threads of a copy; each handles every 65536th byte of a longer one.
const MAX_COPY_THREADS: usize = 1 << 16;

const KERNEL_SOURCE: &str = "
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

/// Returns whether a blit supports these offsets and lengths.
pub(super) fn blit_supports(values: &[usize]) -> bool {
    !cfg!(target_os = "macos")
        || values
            .iter()
            .all(|n| n.is_multiple_of(BLIT_ALIGNMENT_BYTES))
}

/// The two kernels.
#[derive(Debug)]
pub(super) struct ByteKernels {
    copy: Retained<ProtocolObject<dyn MTLComputePipelineState>>,
    fill: Retained<ProtocolObject<dyn MTLComputePipelineState>>,
}

/// A buffer and an offset into it.
#[derive(Debug, Clone, Copy)]
pub(super) struct BufferOffset<'a> {
    pub(super) buffer: &'a ProtocolObject<dyn MTLBuffer>,
    pub(super) offset: usize,
}

/// Source of the bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum ByteSource<'a> {
    Buffer(BufferOffset<'a>),
    Value(u8),
}

impl ByteKernels {
    pub(super) fn new(device: &ProtocolObject<dyn MTLDevice>) -> Result<Self> {
        let failed = |message: String| Error::Toolchain {
            message: format!("the driver's kernels for unaligned copies: {message}"),
        };
        let library = device
            .newLibraryWithSource_options_error(&NSString::from_str(KERNEL_SOURCE), None)
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

    /// Encodes a copy or a fill of `length` bytes; the front checked that source and target have them.
    pub(super) fn encode(
        &self,
        encoder: &ProtocolObject<dyn MTLComputeCommandEncoder>,
        bytes: ByteSource<'_>,
        target: BufferOffset<'_>,
        length: usize,
    ) {
        let count = length as u64;
        let (name, pipeline) = match bytes {
            ByteSource::Buffer(_) => (ns_string!("copy"), &self.copy),
            ByteSource::Value(_) => (ns_string!("fill"), &self.fill),
        };
        encoder.pushDebugGroup(name);
        encoder.setComputePipelineState(pipeline);
        // SAFETY: the offsets are inside their buffers, the commands keep the buffers alive, Metal copies
        // the two values, and the kernels access only `length` bytes at each offset.
        unsafe {
            encoder.setBuffer_offset_atIndex(Some(target.buffer), target.offset, 0);
            encoder.setBytes_length_atIndex(NonNull::from(&count).cast(), size_of::<u64>(), 1);
            match bytes {
                ByteSource::Buffer(source) => {
                    encoder.setBuffer_offset_atIndex(Some(source.buffer), source.offset, 2);
                }
                ByteSource::Value(value) => {
                    encoder.setBytes_length_atIndex(NonNull::from(&value).cast(), 1, 2);
                }
            }
        }
        let size = |width| MTLSize {
            width,
            height: 1,
            depth: 1,
        };
        let group = self.copy.threadExecutionWidth();
        encoder
            .dispatchThreads_threadsPerThreadgroup(size(length.min(MAX_COPY_THREADS)), size(group));
        encoder.popDebugGroup();
    }
}
