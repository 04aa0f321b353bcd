//! The memory of a value on a Metal device.
#![expect(
    unsafe_code,
    reason = "lends the memory of a device buffer as bytes, and memory of others to a device"
)]

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bessemer_hal::{self as hal, Buffer, BufferSlice, StorageMode};

use super::Metal;
use super::fault::Fault;
use super::stream::Batch;
use crate::storage::Bytes;
use crate::{Error, Result};

/// Bytes of the red zones before and after a guarded block.
const RED_ZONE_BYTES: usize = 256;
/// Byte that fills red zones.
const RED_ZONE_PATTERN: u8 = 0xA5;

/// Device memory from the pool, and given back to it. A batch of the device's stream writes its contents;
/// [`Block::ready`] waits for that.
pub(crate) struct Block {
    metal: Arc<Metal>,
    buffer: Buffer,
    /// Offset of the first byte in the buffer; others may use the bytes before and after.
    start: usize,
    /// Requested bytes; the buffer may be larger.
    len: usize,
    /// Whether the buffer goes back to the pool. If not, others may write it, and the host reads a copy.
    pooled: bool,
    copy: OnceLock<Vec<u64>>,
    /// Whether [`Block::ready`] need not check again.
    ready: AtomicBool,
    origin: Mutex<BlockOrigin>,
}

/// Origin of a block's contents.
#[derive(Clone, Default)]
pub(super) struct BlockOrigin {
    /// The batch that writes them; `None` if the host wrote them.
    pub(super) batch: Option<Arc<Batch>>,
    /// Faults of the values they are computed from, which may turn out to be errors.
    pub(super) faults: Vec<Arc<Fault>>,
    /// The last batch that uses the memory.
    user: Option<Arc<Batch>>,
}

impl Block {
    /// Memory for a result, with arbitrary contents.
    pub(crate) fn new(metal: &Arc<Metal>, op: &'static str, len: usize) -> Result<Self> {
        if metal.red_zones {
            return Self::guarded(metal, op, len);
        }
        let (buffer, user) = metal.pool.take(&metal.stream, op, len)?;
        let block = Self::of(metal, buffer, len);
        // If nothing is recorded for it after all, it goes back to the pool as it came: possibly still in use.
        block.origin().user = user;
        Ok(block)
    }

    /// As [`Block::new`], between two red zones that kernels must not write.
    fn guarded(metal: &Arc<Metal>, op: &'static str, len: usize) -> Result<Self> {
        let end = len.next_multiple_of(RED_ZONE_BYTES);
        let buffer = metal
            .pool
            .take_idle(&metal.stream, op, end + 2 * RED_ZONE_BYTES)?;
        // This also exposes elements that a kernel does not write.
        let pattern = vec![RED_ZONE_PATTERN; buffer.length()];
        let written = buffer.write(0, &pattern);
        written.map_err(|e| Error::device(op, e))?;
        let mut block = Self::of(metal, buffer, len);
        block.start = RED_ZONE_BYTES;
        Ok(block)
    }

    /// Whether the red zones around a guarded block are unchanged.
    fn is_intact(&self) -> bool {
        if !self.pooled || self.start == 0 {
            return true;
        }
        let bytes = self.buffer.to_vec::<u8>().unwrap_or_default();
        let outside = bytes.iter().enumerate();
        let within = self.start..self.start + self.len;
        outside
            .filter(|(i, _)| !within.contains(i))
            .all(|(_, &b)| b == RED_ZONE_PATTERN)
    }

    /// Memory with arbitrary contents that nothing in flight uses. A caller whose kernels write it outside of the
    /// stream must make sure that they have run before it is dropped.
    pub(crate) fn idle(metal: &Arc<Metal>, op: &'static str, len: usize) -> Result<Self> {
        let buffer = metal.pool.take_idle(&metal.stream, op, len)?;
        Ok(Self::of(metal, buffer, len))
    }

    /// A copy of host bytes.
    pub(crate) fn copy_of(metal: &Arc<Metal>, op: &'static str, bytes: &[u8]) -> Result<Self> {
        let buffer = metal.pool.take_idle(&metal.stream, op, bytes.len())?;
        let block = Self::of(metal, buffer, bytes.len());
        if !bytes.is_empty() {
            let written = block.buffer.write(0, bytes);
            written.map_err(|e| Error::device(op, e))?;
        }
        Ok(block)
    }

