//! Memory pool of a Metal device: buffers by size class, with limits and statistics.
//!
//! A buffer that a value releases is kept for the next one of about its size. Kernels that still use it are no
//! obstacle: what is recorded later runs later. The host must not write into such a buffer, though, and requests an
//! idle one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bessemer_hal::{self as hal, Buffer, StorageMode};

use super::stream::{Batch, Stream};
use crate::memory::{Pressure, Stats};
use crate::{Error, Result};

/// Label of buffers in GPU tools: they are reused for one value after the other.
const BUFFER_LABEL: &str = "tensor";

/// Minimum size of a buffer.
const MIN_BUFFER_BYTES: usize = 256;

struct FreeBuffer {
    buffer: Buffer,
    /// The last batch that uses it, if it may not have run.
    batch: Option<Arc<Batch>>,
}

#[derive(Default)]
struct PoolState {
    free: BTreeMap<usize, Vec<FreeBuffer>>,
    stats: Stats,
    limit: usize,
    cache_limit: usize,
}

/// The buffer pool of a device.
pub(crate) struct BufferPool {
    device: hal::Device,
    state: Mutex<PoolState>,
}

/// Rounds a size up so that freed buffers fit again: to the next of eight steps per doubling.
fn size_class(len: usize) -> usize {
    let len = len.max(MIN_BUFFER_BYTES);
    let step = 1_usize << (len.ilog2() - 3);
    len.checked_next_multiple_of(step).unwrap_or(len)
}

impl PoolState {
    /// Removes buffers, the largest first, until at most `limit` bytes are cached.
    fn trim(&mut self, limit: usize) -> Vec<FreeBuffer> {
        let mut released = Vec::new();
        while self.stats.cached > limit
            && let Some(mut entry) = self.free.last_entry()
        {
            let size = *entry.key();
            if let Some(free) = entry.get_mut().pop() {
                released.push(free);
                self.stats.cached -= size;
                self.stats.buffers -= 1;
            }
            if entry.get().is_empty() {
                entry.remove();
            }
        }
        if !released.is_empty() {
            event!(
                DEBUG,
                "memory cache trimmed",
                blocks = released.len(),
                limit = limit
            );
        }
        released
    }

    fn find(&mut self, size: usize, idle: bool) -> Option<FreeBuffer> {
        let list = self.free.get_mut(&size)?;
        let usable = |free: &FreeBuffer| !idle || free.batch.as_ref().is_none_or(|b| b.has_run());
        let at = list.iter().rposition(usable)?;
        let free = list.swap_remove(at);
        if list.is_empty() {
            self.free.remove(&size);
        }
        self.stats.cached -= size;
        Some(free)
    }
}

