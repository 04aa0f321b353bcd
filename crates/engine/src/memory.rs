//! The memory of tensors: limits, statistics, and a cache of freed blocks.
//!
//! A freed block is kept for the next tensor of about its size, because fresh memory costs more than most ops: the
//! system has to clear every page of it. Small blocks are left to the allocator of the process, which is fast with
//! them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::env;
use crate::storage::HeapBlock;
use crate::{Error, Result};

/// Blocks below this many bytes are not cached: clearing them costs no more than a cache lookup.
const MIN_CACHED_BYTES: usize = 256;

/// Size classes between a power of two and the next.
const CLASSES_PER_DOUBLING: usize = 8;

/// Number of size classes, from [`MIN_CACHED_BYTES`] to the whole address space.
const SIZE_CLASSES: usize =
    (usize::BITS - MIN_CACHED_BYTES.ilog2()) as usize * CLASSES_PER_DOUBLING;

/// Memory statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Blocks that exist, in use or cached; small ones of the CPU are not counted.
    pub buffers: usize,
    /// Bytes in use by tensors.
    pub in_use: usize,
    /// Maximum of [`Stats::in_use`].
    pub peak: usize,
    /// Bytes of freed blocks kept for reuse.
    pub cached: usize,
    /// Blocks that came from the cache.
    pub hits: usize,
    /// Blocks, of a size worth caching, that had to come from the system.
    pub misses: usize,
}

impl Stats {
    /// Bytes in use or cached.
    pub const fn allocated(&self) -> usize {
        self.in_use + self.cached
    }

    /// Fraction of cacheable requests that the cache satisfied.
    pub fn hit_rate(&self) -> f64 {
        match self.hits + self.misses {
            0 => 0.0,
            all => self.hits as f64 / all as f64,
        }
    }
}

/// Memory in use relative to the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pressure {
    /// Less than 60 % in use.
    Low,
    /// Less than 80 %.
    Medium,
    /// Less than 95 %.
    High,
    /// 95 % or more.
    Critical,
}

impl Pressure {
    pub(crate) fn of(in_use: usize, limit: usize) -> Self {
        match in_use as f64 / limit.max(1) as f64 {
            used if used < 0.6 => Self::Low,
            used if used < 0.8 => Self::Medium,
            used if used < 0.95 => Self::High,
            _ => Self::Critical,
        }
    }
}

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// 0 until it is determined.
static LIMIT: AtomicUsize = AtomicUsize::new(0);
static CACHE: Mutex<Cache> = Mutex::new(Cache::new());

struct Cache {
    /// Free blocks by class. The block that was freed last is reused first: it may still be in a cache of the
    /// processor.
    free: [Vec<HeapBlock>; SIZE_CLASSES],
    bytes: usize,
    /// Blocks of cacheable size that exist, here or in use.
    blocks: usize,
    limit: Option<usize>,
    hits: usize,
    misses: usize,
}

impl Cache {
    const fn new() -> Self {
        Self {
            free: [const { Vec::new() }; SIZE_CLASSES],
            bytes: 0,
            blocks: 0,
            limit: None,
            hits: 0,
            misses: 0,
        }
    }

    fn take(&mut self, size: usize) -> Option<HeapBlock> {
        let block = self.free[class(size)].pop()?;
        self.bytes -= size;
        Some(block)
    }

    fn put(&mut self, memory: HeapBlock) {
        self.bytes += memory.len();
        self.free[class(memory.len())].push(memory);
    }

    /// Removes the largest blocks until at most `limit` bytes are cached. The blocks are returned, so that they are
    /// freed without the lock.
    fn trim(&mut self, limit: usize) -> Vec<HeapBlock> {
        let mut gone = Vec::new();
        if self.bytes <= limit {
            return gone;
        }
        for list in self.free.iter_mut().rev() {
            while self.bytes > limit
                && let Some(block) = list.pop()
            {
                self.bytes -= block.len();
                gone.push(block);
            }
        }
        self.blocks -= gone.len();
        if !gone.is_empty() {
            event!(
                DEBUG,
                "memory cache trimmed",
                blocks = gone.len(),
                limit = limit
            );
        }
        gone
    }
}

fn cache() -> MutexGuard<'static, Cache> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The current statistics.
pub fn stats() -> Stats {
    let cache = cache();
    Stats {
        buffers: cache.blocks,
        in_use: IN_USE.load(Ordering::Relaxed),
        peak: PEAK.load(Ordering::Relaxed),
        cached: cache.bytes,
        hits: cache.hits,
        misses: cache.misses,
    }
}

