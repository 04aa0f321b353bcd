//! GPU memory.
#![expect(
    unsafe_code,
    reason = "shares Metal's buffers between threads, clears fresh memory, adopts the caller's memory"
)]

use std::ffi::c_void;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use block2::RcBlock;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::{NSRange, NSString};
use objc2_metal::{MTLBuffer, MTLDevice, MTLResource, MTLResourceOptions, MTLStorageMode};

use super::residency::Residency;
use crate::driver::{self, Contents, HostMemory, Owner};
use crate::storage::StorageMode;

/// Alignment in bytes of the offsets and lengths of a blit on a Mac.
pub(super) const BLIT_ALIGNMENT_BYTES: usize = 4;

/// A buffer.
#[derive(Debug)]
pub(super) struct Buffer {
    raw: Retained<ProtocolObject<dyn MTLBuffer>>,
    /// The residency sets to remove it from when it is dropped, and the index of its set.
    residency: Option<(Arc<Residency>, usize)>,
    /// Private memory that no commands have cleared yet.
    blank: AtomicBool,
    /// Owner of adopted memory of length 0, which is not passed to Metal.
    _owner: Option<Owner>,
}

// SAFETY: Metal allows buffers to be used and released on any thread. Their bytes are accessed through
// the front's slices and through commands, which the front synchronises.
unsafe impl Send for Buffer {}
// SAFETY: as above; the methods used here (label, contents, didModifyRange) may be called from any
// thread, and the front serialises the last.
unsafe impl Sync for Buffer {}

/// Metal's options for a storage mode; `None` if the system does not have the mode.
///
/// Hazards between encoders and command buffers are left to Metal's tracking; the front inserts barriers for those
/// inside an encoder.
pub(super) fn options(mode: StorageMode) -> Option<MTLResourceOptions> {
    match mode {
        StorageMode::Shared => Some(MTLResourceOptions::StorageModeShared),
        StorageMode::Private => Some(MTLResourceOptions::StorageModePrivate),
        StorageMode::Managed => {
            cfg!(target_os = "macos").then_some(MTLResourceOptions::StorageModeManaged)
        }
    }
}

impl Buffer {
    /// Allocates memory; `None` if Metal is out of memory.
    ///
    /// Metal does not guarantee that fresh memory is zero. If zeros are requested, the host clears memory that it can
    /// access; private memory is cleared by the first commands that use the buffer.
    pub(super) fn allocate(
        device: &ProtocolObject<dyn MTLDevice>,
        length: usize,
        options: MTLResourceOptions,
        contents: Contents,
        residency: Option<&Arc<Residency>>,
    ) -> Option<Self> {
        // Metal has no empty buffers, and a blit on a Mac fills whole words.
        let length = length.max(1).next_multiple_of(BLIT_ALIGNMENT_BYTES);
        let raw = device.newBufferWithLength_options(length, options)?;
        let buffer = Self::new(raw, residency, None);
        if contents == Contents::Unspecified {
            return Some(buffer);
        }
        match buffer.raw.storageMode() {
            MTLStorageMode::Private => buffer.blank.store(true, Ordering::Relaxed),
            mode => {
                let bytes = buffer.raw.contents().cast::<u8>();
                // SAFETY: the memory has `length` bytes and is not shared yet.
                unsafe { bytes.write_bytes(0, length) };
                if mode == MTLStorageMode::Managed {
                    buffer.raw.didModifyRange(NSRange::new(0, length));
                }
            }
        }
        Some(buffer)
    }

    /// Makes a buffer of the caller's memory; `None` when Metal refuses it.
    pub(super) fn adopt(
        device: &ProtocolObject<dyn MTLDevice>,
        memory: HostMemory,
        residency: Option<&Arc<Residency>>,
    ) -> Option<Self> {
        let HostMemory {
            pointer,
            length,
            owner,
        } = memory;
        let options = MTLResourceOptions::StorageModeShared;
        if length == 0 {
            let raw = device.newBufferWithLength_options(BLIT_ALIGNMENT_BYTES, options)?;
            return Some(Self::new(raw, residency, Some(owner)));
        }
        let owner = Mutex::new(Some(owner));
        let deallocator = RcBlock::new(move |_: NonNull<c_void>, _: usize| {
            drop(owner.lock().unwrap_or_else(PoisonError::into_inner).take());
        });
        // SAFETY: the front checked that address and length are whole pages, and the caller that made the
        // `HostMemory` promised that the memory stays valid until the owner is dropped, which the
        // deallocator does. It captures only the owner, which is `Send`, so that Metal may call and
        // release it on any thread.
        let raw = unsafe {
            device.newBufferWithBytesNoCopy_length_options_deallocator(
                pointer.cast(),
                length,
                options,
                Some(&deallocator),
            )
        }?;
        Some(Self::new(raw, residency, None))
    }

    fn new(
        raw: Retained<ProtocolObject<dyn MTLBuffer>>,
        residency: Option<&Arc<Residency>>,
        owner: Option<Owner>,
    ) -> Self {
        let residency = residency.and_then(|r| Some((r.clone(), r.add(&raw)?)));
        Self {
            raw,
            residency,
            blank: AtomicBool::new(false),
            _owner: owner,
        }
    }

    /// Metal's buffer.
    pub(super) fn raw(&self) -> &ProtocolObject<dyn MTLBuffer> {
        &self.raw
    }

    /// Returns whether commands must clear the memory before they use it.
    pub(super) fn is_blank(&self) -> bool {
        self.blank.load(Ordering::Relaxed)
    }

    /// Records that commands which clear the memory precede all others that use it.
    pub(super) fn set_cleared(&self) {
        self.blank.store(false, Ordering::Relaxed);
    }
}

impl driver::Buffer for Buffer {
    fn contents(&self) -> Option<NonNull<u8>> {
        (self.raw.storageMode() != MTLStorageMode::Private).then(|| self.raw.contents().cast())
    }

    fn did_modify_range(&self, range: Range<usize>) {
        if !range.is_empty() {
            self.raw
                .didModifyRange(NSRange::new(range.start, range.len()));
        }
    }

    fn set_label(&self, label: &str) {
        autoreleasepool(|_| self.raw.setLabel(Some(&NSString::from_str(label))));
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some((residency, set)) = &self.residency {
            autoreleasepool(|_| residency.remove(&self.raw, *set));
        }
    }
}
