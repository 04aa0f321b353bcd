//! The memory of a value on a Metal device.
#![expect(unsafe_code, reason = "lends the memory of a device buffer as bytes")]

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bessemer_hal::{Buffer, BufferSlice};

use super::Metal;
use super::fault::Fault;
use super::stream::Batch;
use crate::{Error, Result};

/// Memory of a device, from its pool and given back to it. What is in it is written by a batch of the
/// device's stream; [`Block::ready`] waits for that.
pub(crate) struct Block {
    metal: Arc<Metal>,
    buffer: Buffer,
    /// Bytes asked for; the buffer may have more.
    len: usize,
    /// Whether [`Block::ready`] need not look again.
    ready: AtomicBool,
    origin: Mutex<Origin>,
}

/// Where the contents come from.
#[derive(Clone, Default)]
pub(super) struct Origin {
    /// The batch that writes them; `None` for what the host has written.
    pub(super) batch: Option<Arc<Batch>>,
    /// What may turn out wrong with the values they are computed from.
    pub(super) faults: Vec<Arc<Fault>>,
    /// The last batch that uses the memory in any way.
    user: Option<Arc<Batch>>,
}

impl Block {
    /// Memory for a result, with arbitrary contents.
    pub(crate) fn new(metal: &Arc<Metal>, op: &'static str, len: usize) -> Result<Self> {
        let (buffer, user) = metal.pool.take(&metal.stream, op, len)?;
        let block = Self::of(metal, buffer, len);
        // Should nothing be recorded for it after all, it goes back as it came: perhaps still in use.
        block.origin().user = user;
        Ok(block)
    }

    /// A copy of bytes of the host.
    pub(crate) fn copy_of(metal: &Arc<Metal>, op: &'static str, bytes: &[u8]) -> Result<Self> {
        let buffer = metal.pool.take_idle(&metal.stream, op, bytes.len())?;
        let block = Self::of(metal, buffer, bytes.len());
        if !bytes.is_empty() {
            // A buffer tells once that an earlier writer of its has failed, which is nobody's concern now.
            let written = block.buffer.write(0, bytes);
            let written = written.or_else(|_| block.buffer.write(0, bytes));
            written.map_err(|e| Error::device(op, e))?;
        }
        Ok(block)
    }

    fn of(metal: &Arc<Metal>, buffer: Buffer, len: usize) -> Self {
        Self {
            metal: Arc::clone(metal),
            buffer,
            len,
            ready: AtomicBool::new(true),
            origin: Mutex::default(),
        }
    }

    /// Whether it is memory of this device.
    pub(crate) fn is_on(&self, metal: &Arc<Metal>) -> bool {
        Arc::ptr_eq(&self.metal, metal)
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn origin(&self) -> MutexGuard<'_, Origin> {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says who writes the contents from now on.
    pub(super) fn written_by(&self, batch: Arc<Batch>, faults: Vec<Arc<Fault>>) {
        *self.origin() = Origin {
            user: Some(Arc::clone(&batch)),
            batch: Some(batch),
            faults,
        };
        self.ready.store(false, Ordering::Release);
    }

    /// Notes that a batch reads the contents.
    pub(super) fn read_by(&self, batch: &Arc<Batch>) {
        self.origin().user = Some(Arc::clone(batch));
    }

    /// A range of the bytes, to be bound. It must lie within the block.
    pub(super) fn slice(&self, range: Range<usize>) -> BufferSlice {
        let slice = self.buffer.slice(range);
        slice.expect("a range of the block")
    }

    /// Waits until the contents are there.
    pub(crate) fn ready(&self, op: &'static str) -> Result<()> {
        if self.ready.load(Ordering::Acquire) {
            return Ok(());
        }
        let origin = self.origin().clone();
        if let Some(batch) = &origin.batch {
            let outcome = self.metal.stream.wait(batch);
            outcome.map_err(|e| Error::device(op, e))?;
        }
        for fault in &origin.faults {
            fault.check()?;
        }
        let mut origin = self.origin();
        origin.batch = None;
        origin.faults.clear();
        self.ready.store(true, Ordering::Release);
        Ok(())
    }

    /// The bytes, which are what they should be once [`Block::ready`] has said so.
    pub(crate) fn bytes(&self) -> &[u8] {
        let Some(start) = self.buffer.contents().filter(|_| self.len > 0) else {
            // As aligned as real ones.
            return bytemuck::cast_slice::<u64, u8>(&[]);
        };
        // SAFETY: the buffer has at least `len` initialised bytes and lives as long as this. Kernels that
        // write them were recorded before anybody could ask for the value, and callers have waited for
        // those; later ones write only to a block that its only owner has given up as an input.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), self.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let user = self.origin().user.take();
        self.metal.pool.give_back(self.buffer.clone(), user);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::metal::copy;
    use crate::metal::input::{Input, Output};
    use crate::metal::record::Recorder;
    use crate::{DType, Device, Layout, Shape};

    #[test]
    fn memory_that_was_taken_in_vain_is_still_in_use() {
        let device = Device::on(
            bessemer_hal::soft::device(bessemer_hal::soft::SoftOptions::default()).unwrap(),
        );
        let metal = device.metal_backend().unwrap();
        let shape = Shape::new("test", &[1000]).unwrap();
        let from = Block::copy_of(metal, "test", &[7; 1000]).unwrap();
        let to = Block::new(metal, "test", 1000).unwrap();
        let mut recorder = Recorder::new(metal, "test");
        let input = Input::new(Some(&from), DType::U8, Layout::contiguous(shape), None);
        let output = Output::new(&to, DType::U8, shape, None);
        copy::record(&mut recorder, &input, &output).unwrap();
        recorder.finish(&to, &[input]).unwrap();
        // Kernels on their way read it. Somebody takes it and lets it go, somebody writes.
        drop(from);
        drop(Block::new(metal, "test", 1000).unwrap());
        let _other = Block::copy_of(metal, "test", &[8; 1000]).unwrap();
        to.ready("test").unwrap();
        assert_eq!(to.bytes(), [7; 1000]);
    }
}
