//! Encoding commands.
#![expect(
    unsafe_code,
    reason = "binds resources to encoders and receives Metal's callbacks on other threads"
)]

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

use block2::RcBlock;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSRange, NSString};
use objc2_metal::{
    MTLBarrierScope, MTLBlitCommandEncoder, MTLBuffer, MTLCommandBuffer,
    MTLCommandBufferDescriptor, MTLCommandEncoder, MTLCommandQueue, MTLComputeCommandEncoder,
    MTLDevice, MTLDispatchType, MTLLogState, MTLResource, MTLSize,
};

use super::buffer::Buffer;
use super::command_split::{CommandCost, Meter};
use super::in_flight::{InFlight, assert_send};
use super::matrix;
use super::pipeline::Pipeline;
use super::queue::{OpenQueue, Queue};
use super::threadgroup_lengths::ThreadgroupLengths;
use super::unaligned_copy::{BufferOffset, ByteKernels, ByteSource, blit_supports};
use crate::driver::{self, Command, CommandList, DispatchCommand, Region, Resource, own};
use crate::error::{Error, Fault, Result};
use crate::size::Size;

/// The current encoder.
#[derive(Debug)]
enum Encoder {
    None,
    Compute(Retained<ProtocolObject<dyn MTLComputeCommandEncoder>>),
    Blit(Retained<ProtocolObject<dyn MTLBlitCommandEncoder>>),
}

/// Settings of the command buffers of a list.
#[derive(Debug)]
struct CommandBufferSettings {
    label: Option<Retained<NSString>>,
    log: Option<Retained<ProtocolObject<dyn MTLLogState>>>,
    /// Whether they retain what they use. [`InFlight`] keeps the driver's objects; Metal Performance Shaders create
    /// objects of their own for a product.
    retains: bool,
}

