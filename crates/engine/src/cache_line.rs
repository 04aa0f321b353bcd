//! Cache lines of the processor: their size, and memory that starts at one.

/// Bytes of a cache line, and of the widest vector.
pub(crate) const CACHE_LINE_BYTES: usize = 64;

/// A cache line.
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(crate) struct CacheLine([u8; CACHE_LINE_BYTES]);