impl BufferPool {
    pub(super) fn new(device: hal::Device) -> Self {
        let limit = device.info().recommended_working_set;
        Self {
            state: Mutex::new(PoolState {
                limit,
                cache_limit: limit / 2,
                ..PoolState::default()
            }),
            device,
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer for kernels to write, and the last batch that uses it, which may not have run.
    pub(super) fn take(
        &self,
        stream: &Stream,
        op: &'static str,
        len: usize,
    ) -> Result<(Buffer, Option<Arc<Batch>>)> {
        let free = self.find(stream, op, len, false)?;
        Ok((free.buffer, free.batch))
    }

    /// A buffer that nothing in flight uses, for the host to write.
    pub(crate) fn take_idle(
        &self,
        stream: &Stream,
        op: &'static str,
        len: usize,
    ) -> Result<Buffer> {
        let buffer = self.find(stream, op, len, true)?.buffer;
        // The contents are arbitrary anyway, and readers of the earlier ones were told of a failure.
        let _ = buffer.take_failure();
        Ok(buffer)
    }

    fn find(
        &self,
        stream: &Stream,
        op: &'static str,
        len: usize,
        idle: bool,
    ) -> Result<FreeBuffer> {
        let size = size_class(len);
        let released = {
            let mut state = self.lock();
            if let Some(free) = state.find(size, idle) {
                state.stats.hits += 1;
                state.use_more(size);
                event!(TRACE, "memory reused", bytes = size);
                return Ok(free);
            }
            state.stats.misses += 1;
            let (limit, in_use) = (state.limit, state.stats.in_use);
            if in_use.saturating_add(size) > limit {
                return Err(state.out_of_memory(op, len));
            }
            // Cached buffers count too: they share the memory of the machine.
            state.trim(limit - in_use - size)
        };
        drop(released);
        event!(TRACE, "memory allocated", bytes = size);
        let buffer = self
            .device
            .buffer_uninit(size, StorageMode::Shared)
            .or_else(|error| {
                if !matches!(error, hal::Error::OutOfMemory { .. }) {
                    return Err(error);
                }
                event!(
                    DEBUG,
                    "the device is out of memory: clearing the cache",
                    bytes = size
                );
                // The cache, and buffers that only work in flight still uses, may be enough.
                self.clear_cache();
                let _ = stream.synchronize();
                self.device.buffer_uninit(size, StorageMode::Shared)
            });
        let mut state = self.lock();
        match buffer {
            Ok(buffer) => {
                buffer.set_label(BUFFER_LABEL);
                state.stats.buffers += 1;
                state.use_more(size);
                Ok(FreeBuffer {
                    buffer,
                    batch: None,
                })
            }
            Err(hal::Error::OutOfMemory { .. }) => Err(state.out_of_memory(op, len)),
            Err(error) => Err(Error::device(op, error)),
        }
    }

    /// Takes a buffer back; `batch` is its last user.
    pub(crate) fn give_back(&self, buffer: Buffer, batch: Option<Arc<Batch>>) {
        let size = buffer.length();
        let mut state = self.lock();
        state.stats.in_use -= size;
        state.stats.cached += size;
        state
            .free
            .entry(size)
            .or_default()
            .push(FreeBuffer { buffer, batch });
        let limit = state.cache_limit;
        let released = state.trim(limit);
        drop(state);
        drop(released);
    }

    /// The current statistics.
    pub(crate) fn stats(&self) -> Stats {
        self.lock().stats
    }

    /// Restarts the peak at the current use.
    pub(crate) fn reset_peak(&self) {
        let mut state = self.lock();
        state.stats.peak = state.stats.in_use;
    }

    /// Memory pressure: the use relative to the limit.
    pub(crate) fn pressure(&self) -> Pressure {
        let state = self.lock();
        Pressure::of(state.stats.in_use, state.limit)
    }

    /// Sets the limit of memory in use; returns the previous one.
    pub(crate) fn set_limit(&self, bytes: usize) -> usize {
        std::mem::replace(&mut self.lock().limit, bytes)
    }

    /// Sets the limit of cached memory; returns the previous one.
    pub(crate) fn set_cache_limit(&self, bytes: usize) -> usize {
        let mut state = self.lock();
        let before = std::mem::replace(&mut state.cache_limit, bytes);
        let released = state.trim(bytes);
        drop(state);
        drop(released);
        before
    }

    /// Releases all cached buffers to the system.
    pub(crate) fn clear_cache(&self) {
        let released = self.lock().trim(0);
        drop(released);
    }
}

impl PoolState {
    fn use_more(&mut self, size: usize) {
        let before = Pressure::of(self.stats.in_use, self.limit);
        self.stats.in_use += size;
        let pressure = Pressure::of(self.stats.in_use, self.limit);
        if cfg!(feature = "tracing") && pressure > before {
            event!(
                DEBUG,
                "memory pressure",
                level = format_args!("{pressure:?}")
            );
        }
        self.stats.peak = self.stats.peak.max(self.stats.in_use);
    }

    fn out_of_memory(&self, op: &'static str, requested: usize) -> Error {
        event!(
            WARN,
            "out of memory",
            op = op,
            bytes = requested,
            in_use = self.stats.in_use,
            limit = self.limit
        );
        Error::OutOfMemory {
            op,
            requested,
            in_use: self.stats.in_use,
            limit: self.limit,
        }
    }
}