/// Encodes a list, command buffer after command buffer.
#[derive(Debug)]
pub(super) struct Recorder<'a> {
    queue: &'a Queue,
    open: &'a mut OpenQueue,
    in_flight: &'a Arc<InFlight>,
    settings: CommandBufferSettings,
    buffer: Retained<ProtocolObject<dyn MTLCommandBuffer>>,
    encoder: Encoder,
    /// Open debug groups: an encoder must close what it opened, and the next one opens them again.
    groups: Vec<Retained<NSString>>,
    meter: Meter,
    /// Threadgroup memory lengths set on this encoder.
    lengths: ThreadgroupLengths,
    /// The kernel of this command buffer, for errors; the inner option is `None` once there are several.
    kernel: Option<Option<String>>,
    /// Buffers that this command buffer clears.
    cleared: Vec<Arc<dyn driver::Buffer>>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(
        queue: &'a Queue,
        open: &'a mut OpenQueue,
        in_flight: &'a Arc<InFlight>,
        log: Option<Retained<ProtocolObject<dyn MTLLogState>>>,
        list: &CommandList,
    ) -> Result<Self> {
        let settings = CommandBufferSettings {
            label: list.label.as_deref().map(NSString::from_str),
            log,
            retains: list
                .commands
                .iter()
                .any(|command| matches!(command, Command::Product(_))),
        };
        Ok(Self {
            queue,
            in_flight,
            buffer: command_buffer(open, &settings)?,
            open,
            settings,
            encoder: Encoder::None,
            groups: Vec::new(),
            meter: Meter::default(),
            lengths: ThreadgroupLengths::default(),
            kernel: None,
            cleared: Vec::new(),
        })
    }

    /// Clears private buffers that the device has never written, before anything uses them.
    pub(super) fn clear_blank(&mut self, list: &CommandList) -> Result<()> {
        let mut blank: Vec<Arc<dyn driver::Buffer>> = Vec::new();
        for command in &list.commands {
            each_buffer(command, |buffer| {
                let known = |other: &Arc<dyn driver::Buffer>| Arc::ptr_eq(other, buffer);
                if metal_buffer(buffer).is_blank() && !blank.iter().any(known) {
                    blank.push(buffer.clone());
                }
            });
        }
        for buffer in &blank {
            let raw = metal_buffer(buffer).raw();
            let whole = NSRange::new(0, raw.length());
            self.blit()?.fillBuffer_range_value(raw, whole, 0);
        }
        self.cleared = blank;
        Ok(())
    }

    pub(super) fn record_all(&mut self, list: &CommandList) -> Result<()> {
        for command in &list.commands {
            if self.meter.split_before(CommandCost::of(command)) {
                self.commit();
                self.buffer = command_buffer(self.open, &self.settings)?;
            }
            self.record(command)?;
        }
        Ok(())
    }

    fn record(&mut self, command: &Command) -> Result<()> {
        match command {
            Command::Dispatch(dispatch) => self.dispatch(dispatch)?,
            Command::Product(product) => {
                // The library opens its own encoder.
                self.end_encoder();
                self.note_kernel("matrix product");
                matrix::encode(self.queue.device(), &self.buffer, product)?;
            }
            Command::Copy { source, target } => self.copy(source, target)?,
            Command::Fill { target, value } => self.fill(target, *value)?,
            Command::Synchronize { buffer } => {
                let buffer: &ProtocolObject<dyn MTLBuffer> = metal_buffer(buffer).raw();
                let resource: &ProtocolObject<dyn MTLResource> = ProtocolObject::from_ref(buffer);
                self.blit()?.synchronizeResource(resource);
            }
            Command::Barrier => self.barrier(),
            Command::PushGroup(label) => self.push_group(label),
            Command::PopGroup => self.pop_group(),
        }
        Ok(())
    }

    fn dispatch(&mut self, dispatch: &DispatchCommand) -> Result<()> {
        let pipeline = Pipeline::of(dispatch);
        self.forget_lengths(pipeline, &dispatch.threadgroup_memory);
        let encoder = self.compute()?;
        self.note_kernel(&driver::Pipeline::info(pipeline).name);
        if let Some(label) = &dispatch.label {
            encoder.pushDebugGroup(&NSString::from_str(label));
        }
        encoder.setComputePipelineState(&pipeline.raw);
        for binding in &dispatch.bindings {
            bind(&encoder, binding.index as usize, &binding.resource);
        }
        for (index, length) in &dispatch.threadgroup_memory {
            // SAFETY: the front checked index, alignment and sum.
            unsafe { encoder.setThreadgroupMemoryLength_atIndex(*length, *index as usize) };
            self.lengths.set(*index, *length);
        }
        // All supported families have non-uniform threadgroup sizes.
        encoder.dispatchThreads_threadsPerThreadgroup(
            metal_size(dispatch.grid),
            metal_size(dispatch.threadgroup),
        );
        if dispatch.label.is_some() {
            encoder.popDebugGroup();
        }
        Ok(())
    }

    /// Ends the encoder if the threadgroup memory lengths of earlier launches, which it keeps, would exceed the
    /// device's limit. Metal has no way to reset one.
    fn forget_lengths(&mut self, pipeline: &Pipeline, lengths: &[(u32, usize)]) {
        let fixed = driver::Pipeline::info(pipeline).static_threadgroup_memory;
        let limit = self.queue.device().maxThreadgroupMemoryLength();
        if !self.lengths.admit(lengths, fixed, limit) {
            self.end_encoder();
        }
    }

    fn copy(&mut self, source: &Region, target: &Region) -> Result<()> {
        let (from, to) = (buffer_offset(source), buffer_offset(target));
        if !blit_supports(&[source.offset, target.offset, source.length]) {
            let kernels = self.byte_kernels()?;
            kernels.encode(
                &*self.compute()?,
                ByteSource::Buffer(from),
                to,
                target.length,
            );
            return Ok(());
        }
        let encoder = self.blit()?;
        // SAFETY: the front checked that both ranges are inside their buffers and do not overlap.
        unsafe {
            encoder.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size(
                from.buffer,
                from.offset,
                to.buffer,
                to.offset,
                source.length,
            );
        }
        Ok(())
    }

    fn fill(&mut self, target: &Region, value: u8) -> Result<()> {
        let to = buffer_offset(target);
        if blit_supports(&[target.offset, target.length]) {
            let range = NSRange::new(target.offset, target.length);
            self.blit()?.fillBuffer_range_value(to.buffer, range, value);
        } else {
            let kernels = self.byte_kernels()?;
            kernels.encode(
                &*self.compute()?,
                ByteSource::Value(value),
                to,
                target.length,
            );
        }
        Ok(())
    }

    /// Returns the unaligned copy kernels and keeps them alive: command buffers retain nothing.
    fn byte_kernels(&self) -> Result<Arc<ByteKernels>> {
        let kernels = self.queue.byte_kernels()?;
        self.in_flight.keep(kernels.clone());
        Ok(kernels)
    }

    /// Inserts a barrier. Between encoders Metal tracks hazards itself; inside a concurrent encoder a barrier is needed.
    fn barrier(&mut self) {
        match &self.encoder {
            Encoder::None => {}
            Encoder::Compute(encoder) => encoder.memoryBarrierWithScope(MTLBarrierScope::Buffers),
            Encoder::Blit(_) => self.end_encoder(),
        }
    }

    fn push_group(&mut self, label: &str) {
        let label = NSString::from_str(label);
        if let Some(encoder) = self.encoder.any() {
            encoder.pushDebugGroup(&label);
        }
        self.groups.push(label);
    }

    fn pop_group(&mut self) {
        if self.groups.pop().is_some()
            && let Some(encoder) = self.encoder.any()
        {
            encoder.popDebugGroup();
        }
    }

    fn note_kernel(&mut self, name: &str) {
        match &mut self.kernel {
            None => self.kernel = Some(Some(name.to_owned())),
            Some(known) => *known = known.take().filter(|known| known == name),
        }
    }

    fn compute(&mut self) -> Result<Retained<ProtocolObject<dyn MTLComputeCommandEncoder>>> {
        if let Encoder::Compute(encoder) = &self.encoder {
            return Ok(encoder.clone());
        }
        self.end_encoder();
        let encoder = self
            .buffer
            .computeCommandEncoderWithDispatchType(MTLDispatchType::Concurrent)
            .ok_or_else(refused)?;
        encoder.setLabel(self.settings.label.as_deref());
        self.encoder = Encoder::Compute(encoder.clone());
        self.open_groups();
        Ok(encoder)
    }

    fn blit(&mut self) -> Result<Retained<ProtocolObject<dyn MTLBlitCommandEncoder>>> {
        if let Encoder::Blit(encoder) = &self.encoder {
            return Ok(encoder.clone());
        }
        self.end_encoder();
        let encoder = self.buffer.blitCommandEncoder().ok_or_else(refused)?;
        encoder.setLabel(self.settings.label.as_deref());
        self.encoder = Encoder::Blit(encoder.clone());
        self.open_groups();
        Ok(encoder)
    }

    fn open_groups(&mut self) {
        if let Some(encoder) = self.encoder.any() {
            for label in &self.groups {
                encoder.pushDebugGroup(label);
            }
        }
    }

    fn end_encoder(&mut self) {
        if let Some(encoder) = self.encoder.any() {
            for _ in &self.groups {
                encoder.popDebugGroup();
            }
            encoder.endEncoding();
        }
        self.encoder = Encoder::None;
        self.lengths.clear();
    }

    /// Commits the current command buffer.
    pub(super) fn commit(&mut self) {
        self.end_encoder();
        let in_flight = assert_send(self.in_flight.clone());
        let kernel = self.kernel.take().flatten();
        let handler = RcBlock::new(
            move |buffer: NonNull<ProtocolObject<dyn MTLCommandBuffer>>| {
                // SAFETY: Metal passes the command buffer that has ended, which is alive during the call.
                let buffer = unsafe { buffer.as_ref() };
                autoreleasepool(|_| in_flight.ended(buffer, kernel.as_deref()));
            },
        );
        // SAFETY: the pointer is a block, which Metal copies. It may be called on any thread: everything it
        // captures is `Send` and `Sync`.
        unsafe { self.buffer.addCompletedHandler(RcBlock::as_ptr(&handler)) };
        self.in_flight.start();
        self.buffer.commit();
        self.open.last = Some(self.buffer.clone());
        for buffer in self.cleared.drain(..) {
            metal_buffer(&buffer).set_cleared();
        }
    }
}

