//! Where the bytes of tensors are.
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

use crate::metal::{self, Metal};
use crate::{Device, Result, memory};

/// Alignment of all memory of ours: a cache line, and the widest vector.
const ALIGN: usize = 64;

/// Blocks of at least this many bytes lie in pages of [`HUGE_PAGE`] bytes, where the system has such.
const LARGE: usize = 4 << 20;

/// What is common on 64-bit machines. With small ones, `a + b` of 64 MiB each spends a quarter of its
/// time on looking up where pages are.
const HUGE_PAGE: usize = 2 << 20;

/// A block of the allocator's memory, all of it initialised.
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
    /// Bytes before `start` that belong to the block.
    skipped: usize,
}

/// How a block is asked for, and given back.
fn layout(len: usize) -> Option<Layout> {
    if len < LARGE {
        return Layout::from_size_align(len, ALIGN).ok();
    }
    // Asked for with an alignment, zeroed memory is cleared by hand, and all its pages with it; without,
    // it comes from the system as it is. The part before the first whole page is never touched.
    Layout::from_size_align(len.checked_add(HUGE_PAGE)?, align_of::<u128>()).ok()
}

/// Asks the system for huge pages; where it has none, nothing is lost.
#[cfg(target_os = "linux")]
fn prefer_huge_pages(start: NonNull<u8>, len: usize) {
    unsafe extern "C" {
        fn madvise(
            start: *mut std::ffi::c_void,
            len: usize,
            advice: std::ffi::c_int,
        ) -> std::ffi::c_int;
    }
    const HUGE: std::ffi::c_int = 14;
    // SAFETY: the range is memory of ours that begins with a page; the advice changes no contents.
    let _ = unsafe { madvise(start.as_ptr().cast(), len, HUGE) };
}

#[cfg(not(target_os = "linux"))]
fn prefer_huge_pages(_: NonNull<u8>, _: usize) {}

// SAFETY: it owns its memory, as a `Box<[u8]>` does.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// A block of zeros, if there is memory for it.
    pub(crate) fn new(len: usize) -> Option<Self> {
        if len == 0 {
            return Some(Self {
                start: NonNull::<Line>::dangling().cast(),
                len,
                skipped: 0,
            });
        }
        let layout = layout(len)?;
        // SAFETY: the size is not zero.
        let block = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        if len < LARGE {
            return Some(Self {
                start: block,
                len,
                skipped: 0,
            });
        }
        let skipped = block.as_ptr().addr().next_multiple_of(HUGE_PAGE) - block.as_ptr().addr();
        // SAFETY: the block has `HUGE_PAGE` bytes more than `len`, and less than that are skipped.
        let start = unsafe { block.add(skipped) };
        prefer_huge_pages(start, len);
        Some(Self {
            start,
            len,
            skipped,
        })
    }

    /// Bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Where the bytes are.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the block is `len` initialised bytes of ours.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// The bytes, to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.len > 0 {
            let layout = layout(self.len).expect("checked when it was made");
            // SAFETY: `new` got it from the allocator with this very layout, `skipped` bytes before.
            unsafe { alloc::dealloc(self.start.as_ptr().sub(self.skipped), layout) }
        }
    }
}

/// Gives dangling pointers the alignment of real ones.
#[repr(align(64))]
struct Line;

/// The bytes of one or more tensors, shared by them and freed with the last.
#[derive(Clone)]
pub(crate) struct Storage(Arc<Inner>);

struct Inner {
    block: Block,
    /// The same bytes as Metal devices have them that were asked to.
    mirror: Mirror,
}

/// Copies of bytes, one for each device that needed one.
#[derive(Default)]
struct Mirror(OnceLock<Box<(metal::Block, Mirror)>>);

impl Mirror {
    /// The copy on a device, made by `make` if there is none.
    fn on(
        &self,
        metal: &Arc<Metal>,
        make: impl Fn() -> Result<metal::Block>,
    ) -> Result<&metal::Block> {
        let mut at = self;
        loop {
            let (block, next) = match at.0.get() {
                Some(found) => &**found,
                None => {
                    let made = make()?;
                    &**at.0.get_or_init(|| Box::new((made, Self::default())))
                }
            };
            if block.is_on(metal) {
                return Ok(block);
            }
            at = next;
        }
    }
}

enum Block {
    /// From [`memory::allocate`], goes back to [`memory::release`].
    Ours {
        memory: ManuallyDrop<Memory>,
        /// Bytes asked for; the block may have more.
        len: usize,
    },
    /// Memory that somebody else owns and that is only read: a vector, a mapped file.
    Theirs(Arc<dyn Bytes>),
    /// Memory of a Metal device, which the host sees too.
    Metal(metal::Block),
}

/// Read-only memory that others own; the bytes must stay where they are and what they are.
pub(crate) trait Bytes: Any + Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];

    /// The pages of memory that the bytes are in, for a device to use without a copy: an address and a length
    /// that are multiples of [`bessemer_hal::NO_COPY_ALIGNMENT`], all of it readable as long as the owner
    /// lives.
    fn pages(&self) -> Option<(NonNull<u8>, usize)> {
        None
    }
}

impl<T: crate::Element> Bytes for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Self::Ours { memory, .. } = self {
            // SAFETY: the block is going away, nobody takes the memory again.
            memory::release(unsafe { ManuallyDrop::take(memory) });
        }
    }
}

