//! Storage: the bytes of tensors.
#![expect(
    unsafe_code,
    reason = "owns aligned memory of the allocator and lends it as bytes"
)]

use std::alloc::{self, Layout};
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

use crate::cache_line::{CACHE_LINE_BYTES, CacheLine};
use crate::metal::{self, Metal};
use crate::{Device, Result, memory};

/// Blocks of at least this many bytes use huge pages, if the system has them.
const MIN_HUGE_PAGE_BLOCK_BYTES: usize = 4 << 20;

/// The size of huge pages on x86-64 and AArch64. With small pages, `a + b` of 64 MiB each spends a quarter of its time
/// on TLB misses.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// An initialised block from the allocator.
pub(crate) struct HeapBlock {
    start: NonNull<u8>,
    len: usize,
    /// Bytes between the start of the allocation and `start`.
    skipped: usize,
}

/// The layout of the allocation for a block.
fn layout(len: usize) -> Option<Layout> {
    if len < MIN_HUGE_PAGE_BLOCK_BYTES {
        return Layout::from_size_align(len, CACHE_LINE_BYTES).ok();
    }
    // With a larger alignment, `alloc_zeroed` clears memory itself and so touches all pages; without it, the system
    // provides zeroed pages on demand. The bytes before the first huge page are never touched.
    Layout::from_size_align(len.checked_add(HUGE_PAGE_BYTES)?, align_of::<u128>()).ok()
}

/// Advises the system to use huge pages, if it has them.
#[cfg(target_os = "linux")]
fn prefer_huge_pages(start: NonNull<u8>, len: usize) {
    unsafe extern "C" {
        fn madvise(
            start: *mut std::ffi::c_void,
            len: usize,
            advice: std::ffi::c_int,
        ) -> std::ffi::c_int;
    }
    const MADV_HUGEPAGE: std::ffi::c_int = 14;
    // SAFETY: the range belongs to our allocation and begins at a page boundary; the advice changes no contents.
    let _ = unsafe { madvise(start.as_ptr().cast(), len, MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn prefer_huge_pages(_: NonNull<u8>, _: usize) {}

// SAFETY: a block owns its memory, as a `Box<[u8]>` does.
unsafe impl Send for HeapBlock {}
// SAFETY: as above.
unsafe impl Sync for HeapBlock {}

impl HeapBlock {
    /// Allocates a block of zeros; `None` if memory is exhausted.
    pub(crate) fn new(len: usize) -> Option<Self> {
        if len == 0 {
            return Some(Self {
                // With the alignment of other pointers.
                start: NonNull::<CacheLine>::dangling().cast(),
                len,
                skipped: 0,
            });
        }
        let layout = layout(len)?;
        // SAFETY: the size is not zero.
        let block = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        if len < MIN_HUGE_PAGE_BLOCK_BYTES {
            return Some(Self {
                start: block,
                len,
                skipped: 0,
            });
        }
        let skipped =
            block.as_ptr().addr().next_multiple_of(HUGE_PAGE_BYTES) - block.as_ptr().addr();
        // SAFETY: the block has `HUGE_PAGE_BYTES` bytes more than `len`, and fewer than that are skipped.
        let start = unsafe { block.add(skipped) };
        prefer_huge_pages(start, len);
        Some(Self {
            start,
            len,
            skipped,
        })
    }

    /// Number of bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Pointer to the first byte.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the block owns `len` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, mutable.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        if self.len > 0 {
            let layout = layout(self.len).expect("checked by `new`");
            // SAFETY: `new` allocated it with this layout; the allocation begins `skipped` bytes before `start`.
            unsafe { alloc::dealloc(self.start.as_ptr().sub(self.skipped), layout) }
        }
    }
}

/// The bytes of one or more tensors, reference counted.
#[derive(Clone)]
pub(crate) struct Storage(Arc<SharedBytes>);

struct SharedBytes {
    backing: Backing,
    /// Copies of the bytes on Metal devices.
    copies: DeviceCopies,
}

/// A list of copies, one for each device that needed one.
#[derive(Default)]
struct DeviceCopies(OnceLock<Box<(metal::Block, DeviceCopies)>>);

impl DeviceCopies {
    /// The copy on a device, created by `make` if there is none.
    fn on(
        &self,
        metal: &Arc<Metal>,
        make: impl Fn() -> Result<metal::Block>,
    ) -> Result<&metal::Block> {
        let mut list = self;
        loop {
            let (block, next) = match list.0.get() {
                Some(found) => &**found,
                None => {
                    let copy = make()?;
                    &**list.0.get_or_init(|| Box::new((copy, Self::default())))
                }
            };
            if block.is_on(metal) {
                return Ok(block);
            }
            list = next;
        }
    }
}

enum Backing {
    /// From [`memory::allocate`], returned to [`memory::release`].
    Owned {
        memory: ManuallyDrop<HeapBlock>,
        /// Requested bytes; the block may be larger.
        len: usize,
    },
    /// Read-only memory of another owner: a vector, a mapped file.
    External(Arc<dyn Bytes>),
    /// Memory of a Metal device, visible to the host.
    Metal(metal::Block),
}

/// Read-only memory of another owner; neither its address nor its contents may change.
pub(crate) trait Bytes: Any + Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// The pages that contain the bytes, for a device to use without a copy: an address and a length that are multiples
    /// of [`bessemer_hal::NO_COPY_ALIGNMENT_BYTES`], all of it readable as long as the owner lives.
    fn pages(&self) -> Option<(NonNull<u8>, usize)> {
        None
    }
}