impl Drop for Recorder<'_> {
    /// Metal does not allow an encoder to be released before it has ended.
    fn drop(&mut self) {
        self.end_encoder();
    }
}

impl Encoder {
    /// The common protocol of all encoders.
    fn any(&self) -> Option<&ProtocolObject<dyn MTLCommandEncoder>> {
        match self {
            Self::None => None,
            Self::Compute(encoder) => Some(ProtocolObject::from_ref(&**encoder)),
            Self::Blit(encoder) => Some(ProtocolObject::from_ref(&**encoder)),
        }
    }
}

/// Creates a command buffer; blocks while Metal has too many.
fn command_buffer(
    open: &OpenQueue,
    settings: &CommandBufferSettings,
) -> Result<Retained<ProtocolObject<dyn MTLCommandBuffer>>> {
    let descriptor = MTLCommandBufferDescriptor::new();
    descriptor.setRetainedReferences(settings.retains);
    if settings.log.is_some() {
        descriptor.setLogState(settings.log.as_deref());
    }
    let buffer = open
        .raw
        .commandBufferWithDescriptor(&descriptor)
        .ok_or_else(refused)?;
    if settings.label.is_some() {
        buffer.setLabel(settings.label.as_deref());
    }
    Ok(buffer)
}

fn refused() -> Error {
    Error::Execution {
        fault: Fault::Refused,
        kernel: None,
        message: "Metal could not create a command buffer or encoder".to_owned(),
    }
}

