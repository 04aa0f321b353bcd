//! A pool of buffers for programs that manage them themselves.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bessemer_hal::Buffer;

use super::MetalBackend;
use crate::metal::Metal;
use crate::{DType, Result, Shape};

/// Buffers that are used again instead of being allocated anew. They come from the pool that tensors of the
/// device use, and count against its limit ([`crate::Device::set_memory_limit`]).
#[derive(Clone)]
pub struct MetalMemoryPool {
    metal: Arc<Metal>,
}

impl MetalMemoryPool {
    /// The pool of a backend's device.
    pub fn new(backend: &MetalBackend) -> Self {
        Self {
            metal: Arc::clone(&backend.metal),
        }
    }

    /// A shared buffer of at least so many bytes, with arbitrary contents. It goes back when it is dropped.
    ///
    /// # Errors
    /// [`crate::Error::OutOfMemory`].
    pub fn acquire(&self, bytes: usize) -> Result<PooledBuffer> {
        let buffer = self
            .metal
            .pool
            .take_idle(&self.metal.stream, "acquire", bytes)?;
        Ok(PooledBuffer {
            metal: Arc::clone(&self.metal),
            buffer,
        })
    }

    /// Gives all buffers that nobody uses back to the system.
    pub fn clear(&self) {
        self.metal.pool.clear_cache();
    }

    /// The numbers now.
    pub fn stats(&self) -> MetalMemoryPoolStats {
        let stats = self.metal.pool.stats();
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

/// A buffer of a [`MetalMemoryPool`].
pub struct PooledBuffer {
    metal: Arc<Metal>,
    buffer: Buffer,
}

impl Deref for PooledBuffer {
    type Target = Buffer;

    fn deref(&self) -> &Buffer {
        &self.buffer
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        // What was recorded for it is on its way; the buffer itself knows of that.
        self.metal.pool.give_back(self.buffer.clone(), None);
    }
}

impl fmt::Debug for PooledBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PooledBuffer({} bytes)", self.buffer.length())
    }
}

/// What a pool holds, in bytes, and how well it serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetalMemoryPoolStats {
    /// In use or kept.
    pub total: usize,
    /// In use.
    pub in_use: usize,
    /// Kept for the next.
    pub pooled: usize,
    /// Buffers, in use or kept.
    pub buffers: usize,
    /// Requests that a kept buffer served.
    pub hits: usize,
    /// Requests that needed a new one.
    pub misses: usize,
}

impl MetalMemoryPoolStats {
    /// The part of requests that a kept buffer served.
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

/// Bytes of a tensor.
pub fn compute_tensor_bytes(shape: &Shape, dtype: DType) -> usize {
    shape.count() * dtype.size()
}

/// The smallest power of two that is not below `n`, and [`usize::MAX`] where there is none. The pool itself
/// rounds less: to eighths between powers of two.
pub const fn round_up_power_of_2(n: usize) -> usize {
    match n.checked_next_power_of_two() {
        Some(power) => power,
        None => usize::MAX,
    }
}
