//! The memory of a launch, as threads that run its blocks access it.
//!
//! A program may race: two lanes may access the same bytes, one of them writing, without a barrier between them. That must
//! not be undefined behaviour, so bytes that a launch may write while several threads run it are accessed through relaxed
//! atomics: all accesses of a buffer have one width if the program's do, and are single bytes otherwise. Such a program reads
//! the old or the new bytes of each access. All other bytes are copied like slices.
#![expect(
    unsafe_code,
    reason = "lanes on several threads access the same buffers, which the launch borrows exclusively"
)]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::lowering::{HandleSource, MemoryAccess, MemorySpace};
use crate::program::{BufferBytes, FaultKind, MemoryView};

/// How the bytes of a region are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessWidth {
    /// As slices: no other thread writes them meanwhile, and if one reads them, nobody writes them.
    Slices,
    /// As slices that are only read.
    ReadOnly,
    /// As atomics of so many bytes, which divide the size and the offset of every access.
    Atomics(usize),
}

/// The bytes of a buffer, a pool, or shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryBytes<'m> {
    start: *mut u8,
    len: usize,
    width: AccessWidth,
    borrow: PhantomData<&'m ()>,
}

// SAFETY: bytes that several threads may access while one of them writes are accessed through atomics only (`Table::new`).
unsafe impl Send for MemoryBytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for MemoryBytes<'_> {}

impl<'m> MemoryBytes<'m> {
    /// Bytes that one thread accesses.
    pub(super) fn exclusive(bytes: &'m mut [u8]) -> Self {
        Self::new(bytes, AccessWidth::Slices)
    }

    fn new(bytes: &'m mut [u8], width: AccessWidth) -> Self {
        Self {
            start: bytes.as_mut_ptr(),
            len: bytes.len(),
            width,
            borrow: PhantomData,
        }
    }

    /// Bytes that nobody writes.
    const fn shared(bytes: &'m [u8]) -> Self {
        Self {
            start: bytes.as_ptr().cast_mut(),
            len: bytes.len(),
            width: AccessWidth::ReadOnly,
            borrow: PhantomData,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the bytes may be written.
    pub(super) fn is_writable(&self) -> bool {
        self.width != AccessWidth::ReadOnly
    }

    /// Position of an access of `bytes` bytes at `offset`, if it is inside.
    pub(super) fn position(&self, offset: u64, bytes: usize) -> Option<usize> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(bytes)?;
        (end <= self.len).then_some(start)
    }

    /// Reads from a position on. Positions and lengths are multiples of the size of the elements.
    ///
    /// # Panics
    /// If the range is out of bounds.
    #[inline]
    pub(super) fn load(&self, position: usize, to: &mut [u8]) {
        assert!(position <= self.len && to.len() <= self.len - position);
        // SAFETY: the position is inside the bytes.
        let from = unsafe { self.start.add(position) };
        macro_rules! atomics {
            ($atomic:ident, $bytes:literal) => {
                for (i, to) in to.as_chunks_mut::<$bytes>().0.iter_mut().enumerate() {
                    // SAFETY: the range was checked, the bytes are borrowed exclusively by the launch, whose threads all
                    // access them through this type, and `AccessTable` has checked that they are aligned.
                    let from = unsafe { $atomic::from_ptr(from.add(i * $bytes).cast()) };
                    *to = from.load(Relaxed).to_ne_bytes();
                }
            };
        }
        match self.width {
            // SAFETY: the range was checked, nobody writes these bytes meanwhile, and `to` is a slice of other memory.
            AccessWidth::Slices | AccessWidth::ReadOnly => unsafe {
                std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len());
            },
            AccessWidth::Atomics(8) => atomics!(AtomicU64, 8),
            AccessWidth::Atomics(4) => atomics!(AtomicU32, 4),
            AccessWidth::Atomics(2) => atomics!(AtomicU16, 2),
            AccessWidth::Atomics(_) => atomics!(AtomicU8, 1),
        }
    }