impl Storage {
    /// Memory for an op's result: initialised, with arbitrary contents.
    pub(crate) fn new(op: &'static str, len: usize) -> Result<Self> {
        let memory = ManuallyDrop::new(memory::allocate(op, len)?);
        Ok(Self::from(Block::Ours { memory, len }))
    }

    fn from(block: Block) -> Self {
        Self(Arc::new(Inner {
            block,
            mirror: Mirror::default(),
        }))
    }

    /// Memory of a Metal device for an op's result.
    pub(crate) fn on(metal: &Arc<Metal>, op: &'static str, len: usize) -> Result<Self> {
        Ok(Self::of_block(metal::Block::new(metal, op, len)?))
    }

    /// A copy of `bytes` where a device is quickest with them.
    pub(crate) fn copy_to(device: &Device, op: &'static str, bytes: &[u8]) -> Result<Self> {
        match device.metal_backend() {
            None => Self::copy_of(op, bytes),
            Some(metal) => {
                let block = metal::Block::copy_of(metal, op, bytes)?;
                Ok(Self::of_block(block))
            }
        }
    }

    /// A copy of `bytes`.
    pub(crate) fn copy_of(op: &'static str, bytes: &[u8]) -> Result<Self> {
        let mut out = Self::new(op, bytes.len())?;
        out.bytes_mut().expect("just made").copy_from_slice(bytes);
        Ok(out)
    }

    /// Memory of somebody else, used in place.
    pub(crate) fn of(owner: impl Bytes) -> Self {
        Self::from(Block::Theirs(Arc::new(owner)))
    }

    /// Waits until the bytes are what they should be: a device may still be writing them.
    pub(crate) fn ready(&self, op: &'static str) -> Result<()> {
        match &self.0.block {
            Block::Metal(block) => block.ready(op),
            _ => Ok(()),
        }
    }

    /// All bytes. [`Storage::ready`] must have said that they are there.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.0.block {
            Block::Ours { memory, len } => &memory.bytes()[..*len],
            Block::Theirs(owner) => owner.bytes(),
            Block::Metal(block) => block.bytes(),
        }
    }

    /// Whether both are the same memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> usize {
        match &self.0.block {
            Block::Metal(block) => block.len(),
            _ => self.bytes().len(),
        }
    }

    /// The memory of a Metal device with these bytes: these themselves, or a copy that is made once.
    pub(crate) fn block_on(&self, metal: &Arc<Metal>, op: &'static str) -> Result<&metal::Block> {
        if let Block::Metal(block) = &self.0.block
            && block.is_on(metal)
        {
            return Ok(block);
        }
        self.0.mirror.on(metal, || {
            self.ready(op)?;
            if let Block::Theirs(owner) = &self.0.block
                && let Some(block) = metal::Block::over(metal, owner)
            {
                return Ok(block);
            }
            metal::Block::copy_of(metal, op, self.bytes())
        })
    }

    /// Whether the bytes are memory of this Metal device that nobody else uses.
    pub(crate) fn is_only_block_of(&mut self, metal: &Arc<Metal>) -> bool {
        let inner = Arc::get_mut(&mut self.0);
        inner.is_some_and(|i| matches!(&i.block, Block::Metal(b) if b.is_on(metal)))
    }

    /// Memory of a Metal device.
    pub(crate) fn of_block(block: metal::Block) -> Self {
        Self::from(Block::Metal(block))
    }

    /// Pointer to the first byte, under the conditions of [`Storage::bytes_mut`].
    pub(crate) fn as_mut_ptr(&mut self) -> Option<*mut u8> {
        let inner = Arc::get_mut(&mut self.0)?;
        match &mut inner.block {
            Block::Ours { memory, .. } => Some(memory.as_mut_ptr()),
            Block::Theirs(_) | Block::Metal(_) => None,
        }
    }

    /// All bytes, to be written, where nobody else uses them and they are ours.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let inner = Arc::get_mut(&mut self.0)?;
        inner.mirror.0.take();
        match &mut inner.block {
            Block::Ours { memory, len } => Some(&mut memory.bytes_mut()[..*len]),
            Block::Theirs(_) | Block::Metal(_) => None,
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
    fn memory_is_aligned_and_writable_while_nobody_shares_it() {
        let mut a = Storage::new("test", 100).unwrap();
        assert_eq!(a.bytes().as_ptr().align_offset(ALIGN), 0);
        a.bytes_mut().unwrap().fill(7);
        let b = a.clone();
        assert!(a.bytes_mut().is_none());
        assert_eq!(b.bytes(), [7; 100]);
        drop(b);
        assert!(a.bytes_mut().is_some());
    }

    #[test]
    fn large_blocks_are_zeros_in_whole_pages_and_go_back() {
        for len in [LARGE - 1, LARGE, LARGE + 1, 3 * LARGE + 77] {
            let mut block = Memory::new(len).unwrap();
            assert!(block.bytes().iter().all(|&b| b == 0));
            block.bytes_mut().fill(1);
            assert_eq!(block.bytes().len(), len);
            let page = if len < LARGE { ALIGN } else { HUGE_PAGE };
            assert_eq!(block.bytes().as_ptr().addr() % page, 0);
        }
    }

    #[test]
    fn an_empty_block_is_fine() {
        assert!(Storage::new("test", 0).unwrap().bytes().is_empty());
    }

    #[test]
    fn memory_of_others_is_only_read() {
        let mut a = Storage::of(vec![1_u32, 2]);
        assert!(a.bytes_mut().is_none());
        assert_eq!(a.bytes().len(), 8);
    }
}