    /// Copies host bytes to an offset, behind all that uses the memory. The range must lie inside.
    pub(crate) fn write(&self, op: &'static str, offset: usize, bytes: &[u8]) -> Result<()> {
        self.ready(op)?;
        let user = self.origin().user.clone();
        if let Some(batch) = user {
            // Its failure is that of its results.
            let _ = self.metal.stream.wait(&batch);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let written = self.buffer.write(self.start + offset, bytes);
        written.map_err(|e| Error::device(op, e))
    }

    /// Clears all bytes.
    pub(crate) fn fill_zeros(&self, op: &'static str) -> Result<()> {
        static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
        (0..self.len).step_by(ZEROS.len()).try_for_each(|offset| {
            let len = ZEROS.len().min(self.len - offset);
            self.write(op, offset, &ZEROS[..len])
        })
    }

    /// Memory of another owner, used in place; `None` if it does not lie in whole pages.
    pub(crate) fn over(metal: &Arc<Metal>, owner: &Arc<dyn Bytes>) -> Option<Self> {
        let (pages, length) = owner.pages()?;
        let bytes = owner.bytes();
        let start = bytes.as_ptr().addr().checked_sub(pages.addr().get())?;
        if start + bytes.len() > length {
            return None;
        }
        // SAFETY: the owner guarantees that the pages exist and are only read, and is kept alive as long as the buffer
        // is.
        let buffer = unsafe {
            metal
                .device
                .buffer_no_copy(pages, length, Arc::clone(owner))
        };
        let buffer = buffer.ok()?;
        buffer.set_label("mapped file");
        let mut block = Self::of(metal, buffer, bytes.len());
        (block.start, block.pooled) = (start, false);
        Some(block)
    }

    /// A range of a buffer with another owner, and the batch that wrote it last.
    pub(crate) fn within(
        metal: &Arc<Metal>,
        slice: &BufferSlice,
        writer: Option<Arc<Batch>>,
    ) -> Self {
        let mut block = Self::of(metal, slice.buffer().clone(), slice.length());
        (block.start, block.pooled) = (slice.offset(), false);
        block.ready = AtomicBool::new(false);
        if let Some(batch) = writer {
            block.written_by(batch, Vec::new());
        }
        block
    }

    /// The batch that writes it.
    pub(crate) fn writer(&self) -> Option<Arc<Batch>> {
        self.origin().batch.clone()
    }

    fn of(metal: &Arc<Metal>, buffer: Buffer, len: usize) -> Self {
        Self {
            metal: Arc::clone(metal),
            buffer,
            start: 0,
            len,
            pooled: true,
            copy: OnceLock::new(),
            ready: AtomicBool::new(true),
            origin: Mutex::default(),
        }
    }

    /// Whether it is memory of this device.
    pub(crate) fn is_on(&self, metal: &Arc<Metal>) -> bool {
        Arc::ptr_eq(&self.metal, metal)
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the memory belongs to another owner and is used in place.
    pub(crate) fn is_borrowed(&self) -> bool {
        !self.pooled
    }

    /// All bytes as a slice of the buffer; reading it waits for its writers.
    pub(crate) fn all(&self) -> BufferSlice {
        self.slice(0..self.len)
    }

    pub(super) fn origin(&self) -> MutexGuard<'_, BlockOrigin> {
        self.origin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the batch that writes the contents.
    pub(super) fn written_by(&self, batch: Arc<Batch>, faults: Vec<Arc<Fault>>) {
        *self.origin() = BlockOrigin {
            user: Some(Arc::clone(&batch)),
            batch: Some(batch),
            faults,
        };
        self.ready.store(false, Ordering::Release);
    }

    /// Registers that a batch reads the contents.
    pub(super) fn read_by(&self, batch: &Arc<Batch>) {
        self.origin().user = Some(Arc::clone(batch));
    }

    /// A range of the bytes, to be bound. It must lie within the block.
    pub(crate) fn slice(&self, range: Range<usize>) -> BufferSlice {
        let slice = self
            .buffer
            .slice(self.start + range.start..self.start + range.end);
        slice.expect("a range of the block")
    }

    /// Waits until the contents are written.
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
        if !self.pooled {
            let copy = self.fetch().map_err(|e| Error::device(op, e))?;
            let _ = self.copy.set(copy);
        }
        if self.metal.red_zones && !(self.is_intact() && self.metal.is_intact()) {
            self.metal.overwritten.store(true, Ordering::Relaxed);
            return Err(Error::device(
                op,
                bessemer_hal::Error::Execution {
                    fault: bessemer_hal::Fault::PageFault,
                    kernel: None,
                    message: "a kernel has written outside its output".to_owned(),
                },
            ));
        }
        let mut origin = self.origin();
        origin.batch = None;
        origin.faults.clear();
        self.ready.store(true, Ordering::Release);
        Ok(())
    }

    /// A copy of the bytes of another owner's buffer, in any storage mode.
    fn fetch(&self) -> hal::Result<Vec<u64>> {
        let mut copy = vec![0_u64; self.len.div_ceil(8)];
        let bytes = &mut bytemuck::cast_slice_mut(&mut copy)[..self.len];
        match self.buffer.storage_mode() {
            StorageMode::Shared => self.buffer.read::<u8>(self.start, bytes)?,
            StorageMode::Managed => {
                // The writes of kernels are not yet in the host's copy.
                let mut commands = self.metal.commands("read");
                commands.synchronize(&self.buffer)?;
                commands.commit()?.wait()?;
                self.buffer.read::<u8>(self.start, bytes)?;
            }
            StorageMode::Private => {
                let staging = self
                    .metal
                    .device
                    .buffer_uninit(self.len, StorageMode::Shared)?;
                let mut commands = self.metal.commands("read");
                commands.copy(self.slice(0..self.len), &staging)?;
                commands.commit()?.wait()?;
                staging.read::<u8>(0, bytes)?;
            }
        }
        Ok(copy)
    }

    /// The bytes; they are valid once [`Block::ready`] has succeeded.
    pub(crate) fn bytes(&self) -> &[u8] {
        if !self.pooled {
            let copy = self
                .copy
                .get()
                .map_or(&[][..], |words| bytemuck::cast_slice(words));
            return &copy[..self.len.min(copy.len())];
        }
        let Some(start) = self.buffer.contents().filter(|_| self.len > 0) else {
            // Aligned as real ones are.
            return bytemuck::cast_slice::<u64, u8>(&[]);
        };
        // SAFETY: the buffer has at least `start + len` initialised bytes and lives as long as this. Kernels that write
        // them were recorded before the value could be requested, and callers have waited for those; later ones write
        // only to a block that its only owner has donated as an input.
        unsafe { std::slice::from_raw_parts(start.as_ptr().add(self.start), self.len) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if !self.pooled {
            return;
        }
        let user = self.origin().user.take();
        if self.metal.red_zones
            && let Some(batch) = &user
        {
            let ran = self.metal.stream.wait(batch).is_ok();
            if ran && !self.is_intact() {
                self.metal.overwritten.store(true, Ordering::Relaxed);
            }
        }
        self.metal.pool.give_back(self.buffer.clone(), user);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::ptr::NonNull;

    use bessemer_hal::NO_COPY_ALIGNMENT_BYTES;
    use bessemer_hal::soft::{self, SoftOptions};

    use super::*;
    use crate::metal::copy;
    use crate::metal::input::{Input, Output};
    use crate::metal::record::Recorder;
    use crate::storage::{HeapBlock, Storage};
    use crate::{DType, Device, Layout, Shape, Tensor};

    /// Whole pages that contain the elements, as a mapped file does.
    struct Pages {
        memory: HeapBlock,
        from: usize,
        len: usize,
    }

    impl Bytes for Pages {
        fn bytes(&self) -> &[u8] {
            &self.memory.bytes()[self.from..self.from + self.len]
        }

        fn pages(&self) -> Option<(NonNull<u8>, usize)> {
            let all = NonNull::from(self.memory.bytes()).cast();
            Some((all, 2 * NO_COPY_ALIGNMENT_BYTES))
        }
    }

    #[test]
    fn memory_in_pages_is_used_where_it_is() {
        let device = Device::on(soft::device(SoftOptions::from_env().unwrap()).unwrap());
        // Large blocks begin on a large page.
        let mut memory = HeapBlock::new(8 << 20).unwrap();
        let from = NO_COPY_ALIGNMENT_BYTES + 4;
        let values: Vec<f32> = (0..100).map(|i| i as f32).collect();
        let bytes = bytemuck::cast_slice(&values);
        memory.bytes_mut()[from..from + bytes.len()].copy_from_slice(bytes);
        let pages = Pages {
            memory,
            from,
            len: bytes.len(),
        };
        let shape = Shape::new("test", &[100]).unwrap();
        let x = Tensor::from_storage(DType::F32, shape, Storage::of(pages)).to(&device);
        let y = &x + 1.0;
        let sums: Vec<f32> = values.iter().map(|v| v + 1.0).collect();
        assert_eq!(y.to_vec::<f32>().unwrap(), sums);
        let held = device.hal().unwrap().allocated_bytes();
        assert!(
            held <= 1024,
            "only the result takes memory, not {held} bytes"
        );
    }

    #[test]
    fn memory_that_is_freed_unused_is_still_in_use() {
        let device = Device::on(soft::device(SoftOptions::from_env().unwrap()).unwrap());
        let metal = device.metal_backend().unwrap();
        let shape = Shape::new("test", &[1000]).unwrap();
        let from = Block::copy_of(metal, "test", &[7; 1000]).unwrap();
        let to = Block::new(metal, "test", 1000).unwrap();
        let mut recorder = Recorder::new(metal, "test");
        let input = Input::new(Some(&from), DType::U8, Layout::contiguous(shape), None);
        let output = Output::new(&to, DType::U8, shape, None);
        copy::record_copy(&mut recorder, &input, &output).unwrap();
        recorder.finish(&to, &[input]).unwrap();
        // Kernels in flight read it. It is allocated and freed unused, then the host writes.
        drop(from);
        drop(Block::new(metal, "test", 1000).unwrap());
        let _other = Block::copy_of(metal, "test", &[8; 1000]).unwrap();
        to.ready("test").unwrap();
        assert_eq!(to.bytes(), [7; 1000]);
    }
}