fn bind(encoder: &ProtocolObject<dyn MTLComputeCommandEncoder>, index: usize, resource: &Resource) {
    match resource {
        Resource::Buffer { region, .. } => {
            let BufferOffset { buffer, offset } = buffer_offset(region);
            // An empty range may be at the very end, an offset that Metal rejects; nothing is read there.
            let offset = if region.length == 0 { 0 } else { offset };
            // SAFETY: the front checked index and range; `InFlight` keeps the buffer alive.
            unsafe { encoder.setBuffer_offset_atIndex(Some(buffer), offset, index) };
        }
        Resource::Bytes(bytes) => {
            // Metal rejects empty values.
            let bytes: &[u8] = if bytes.is_empty() { &[0] } else { bytes };
            let pointer = NonNull::from(bytes).cast();
            // SAFETY: the front checked index and length; Metal copies the bytes.
            unsafe { encoder.setBytes_length_atIndex(pointer, bytes.len(), index) };
        }
    }
}

/// Visits every buffer that a command accesses.
fn each_buffer(command: &Command, mut visit: impl FnMut(&Arc<dyn driver::Buffer>)) {
    match command {
        Command::Dispatch(dispatch) => {
            for binding in &dispatch.bindings {
                if let Resource::Buffer { region, .. } = &binding.resource {
                    visit(&region.buffer);
                }
            }
        }
        Command::Product(product) => {
            for matrix in [&product.left, &product.right, &product.result] {
                visit(&matrix.region.buffer);
            }
        }
        Command::Copy { source, target } => {
            visit(&source.buffer);
            visit(&target.buffer);
        }
        Command::Fill { target, .. } => visit(&target.buffer),
        Command::Synchronize { buffer } => visit(buffer),
        Command::Barrier | Command::PushGroup(_) | Command::PopGroup => {}
    }
}

fn metal_buffer(buffer: &Arc<dyn driver::Buffer>) -> &Buffer {
    let any: &dyn Any = &**buffer;
    own(any)
}

pub(super) fn buffer_offset(region: &Region) -> BufferOffset<'_> {
    BufferOffset {
        buffer: metal_buffer(&region.buffer).raw(),
        offset: region.offset,
    }
}

fn metal_size(size: Size) -> MTLSize {
    MTLSize {
        width: size.width,
        height: size.height,
        depth: size.depth,
    }
}