    /// Writes from a position on. Positions and lengths are multiples of the size of the elements.
    ///
    /// # Panics
    /// If the range is out of bounds, or the bytes are only read.
    #[inline]
    pub(super) fn store(&self, position: usize, from: &[u8]) {
        assert!(position <= self.len && from.len() <= self.len - position);
        assert!(self.width != AccessWidth::ReadOnly);
        // SAFETY: the position is inside the bytes.
        let to = unsafe { self.start.add(position) };
        macro_rules! atomics {
            ($atomic:ident, $type:ident, $bytes:literal) => {
                for (i, from) in from.as_chunks::<$bytes>().0.iter().enumerate() {
                    // SAFETY: as in `load`.
                    let to = unsafe { $atomic::from_ptr(to.add(i * $bytes).cast()) };
                    to.store($type::from_ne_bytes(*from), Relaxed);
                }
            };
        }
        match self.width {
            // SAFETY: the range was checked, no other thread accesses these bytes meanwhile, and `from` is a slice of other
            // memory.
            AccessWidth::Slices => unsafe {
                std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len());
            },
            AccessWidth::ReadOnly => {}
            AccessWidth::Atomics(8) => atomics!(AtomicU64, u64, 8),
            AccessWidth::Atomics(4) => atomics!(AtomicU32, u32, 4),
            AccessWidth::Atomics(2) => atomics!(AtomicU16, u16, 2),
            AccessWidth::Atomics(_) => atomics!(AtomicU8, u8, 1),
        }
    }
}

/// All buffers and pools of a launch.
#[derive(Debug)]
pub(super) struct AccessTable<'m> {
    buffers: Vec<(u64, MemoryBytes<'m>)>,
    pools: Vec<(u64, MemoryBytes<'m>)>,
}

impl<'m> AccessTable<'m> {
    /// Decides how each buffer and pool is accessed by a program that is run by one thread or several. `handle` is the value
    /// of a handle that is the same for all lanes.
    pub(super) fn new(
        view: MemoryView<'m>,
        accesses: &[MemoryAccess],
        handle: impl Fn(HandleSource) -> Option<u64>,
        is_parallel: bool,
    ) -> Self {
        let exclusive = |space: MemorySpace, number: u64, bytes: &'m mut [u8]| {
            let reaches = |a: &&MemoryAccess| {
                a.space == space && handle(a.handle).is_none_or(|h| h == number)
            };
            let is_written = accesses.iter().filter(reaches).any(|a| a.is_store);
            let width = if is_parallel && is_written {
                AccessWidth::Atomics(common_width(accesses.iter().filter(reaches), bytes))
            } else {
                AccessWidth::Slices
            };
            (number, MemoryBytes::new(bytes, width))
        };
        let buffers = view.buffers.into_iter().map(|(number, bytes)| match bytes {
            BufferBytes::Shared(bytes) => (number, MemoryBytes::shared(bytes)),
            BufferBytes::Exclusive(bytes) => exclusive(MemorySpace::Buffer, number, bytes),
        });
        let pools = view.pools.into_iter();
        let pools = pools.map(|(number, bytes)| exclusive(MemorySpace::Pool, number, bytes));
        let mut table = Self {
            buffers: buffers.collect(),
            pools: pools.collect(),
        };
        table.buffers.sort_by_key(|(number, _)| *number);
        table.pools.sort_by_key(|(number, _)| *number);
        table
    }

    /// The bytes of a handle.
    pub(super) fn get(&self, space: MemorySpace, handle: u64) -> Option<MemoryBytes<'m>> {
        let all = match space {
            MemorySpace::Pool => &self.pools,
            MemorySpace::Buffer | MemorySpace::Shared => &self.buffers,
        };
        let found = all.binary_search_by_key(&handle, |(number, _)| *number);
        found.ok().map(|i| all[i].1)
    }
}

/// The size of all accesses if they have one and the bytes are aligned to it, otherwise 1.
fn common_width<'a>(accesses: impl Iterator<Item = &'a MemoryAccess>, bytes: &[u8]) -> usize {
    let mut width = None;
    for access in accesses {
        let size = access.dtype.size();
        if width.is_some_and(|w| w != size) {
            return 1;
        }
        width = Some(size);
    }
    let width = width.unwrap_or(1);
    if bytes.as_ptr().addr().is_multiple_of(width) {
        width
    } else {
        1
    }
}

/// The fault of a handle that does not exist.
pub(super) const fn invalid_handle(space: MemorySpace, handle: u64) -> FaultKind {
    match space {
        MemorySpace::Pool => FaultKind::InvalidPoolHandle(handle),
        MemorySpace::Buffer | MemorySpace::Shared => FaultKind::InvalidBufferHandle(handle),
    }
}

/// The fault of an access that is not inside the bytes of its handle.
pub(super) const fn out_of_bounds(
    space: MemorySpace,
    offset: u64,
    size: usize,
    available: usize,
) -> FaultKind {
    match space {
        MemorySpace::Buffer => FaultKind::BufferOutOfBounds {
            offset,
            size,
            buffer_size: available,
        },
        MemorySpace::Pool => FaultKind::PoolOutOfBounds {
            offset,
            size,
            pool_size: available,
        },
        MemorySpace::Shared => FaultKind::SharedOutOfBounds {
            offset,
            size,
            shared_size: available,
        },
    }
}