impl<T: crate::Element> Bytes for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Self::Owned { memory, .. } = self {
            // SAFETY: `self` is being dropped, so the memory is not taken again.
            memory::release(unsafe { ManuallyDrop::take(memory) });
        }
    }
}

impl Storage {
    /// Allocates memory for the result of an op: initialised, with arbitrary contents.
    pub(crate) fn new(op: &'static str, len: usize) -> Result<Self> {
        let memory = ManuallyDrop::new(memory::allocate(op, len)?);
        Ok(Self::from(Backing::Owned { memory, len }))
    }

    fn from(backing: Backing) -> Self {
        Self(Arc::new(SharedBytes {
            backing,
            copies: DeviceCopies::default(),
        }))
    }

    /// Allocates memory of a Metal device for the result of an op.
    pub(crate) fn on(metal: &Arc<Metal>, op: &'static str, len: usize) -> Result<Self> {
        Ok(Self::of_block(metal::Block::new(metal, op, len)?))
    }

    /// Copies `bytes` into memory that is local to a device.
    pub(crate) fn copy_to(device: &Device, op: &'static str, bytes: &[u8]) -> Result<Self> {
        match device.metal_backend() {
            None => Self::copy_of(op, bytes),
            Some(metal) => {
                let block = metal::Block::copy_of(metal, op, bytes)?;
                Ok(Self::of_block(block))
            }
        }
    }

    /// Allocates zeroed memory of a device.
    pub(crate) fn zeroed(device: &Device, op: &'static str, len: usize) -> Result<Self> {
        match device.metal_backend() {
            None => {
                let mut storage = Self::new(op, len)?;
                storage.bytes_mut().expect("not shared").fill(0);
                Ok(storage)
            }
            Some(metal) => {
                let block = metal::Block::idle(metal, op, len)?;
                block.fill_zeros(op)?;
                Ok(Self::of_block(block))
            }
        }
    }

    /// Makes this the only owner of memory of a device that programs may write: copies bytes that are shared, or elsewhere.
    pub(crate) fn make_unique(&mut self, device: &Device, op: &'static str) -> Result<()> {
        let is_unique = match device.metal_backend() {
            None => self.bytes_mut().is_some(),
            Some(metal) => Arc::get_mut(&mut self.0).is_some_and(|inner| {
                inner.copies.0.take();
                matches!(&inner.backing, Backing::Metal(b) if b.is_on(metal) && !b.is_borrowed())
            }),
        };
        if !is_unique {
            self.ready(op)?;
            *self = Self::copy_to(device, op, self.bytes())?;
        }
        Ok(())
    }

