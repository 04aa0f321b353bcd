//! The memory of tensors: limits, statistics, and a cache of freed blocks.
//!
//! A block that a tensor lets go is kept for the next tensor of about its size, because fresh memory
//! costs more than most ops: the system has to clear every page of it. Small blocks are left to the
//! allocator of the process, which is quick with them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::env;
use crate::storage::Memory;
use crate::{Error, Result};

/// Blocks below this many bytes are not cached: clearing them costs no more than a look into the cache.
const SMALL: usize = 256;

/// Sizes of blocks that a doubling is cut into.
const STEPS: usize = 8;

/// Sizes of blocks that are cached, from [`SMALL`] to the whole address space.
const CLASSES: usize = (usize::BITS - SMALL.ilog2()) as usize * STEPS;

/// What the memory of tensors looks like at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Blocks that exist, in use or kept; small ones of the CPU are not counted.
    pub buffers: usize,
    /// Bytes in use by tensors.
    pub in_use: usize,
    /// The most bytes that were in use at once.
    pub peak: usize,
    /// Bytes of freed blocks kept for reuse.
    pub cached: usize,
    /// Blocks that came from the cache.
    pub hits: usize,
    /// Blocks, of a size worth caching, that had to come from the system.
    pub misses: usize,
}

impl Stats {
    /// Bytes in use or kept for reuse.
    pub const fn allocated(&self) -> usize {
        self.in_use + self.cached
    }

    /// The part of requests that the cache could serve.
    pub fn hit_rate(&self) -> f64 {
        match self.hits + self.misses {
            0 => 0.0,
            all => self.hits as f64 / all as f64,
        }
    }
}

/// How near to its limit a memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pressure {
    /// Less than 60 % in use.
    Low,
    /// Less than 80 %.
    Medium,
    /// Less than 95 %.
    High,
    /// Nearly all.
    Critical,
}

impl Pressure {
    pub(crate) fn of(in_use: usize, limit: usize) -> Self {
        match in_use as f64 / limit.max(1) as f64 {
            part if part < 0.6 => Self::Low,
            part if part < 0.8 => Self::Medium,
            part if part < 0.95 => Self::High,
            _ => Self::Critical,
        }
    }
}

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// 0 before it was looked up.
static LIMIT: AtomicUsize = AtomicUsize::new(0);
static CACHE: Mutex<Cache> = Mutex::new(Cache::new());

struct Cache {
    /// Free blocks, for each of the sizes of [`size_class`]. The last one that was freed is the first to be
    /// used again: it may still be in a cache of the processor.
    free: [Vec<Memory>; CLASSES],
    bytes: usize,
    /// Blocks of a size worth caching that exist, here or in use.
    blocks: usize,
    limit: Option<usize>,
    hits: usize,
    misses: usize,
}

impl Cache {
    const fn new() -> Self {
        Self {
            free: [const { Vec::new() }; CLASSES],
            bytes: 0,
            blocks: 0,
            limit: None,
            hits: 0,
            misses: 0,
        }
    }

    fn take(&mut self, size: usize) -> Option<Memory> {
        let block = self.free[class(size)].pop()?;
        self.bytes -= size;
        Some(block)
    }

    fn put(&mut self, memory: Memory) {
        self.bytes += memory.len();
        self.free[class(memory.len())].push(memory);
    }

    /// Frees the largest blocks until at most `limit` bytes are kept; they are returned so that they are
    /// freed without the lock.
    fn trim(&mut self, limit: usize) -> Vec<Memory> {
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
        gone
    }
}

fn cache() -> MutexGuard<'static, Cache> {
    CACHE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The numbers now.
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

/// Counts the peak anew from what is in use now.
pub fn reset_peak() {
    PEAK.store(IN_USE.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// Tensors may use this many bytes from now on; beyond it an op is an [`Error::OutOfMemory`]. What is in
/// use stays. The default is the memory of the machine, so that a size gone wrong is an error here and
/// not the end of the process. Returns the limit before.
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

/// Keeps at most this many bytes of freed blocks from now on. Returns the limit before.
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

/// Gives all freed blocks back to the system.
pub fn clear_cache() {
    let gone = cache().trim(0);
    drop(gone);
}

fn default_cache_limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| env::cache_limit().unwrap_or_else(|| machine_memory() / 4))
}

/// Bytes of memory in this machine, or the largest number where nobody says.
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

/// A size that blocks are cut to, so that freed ones fit again: the next of eight steps a doubling, at
/// most an eighth more than asked for.
fn size_class(len: usize) -> usize {
    if len < SMALL {
        return len;
    }
    let step = (1_usize << len.ilog2()) / STEPS;
    len.checked_next_multiple_of(step).unwrap_or(len)
}

/// The number of a size that is cached.
fn class(size: usize) -> usize {
    let doubling = size.ilog2();
    let step = (size - (1 << doubling)) / ((1 << doubling) / STEPS);
    (doubling - SMALL.ilog2()) as usize * STEPS + step
}

/// Memory of at least `len` bytes, all of them initialised, with arbitrary contents.
pub(crate) fn allocate(op: &'static str, len: usize) -> Result<Memory> {
    let size = size_class(len);
    let limit = memory_limit();
    let in_use = IN_USE.fetch_add(size, Ordering::Relaxed) + size;
    let fail = || {
        let in_use = IN_USE.fetch_sub(size, Ordering::Relaxed) - size;
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
    if size >= SMALL {
        let mut cache = cache();
        if let Some(block) = cache.take(size) {
            cache.hits += 1;
            return Ok(block);
        }
        cache.misses += 1;
        // What is kept counts too: a machine has its memory only once.
        let gone = cache.trim(limit.saturating_sub(in_use));
        drop(cache);
        drop(gone);
    }
    let memory = Memory::new(size)
        .or_else(|| {
            clear_cache();
            Memory::new(size)
        })
        .ok_or_else(fail)?;
    if size >= SMALL {
        cache().blocks += 1;
    }
    Ok(memory)
}

/// Takes memory back.
pub(crate) fn release(memory: Memory) {
    let size = memory.len();
    IN_USE.fetch_sub(size, Ordering::Relaxed);
    if size < SMALL {
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
    fn every_size_has_a_class_of_its_own() {
        let mut before = None;
        let mut size = SMALL;
        loop {
            assert_eq!(size_class(size), size);
            assert_eq!(size_class(size - 1).max(SMALL), size);
            let this = class(size);
            assert!(this < CLASSES && before.is_none_or(|b| b + 1 == this));
            before = Some(this);
            match size_class(size + 1) {
                next if next > size && next < isize::MAX as usize => size = next,
                _ => break,
            }
        }
        // What no class has cannot be allocated, but has a number all the same.
        assert!(class(usize::MAX) < CLASSES);
    }
}
