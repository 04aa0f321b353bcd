//! Buffer pool.

use std::fmt;

use bessemer::external::PooledBuffer;
use bessemer::{DType, Device, Result, Shape};

use super::MetalBackend;
use crate::backend::Backend as _;

/// Reuses buffers instead of allocating them again. They come from the pool that tensors of the device use, and count
/// against its limit ([`Device::set_memory_limit`]).
#[derive(Clone)]
pub struct MetalMemoryPool {
    device: Device,
}

impl MetalMemoryPool {
    /// The pool of a backend's device.
    pub fn new(backend: &MetalBackend) -> Self {
        Self {
            device: backend.device().clone(),
        }
    }

    /// A shared buffer of at least `bytes` bytes, with arbitrary contents. Dropping it returns it to the pool.
    ///
    /// # Errors
    /// [`bessemer::Error::OutOfMemory`].
    pub fn acquire(&self, bytes: usize) -> Result<PooledBuffer> {
        PooledBuffer::new(&self.device, "acquire", bytes)
    }

    /// Returns all unused buffers to the system.
    pub fn clear(&self) {
        self.device.clear_cache();
    }

    /// Current statistics.
    pub fn stats(&self) -> MetalMemoryPoolStats {
        let stats = self.device.memory();
        MetalMemoryPoolStats {
            total: stats.allocated(),
            in_use: stats.in_use,
            pooled: stats.cached,
            buffers: stats.buffers,
            hits: stats.hits,
            misses: stats.misses,
        }
    }
}

impl fmt::Debug for MetalMemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetalMemoryPool({})", self.stats())
    }
}

/// Statistics of a [`MetalMemoryPool`]; sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetalMemoryPoolStats {
    /// Bytes in use or pooled.
    pub total: usize,
    /// Bytes in use.
    pub in_use: usize,
    /// Bytes pooled for reuse.
    pub pooled: usize,
    /// Buffers in use or pooled.
    pub buffers: usize,
    /// Requests served from the pool.
    pub hits: usize,
    /// Requests that allocated a new buffer.
    pub misses: usize,
}

impl MetalMemoryPoolStats {
    /// Fraction of requests served from the pool.
    pub fn hit_rate(&self) -> f64 {
        match self.hits + self.misses {
            0 => 0.0,
            all => self.hits as f64 / all as f64,
        }
    }
}

impl fmt::Display for MetalMemoryPoolStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} B in {} buffers, {} B in use, {} B pooled, {:.0} % of {} requests served from the pool",
            self.total,
            self.buffers,
            self.in_use,
            self.pooled,
            100.0 * self.hit_rate(),
            self.hits + self.misses,
        )
    }
}

/// Size of a tensor in bytes.
pub fn compute_tensor_bytes(shape: &Shape, dtype: DType) -> usize {
    shape.count() * dtype.size()
}

/// The smallest power of two that is at least `n`, saturating at [`usize::MAX`]. The pool itself rounds more finely: to
/// eighths between powers of two.
pub const fn round_up_power_of_2(n: usize) -> usize {
    match n.checked_next_power_of_two() {
        Some(power) => power,
        None => usize::MAX,
    }
}