    /// Copies bytes to an offset of memory that [`Storage::make_unique`] has prepared; the range must lie inside.
    pub(crate) fn write(&mut self, op: &'static str, offset: usize, bytes: &[u8]) -> Result<()> {
        if let Backing::Metal(block) = &self.0.backing {
            return block.write(op, offset, bytes);
        }
        if let Some(all) = self.bytes_mut() {
            all[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Copies `bytes`.
    pub(crate) fn copy_of(op: &'static str, bytes: &[u8]) -> Result<Self> {
        let mut out = Self::new(op, bytes.len())?;
        out.bytes_mut().expect("not shared").copy_from_slice(bytes);
        Ok(out)
    }

    /// Uses the memory of another owner in place.
    pub(crate) fn of(owner: impl Bytes) -> Self {
        Self::from(Backing::External(Arc::new(owner)))
    }

    /// Waits until a device has written the bytes.
    pub(crate) fn ready(&self, op: &'static str) -> Result<()> {
        match &self.0.backing {
            Backing::Metal(block) => block.ready(op),
            _ => Ok(()),
        }
    }

    /// All bytes. [`Storage::ready`] must have returned `Ok`.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.0.backing {
            Backing::Owned { memory, len } => &memory.bytes()[..*len],
            Backing::External(owner) => owner.bytes(),
            Backing::Metal(block) => block.bytes(),
        }
    }

    /// Returns `true` if both are the same memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        match &self.0.backing {
            Backing::Metal(block) => block.len(),
            _ => self.bytes().len(),
        }
    }

    /// The bytes in memory of a Metal device: this memory itself, or a copy that is made once.
    pub(crate) fn block_on(&self, metal: &Arc<Metal>, op: &'static str) -> Result<&metal::Block> {
        if let Backing::Metal(block) = &self.0.backing
            && block.is_on(metal)
        {
            return Ok(block);
        }
        self.0.copies.on(metal, || {
            self.ready(op)?;
            if let Backing::External(owner) = &self.0.backing
                && let Some(block) = metal::Block::over(metal, owner)
            {
                return Ok(block);
            }
            metal::Block::copy_of(metal, op, self.bytes())
        })
    }

    /// Returns `true` if this is unshared memory of this Metal device.
    pub(crate) fn is_only_block_of(&mut self, metal: &Arc<Metal>) -> bool {
        let inner = Arc::get_mut(&mut self.0);
        inner.is_some_and(|i| matches!(&i.backing, Backing::Metal(b) if b.is_on(metal)))
    }

    /// Wraps memory of a Metal device.
    pub(crate) fn of_block(block: metal::Block) -> Self {
        Self::from(Backing::Metal(block))
    }

    /// Pointer to the first byte, under the conditions of [`Storage::bytes_mut`].
    pub(crate) fn as_mut_ptr(&mut self) -> Option<*mut u8> {
        let inner = Arc::get_mut(&mut self.0)?;
        match &mut inner.backing {
            Backing::Owned { memory, .. } => Some(memory.as_mut_ptr()),
            Backing::External(_) | Backing::Metal(_) => None,
        }
    }

    /// All bytes, mutable, if they are owned and not shared.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let inner = Arc::get_mut(&mut self.0)?;
        inner.copies.0.take();
        match &mut inner.backing {
            Backing::Owned { memory, len } => Some(&mut memory.bytes_mut()[..*len]),
            Backing::External(_) | Backing::Metal(_) => None,
        }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_is_aligned_and_writable_unless_shared() {
        let mut a = Storage::new("test", 100).unwrap();
        assert_eq!(a.bytes().as_ptr().align_offset(CACHE_LINE_BYTES), 0);
        a.bytes_mut().unwrap().fill(7);
        let b = a.clone();
        assert!(a.bytes_mut().is_none());
        assert_eq!(b.bytes(), [7; 100]);
        drop(b);
        assert!(a.bytes_mut().is_some());
    }

    #[test]
    fn large_blocks_are_zeroed_and_aligned_to_huge_pages() {
        for len in [
            MIN_HUGE_PAGE_BLOCK_BYTES - 1,
            MIN_HUGE_PAGE_BLOCK_BYTES,
            MIN_HUGE_PAGE_BLOCK_BYTES + 1,
            3 * MIN_HUGE_PAGE_BLOCK_BYTES + 77,
        ] {
            let mut block = HeapBlock::new(len).unwrap();
            assert!(block.bytes().iter().all(|&b| b == 0));
            block.bytes_mut().fill(1);
            assert_eq!(block.bytes().len(), len);
            let page = if len < MIN_HUGE_PAGE_BLOCK_BYTES {
                CACHE_LINE_BYTES
            } else {
                HUGE_PAGE_BYTES
            };
            assert_eq!(block.bytes().as_ptr().addr() % page, 0);
        }
    }

    #[test]
    fn an_empty_storage_has_no_bytes() {
        assert!(Storage::new("test", 0).unwrap().bytes().is_empty());
    }

    #[test]
    fn external_memory_is_read_only() {
        let mut a = Storage::of(vec![1_u32, 2]);
        assert!(a.bytes_mut().is_none());
        assert_eq!(a.bytes().len(), 8);
    }
}
