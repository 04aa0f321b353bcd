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
use std::sync::Arc;

use crate::{Result, memory};

/// Alignment of all memory of ours: a cache line, and the widest vector.
const ALIGN: usize = 64;

/// A block of the allocator's memory, all of it initialised.
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
}

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
            });
        }
        let layout = Layout::from_size_align(len, ALIGN).ok()?;
        // SAFETY: the size is not zero.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        Some(Self { start, len })
    }

    /// Bytes.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the block is `len` initialised bytes of ours.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.len > 0 {
            let layout =
                Layout::from_size_align(self.len, ALIGN).expect("checked when it was made");
            // SAFETY: `new` got it from the allocator with this very layout.
            unsafe { alloc::dealloc(self.start.as_ptr(), layout) }
        }
    }
}

/// Gives dangling pointers the alignment of real ones.
#[repr(align(64))]
struct Line;

/// The bytes of one or more tensors, shared by them and freed with the last.
#[derive(Clone)]
pub(crate) struct Storage(Arc<Block>);

enum Block {
    /// From [`memory::allocate`], goes back to [`memory::release`].
    Ours {
        memory: ManuallyDrop<Memory>,
        /// Bytes asked for; the block may have more.
        len: usize,
    },
    /// Memory that somebody else owns and that is only read: a vector, a mapped file.
    Theirs(Box<dyn Bytes>),
}

/// Read-only memory that others own; the bytes must stay where they are and what they are.
pub(crate) trait Bytes: Any + Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];
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
        Ok(Self(Arc::new(Block::Ours { memory, len })))
    }

    /// A copy of `bytes`.
    pub(crate) fn copy_of(op: &'static str, bytes: &[u8]) -> Result<Self> {
        let mut out = Self::new(op, bytes.len())?;
        out.bytes_mut().expect("just made").copy_from_slice(bytes);
        Ok(out)
    }

    /// Memory of somebody else, used in place.
    pub(crate) fn of(owner: impl Bytes) -> Self {
        Self(Arc::new(Block::Theirs(Box::new(owner))))
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &*self.0 {
            Block::Ours { memory, len } => &memory.bytes()[..*len],
            Block::Theirs(owner) => owner.bytes(),
        }
    }

    /// All bytes, to be written, where nobody else uses them and they are ours.
    pub(crate) fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match Arc::get_mut(&mut self.0)? {
            Block::Ours { memory, len } => Some(&mut memory.bytes_mut()[..*len]),
            Block::Theirs(_) => None,
        }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes().len())
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