/// Resets [`Stats::peak`] to the bytes in use now.
pub fn reset_peak() {
    PEAK.store(IN_USE.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Sets the limit in bytes for tensors; an op that exceeds it is an [`Error::OutOfMemory`]. Memory in use is kept. The
/// default is the memory of the machine, so that an absurd size is an error and does not kill the process. Returns the
/// previous limit.
pub fn set_memory_limit(bytes: usize) -> usize {
    let before = memory_limit();
    LIMIT.store(bytes.max(1), Ordering::Relaxed);
    before
}

/// The limit of [`set_memory_limit`].
pub fn memory_limit() -> usize {
    match LIMIT.load(Ordering::Relaxed) {
        0 => {
            let limit = machine_memory();
            LIMIT.store(limit, Ordering::Relaxed);
            limit
        }
        limit => limit,
    }
}

/// Sets the maximum number of bytes of freed blocks to keep. Returns the previous limit.
pub fn set_cache_limit(bytes: usize) -> usize {
    let mut cache = cache();
    let before = cache
        .limit
        .replace(bytes)
        .unwrap_or_else(default_cache_limit);
    let gone = cache.trim(bytes);
    drop(cache);
    drop(gone);
    before
}

/// Returns all cached blocks to the system.
pub fn clear_cache() {
    let gone = cache().trim(0);
    drop(gone);
}

fn default_cache_limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let set = env::settings().memory_cache_bytes;
        set.unwrap_or_else(|| machine_memory() / 4)
    })
}

/// Bytes of memory in this machine, or `isize::MAX` if unknown.
fn machine_memory() -> usize {
    static MEMORY: OnceLock<usize> = OnceLock::new();
    *MEMORY.get_or_init(|| {
        let kib = std::fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| {
                let line = text.lines().find(|l| l.starts_with("MemTotal:"))?;
                line.split_whitespace().nth(1)?.parse::<usize>().ok()
            });
        kib.map_or(isize::MAX as usize, |k| k << 10)
    })
}

/// Rounds a size up to its size class, so that freed blocks can be reused: at most an eighth more than requested.
fn size_class(len: usize) -> usize {
    if len < MIN_CACHED_BYTES {
        return len;
    }
    let step = (1_usize << len.ilog2()) / CLASSES_PER_DOUBLING;
    len.checked_next_multiple_of(step).unwrap_or(len)
}

/// The index of a size class.
fn class(size: usize) -> usize {
    let doubling = size.ilog2();
    let step = (size - (1 << doubling)) / ((1 << doubling) / CLASSES_PER_DOUBLING);
    (doubling - MIN_CACHED_BYTES.ilog2()) as usize * CLASSES_PER_DOUBLING + step
}

/// Memory of at least `len` bytes, all of them initialised, with arbitrary contents.
pub(crate) fn allocate(op: &'static str, len: usize) -> Result<HeapBlock> {
    let limit = memory_limit();
    if len > isize::MAX as usize {
        // Sums of sizes would overflow.
        return Err(Error::OutOfMemory {
            op,
            requested: len,
            in_use: IN_USE.load(Ordering::Relaxed),
            limit,
        });
    }
    let size = size_class(len);
    let in_use = IN_USE.fetch_add(size, Ordering::Relaxed) + size;
    let fail = || {
        let in_use = IN_USE.fetch_sub(size, Ordering::Relaxed) - size;
        event!(
            WARN,
            "out of memory",
            op = op,
            bytes = len,
            in_use = in_use,
            limit = limit
        );
        Error::OutOfMemory {
            op,
            requested: len,
            in_use,
            limit,
        }
    };
    if in_use > limit {
        return Err(fail());
    }
    if in_use > PEAK.load(Ordering::Relaxed) {
        PEAK.fetch_max(in_use, Ordering::Relaxed);
    }
    if size >= MIN_CACHED_BYTES {
        let mut cache = cache();
        if let Some(block) = cache.take(size) {
            cache.hits += 1;
            event!(TRACE, "memory reused", bytes = size);
            return Ok(block);
        }
        event!(
            TRACE,
            "memory allocated",
            bytes = size,
            in_use = in_use,
            pressure = format_args!("{:?}", Pressure::of(in_use, limit))
        );
        cache.misses += 1;
        // Cached bytes count against the limit too.
        let gone = cache.trim(limit.saturating_sub(in_use));
        drop(cache);
        drop(gone);
    }
    let memory = HeapBlock::new(size)
        .or_else(|| {
            clear_cache();
            HeapBlock::new(size)
        })
        .ok_or_else(fail)?;
    if size >= MIN_CACHED_BYTES {
        cache().blocks += 1;
    }
    Ok(memory)
}

/// Returns memory to the cache, or to the allocator.
pub(crate) fn release(memory: HeapBlock) {
    let size = memory.len();
    IN_USE.fetch_sub(size, Ordering::Relaxed);
    if size < MIN_CACHED_BYTES {
        return;
    }
    let mut cache = cache();
    cache.put(memory);
    let limit = cache.limit.unwrap_or_else(default_cache_limit);
    let gone = cache.trim(limit);
    drop(cache);
    drop(gone);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_are_numbered_in_order() {
        let mut before = None;
        let mut size = MIN_CACHED_BYTES;
        loop {
            assert_eq!(size_class(size), size);
            assert_eq!(size_class(size - 1).max(MIN_CACHED_BYTES), size);
            let this = class(size);
            assert!(this < SIZE_CLASSES && before.is_none_or(|b| b + 1 == this));
            before = Some(this);
            match size_class(size + 1) {
                next if next > size && next < isize::MAX as usize => size = next,
                _ => break,
            }
        }
        // The largest sizes cannot be allocated, but have an index in range.
        assert!(class(usize::MAX) < SIZE_CLASSES);
    }
}
