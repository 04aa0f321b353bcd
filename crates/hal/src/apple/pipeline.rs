//! Kernels compiled for the GPU.
#![expect(
    unsafe_code,
    reason = "passes function constants by pointer and narrows Metal's bindings to their kind"
)]

use std::any::Any;
use std::ptr::NonNull;

use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSError, NSString};
use objc2_metal::{
    MTLBinding, MTLBindingAccess, MTLBindingType, MTLBufferBinding, MTLComputePipelineDescriptor,
    MTLComputePipelineReflection, MTLComputePipelineState, MTLDataType, MTLDevice,
    MTLFunctionConstantValues, MTLLibrary,
};

use super::archive;
use super::diagnostics::pipeline_error;
use super::library::Library;
use crate::access::Access;
use crate::driver::{self, DispatchCommand, own};
use crate::error::{Error, Result};
use crate::library::{ConstantValue, FunctionConstants};
use crate::pipeline::{Argument, ArgumentKind, PipelineInfo};

/// A pipeline.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) raw: Retained<ProtocolObject<dyn MTLComputePipelineState>>,
    /// Whether the kernel may log.
    pub(super) logs: bool,
    info: PipelineInfo,
}

impl Pipeline {
    /// The pipeline of a launch.
    pub(super) fn of(dispatch: &DispatchCommand) -> &Self {
        let any: &dyn Any = &*dispatch.pipeline;
        own(any)
    }

    pub(super) fn build(
        library: &Library,
        name: &str,
        constants: &FunctionConstants,
    ) -> Result<Self> {
        let failed = |error: Retained<NSError>| {
            let text = error.localizedDescription().to_string();
            pipeline_error(&text, &library.label, name)
        };
        let function = library
            .raw
            .newFunctionWithName_constantValues_error(&NSString::from_str(name), &values(constants))
            .map_err(failed)?;
        let descriptor = MTLComputePipelineDescriptor::new();
        descriptor.setLabel(Some(&NSString::from_str(name)));
        descriptor.setComputeFunction(Some(&function));
        let cached = library
            .archives
            .as_ref()
            .map(|dir| (dir, dir.file(&library.key.file_name(name, constants))));
        let cached = cached.as_ref().map(|(dir, file)| (*dir, file.as_path()));
        let (raw, reflection) =
            archive::pipeline(&library.device, &descriptor, cached).map_err(failed)?;
        let arguments = match reflection {
            Some(reflection) => {
                Some(arguments(&reflection).map_err(|what| Error::Unsupported {
                    what: format!("{what} of kernel `{name}`"),
                    device: library.device.name().to_string(),
                })?)
            }
            None => None,
        };
        Ok(Self {
            info: PipelineInfo {
                name: name.to_owned(),
                max_total_threads_per_threadgroup: raw.maxTotalThreadsPerThreadgroup(),
                thread_execution_width: raw.threadExecutionWidth(),
                static_threadgroup_memory: raw.staticThreadgroupMemoryLength(),
                arguments,
            },
            raw,
            logs: library.logs,
        })
    }
}

impl driver::Pipeline for Pipeline {
    fn info(&self) -> &PipelineInfo {
        &self.info
    }
}

fn values(constants: &FunctionConstants) -> Retained<MTLFunctionConstantValues> {
    let metal = MTLFunctionConstantValues::new();
    for (index, value) in constants.iter() {
        let kind = match value {
            ConstantValue::Bool(_) => MTLDataType::Bool,
            ConstantValue::I8(_) => MTLDataType::Char,
            ConstantValue::U8(_) => MTLDataType::UChar,
            ConstantValue::I16(_) => MTLDataType::Short,
            ConstantValue::U16(_) => MTLDataType::UShort,
            ConstantValue::I32(_) => MTLDataType::Int,
            ConstantValue::U32(_) => MTLDataType::UInt,
            ConstantValue::I64(_) => MTLDataType::Long,
            ConstantValue::U64(_) => MTLDataType::ULong,
            ConstantValue::F16(_) => MTLDataType::Half,
            ConstantValue::F32(_) => MTLDataType::Float,
        };
        // Every Apple system is little-endian: the value's bytes come first.
        let bits = value.bits().to_le_bytes();
        // SAFETY: Metal copies as many bytes as the type has, at most eight.
        unsafe {
            metal.setConstantValue_type_atIndex(NonNull::from(&bits).cast(), kind, index as usize);
        }
    }
    metal
}

/// Metal's description of a binding.
struct BindingInfo {
    name: String,
    kind: MTLBindingType,
    index: usize,
    access: MTLBindingAccess,
    active: bool,
    /// Size of the structure that a buffer argument points or refers to; 0 if it is not a structure.
    structure: usize,
}

/// The kernel's arguments, or an error that names the first unsupported one.
fn arguments(reflection: &MTLComputePipelineReflection) -> Result<Vec<Argument>, String> {
    bindings(reflection).into_iter().map(argument).collect()
}

fn argument(found: BindingInfo) -> Result<Argument, String> {
    let index = u32::try_from(found.index).map_err(|_| format!("argument {}", found.index))?;
    let kind = match found.kind {
        MTLBindingType::Buffer => ArgumentKind::Buffer(index),
        MTLBindingType::ThreadgroupMemory => ArgumentKind::ThreadgroupMemory(index),
        MTLBindingType::Texture => return Err(format!("texture argument `{}`", found.name)),
        MTLBindingType::Sampler => return Err(format!("sampler argument `{}`", found.name)),
        other => return Err(format!("argument `{}` of kind {}", found.name, other.0)),
    };
    let access = match found.access {
        MTLBindingAccess::ReadOnly => Access::Read,
        MTLBindingAccess::WriteOnly => Access::Write,
        _ => Access::ReadWrite,
    };
    Ok(Argument {
        name: found.name,
        kind,
        access,
        // Metal does not distinguish a reference to one value from a pointer to an array. A
        // structure that is only read is almost always the kernel's parameters.
        min_bytes: if access == Access::Read {
            found.structure
        } else {
            0
        },
        active: found.active,
    })
}

fn bindings(reflection: &MTLComputePipelineReflection) -> Vec<BindingInfo> {
    let found = |binding: Retained<ProtocolObject<dyn MTLBinding>>| {
        let mut found = BindingInfo {
            name: binding.name().to_string(),
            kind: binding.r#type(),
            index: binding.index(),
            access: binding.access(),
            active: binding.isUsed(),
            structure: 0,
        };
        if found.kind == MTLBindingType::Buffer {
            // SAFETY: Metal's bindings of this type implement the protocol for buffers.
            let buffer: Retained<ProtocolObject<dyn MTLBufferBinding>> =
                unsafe { Retained::cast_unchecked(binding) };
            if buffer.bufferDataType() == MTLDataType::Struct {
                found.structure = buffer.bufferDataSize();
            }
        }
        found
    };
    reflection.bindings().iter().map(found).collect()
}
