//! The KV cache of a sequence, and attention over it.
//!
//! Keys are stored in panels of [`LANES`] positions, `[head, panel, dim, LANES]`, so that a register holds one dimension
//! of several keys and scores need no horizontal addition; values are stored in rows, `[head, position, dim]`. Every
//! query of every head visits the positions in blocks of [`BLOCK_POSITIONS`], aligned to the first position, with an
//! online softmax. Results depend neither on the other queries of a call nor on threads: prefill in one step, token by
//! token or after a reused prefix is bit-identical.
#![expect(unsafe_code, reason = "tasks write to disjoint ranges of the result")]

#[cfg(target_arch = "x86_64")]
mod avx2;
mod q8;
#[cfg(test)]
mod tests;

use std::ops::Range;

use half::f16;
use half::vec::HalfBitsVecExt;

use crate::cpu::math::Math;
use crate::cpu::pool::{self, DisjointSlice};
use crate::cpu::row::{Float, Real};
use crate::cpu::simd::{self, Family, Isa, MulAdd, Task};
use crate::{Error, Result, try_vec};

const OP: &str = "attention";

/// Positions of a panel of keys.
const LANES: usize = 16;
/// Positions of a step of the online softmax.
const BLOCK_POSITIONS: usize = 64;
/// Queries that share loaded keys and values.
const TILE_QUERIES: usize = 4;
/// Queries of a task, counting heads.
const TASK_QUERIES: usize = 48;

/// The element type of a KV cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheType {
    /// `f32`: nothing is rounded.
    F32,
    /// `f16`: half the memory.
    #[default]
    F16,
    /// 8 bits and a scale for every 32 elements: about a quarter of the memory. The error of an element is up to 0.45 %
    /// of the largest magnitude in its group of 32.
    Q8_0,
}

impl CacheType {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::F32, Self::F16, Self::Q8_0];

    /// The name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Q8_0 => "q8_0",
        }
    }

    /// Bytes of an element, without scales.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::Q8_0 => 1,
        }
    }

    /// Bytes of a key or value of `dim` elements.
    pub const fn row_bytes(self, dim: usize) -> usize {
        match self {
            Self::F32 | Self::F16 => dim.saturating_mul(self.size()),
            Self::Q8_0 => dim.saturating_add(q8::groups(dim).saturating_mul(2)),
        }
    }
}

/// Keys and values.
enum KvStore {
    F32(Vec<f32>, Vec<f32>),
    F16(Vec<f16>, Vec<f16>),
    Q8(q8::Q8Store),
}

/// The keys and values of one layer for one sequence, with a fixed capacity. Positions may be overwritten: to go back, a
/// sequence continues from an earlier position.
pub struct KvCache {
    heads: usize,
    dim: usize,
    capacity: usize,
    store: KvStore,
}

impl std::fmt::Debug for KvCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "KvCache({} heads of {}, {} positions)",
            self.heads, self.dim, self.capacity
        )
    }
}

/// Arguments of [`KvCache::attend`]: attention of consecutive queries over a cache.
#[derive(Clone, Copy, Debug)]
pub struct Attend<'a> {
    /// `[queries, heads, dim]`; the number of heads is a multiple of the cache's.
    pub q: &'a [f32],
    /// Position of the first query.
    pub first: usize,
    /// Number of positions in the cache to attend to, starting at 0; queries past the end see all of them.
    pub len: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// Soft cap: replaces scores by `cap * tanh(score / cap)`.
    pub soft_cap: Option<f32>,
    /// Sliding window: number of positions that a query sees, including its own.
    pub window: Option<usize>,
    /// True if a query sees only its own and earlier positions.
    pub causal: bool,
}

impl KvCache {
    /// The capacity is a multiple of this.
    pub const CAPACITY_STEP_POSITIONS: usize = BLOCK_POSITIONS;

    /// An empty cache. On most systems, memory is not committed before it is written.
    pub fn new(kind: CacheType, heads: usize, dim: usize, positions: usize) -> Result<Self> {
        let capacity = positions
            .div_ceil(BLOCK_POSITIONS)
            .saturating_mul(BLOCK_POSITIONS);
        let count = heads.checked_mul(dim).and_then(|n| n.checked_mul(capacity));
        let Some(count) = count.filter(|n| (1..=isize::MAX as usize / 8).contains(n)) else {
            return Err(Error::SizeOverflow {
                op: OP,
                dims: vec![heads, dim, positions],
            });
        };
        let layout = KvLayout {
            heads,
            dim,
            capacity,
        };
        let store = match kind {
            CacheType::F32 => KvStore::F32(try_vec::zeros(OP, count)?, try_vec::zeros(OP, count)?),
            CacheType::F16 => KvStore::F16(zeros(count)?, zeros(count)?),
            CacheType::Q8_0 => KvStore::Q8(q8::Q8Store::new(layout)?),
        };
        Ok(Self {
            heads,
            dim,
            capacity,
            store,
        })
    }

    /// Maximum number of positions.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The element type.
    pub fn kind(&self) -> CacheType {
        match self.store {
            KvStore::F32(..) => CacheType::F32,
            KvStore::F16(..) => CacheType::F16,
            KvStore::Q8(_) => CacheType::Q8_0,
        }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        2 * self.heads * self.capacity * self.kind().row_bytes(self.dim)
    }

    fn layout(&self) -> KvLayout {
        KvLayout {
            heads: self.heads,
            dim: self.dim,
            capacity: self.capacity,
        }
    }

    /// Writes keys and values, `[positions, heads, dim]`, from position `first` on.
    ///
    /// # Panics
    /// If the positions exceed the capacity, or lengths do not match.
    pub fn write(&mut self, first: usize, k: &[f32], v: &[f32]) {
        let row = self.heads * self.dim;
        assert!(k.len() == v.len() && k.len().is_multiple_of(row));
        assert!(first + k.len() / row <= self.capacity, "the cache is full");
        let layout = self.layout();
        match &mut self.store {
            KvStore::F32(keys, values) => simd::run_narrow(WriteKv {
                layout,
                first,
                k,
                v,
                keys,
                values,
            }),
            KvStore::F16(keys, values) => simd::run_narrow(WriteKv {
                layout,
                first,
                k,
                v,
                keys,
                values,
            }),
            KvStore::Q8(store) => simd::run_narrow(q8::WriteQ8 {
                layout,
                first,
                k,
                v,
                store,
            }),
        }
    }

    /// Computes attention and writes it to `to`, `[queries, heads, dim]`.
    ///
    /// # Panics
    /// If lengths do not match.
    pub fn attend(&self, attend: &Attend<'_>, to: &mut [f32]) {
        assert_eq!(
            attend.q.len(),
            to.len(),
            "attend: queries and output differ in length"
        );
        assert!(
            attend.len <= self.capacity,
            "attend: positions exceed the capacity"
        );
        match &self.store {
            KvStore::F32(keys, values) => self.run(attend, |h| self.head(h, keys, values), to),
            KvStore::F16(keys, values) => self.run(attend, |h| self.head(h, keys, values), to),
            KvStore::Q8(store) => self.run(attend, |h| store.head(self.layout(), h), to),
        }
    }

    /// The keys and values of a head.
    fn head<'a, T>(&self, head: usize, keys: &'a [T], values: &'a [T]) -> (&'a [T], &'a [T]) {
        let size = self.capacity * self.dim;
        (&keys[head * size..][..size], &values[head * size..][..size])
    }

    fn run<K: KvView, V: KvView>(
        &self,
        a: &Attend<'_>,
        of_head: impl Fn(usize) -> (K, V) + Sync,
        to: &mut [f32],
    ) {
        let dim = self.dim;
        // Pairs of a query and a head, heads of one query first.
        let all = to.len() / dim;
        if all == 0 {
            return;
        }
        // The number of query heads follows from the lengths.
        let heads = a.heads(self);
        let group = heads / self.heads;
        let queries = all / heads;
        // With few queries, enough tasks for all threads; with many, tasks large enough to share keys.
        let step = (TASK_QUERIES / group).clamp(1, queries);
        let share = if queries == 1 && self.heads < pool::threads() {
            1
        } else {
            group
        };
        let blocks = queries.div_ceil(step);
        let per_head = group / share;
        let output = DisjointSlice::new(to);
        pool::run(self.heads * per_head * blocks, |task| {
            let (head, block) = (
                task % (self.heads * per_head),
                task / (self.heads * per_head),
            );
            let first = block * step;
            let count = step.min(queries - first);
            let rows = count * share;
            let (keys, values) = of_head(head / per_head);
            let len = rows * (2 * dim + BLOCK_POSITIONS + 2) + 2 * BLOCK_POSITIONS * dim;
            f32::with_scratch(len, |scratch| {
                simd::run_as(
                    Family::Attention,
                    CacheAttention {
                        attend: a,
                        dim,
                        first,
                        count,
                        heads,
                        first_head: head * share,
                        share,
                        keys,
                        values,
                        scratch,
                        to: &output,
                    },
                );
            });
        });
    }
}

impl Attend<'_> {
    fn heads(&self, cache: &KvCache) -> usize {
        // The last query is at position `len - 1`, in non-causal attention as well.
        let queries = self.len - self.first;
        let heads = self.q.len() / cache.dim / queries.max(1);
        assert!(
            heads * queries * cache.dim == self.q.len() && heads.is_multiple_of(cache.heads),
            "attend: the queries do not match the positions and the heads of the cache"
        );
        heads
    }

    /// The positions that the query at `position` sees.
    fn visible(&self, position: usize) -> Range<usize> {
        let end = if self.causal {
            (position + 1).min(self.len)
        } else {
            self.len
        };
        let start = self.window.map_or(0, |w| (position + 1).saturating_sub(w));
        start.min(end)..end
    }
}

fn zeros(count: usize) -> Result<Vec<f16>> {
    // Via `u16`, whose zeros the allocator provides without writing them.
    Ok(try_vec::zeros::<u16>(OP, count)?.reinterpret_into())
}

/// The dimensions of a cache.
#[derive(Clone, Copy)]
struct KvLayout {
    heads: usize,
    dim: usize,
    capacity: usize,
}

/// Writes keys and values, `[positions, heads, dim]`, from position `first` on.
struct WriteKv<'a, T> {
    layout: KvLayout,
    first: usize,
    k: &'a [f32],
    v: &'a [f32],
    keys: &'a mut [T],
    values: &'a mut [T],
}

impl<T: Float<Real = f32>> Task for WriteKv<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let KvLayout {
            heads,
            dim,
            capacity,
        } = self.layout;
        let rows = self.k.chunks_exact(dim).zip(self.v.chunks_exact(dim));
        let mut narrow = [T::zeroed(); LANES];
        for (i, (k, v)) in rows.enumerate() {
            let (position, head) = (self.first + i / heads, i % heads);
            let start = head * capacity * dim;
            T::narrow::<I>(v, &mut self.values[start + position * dim..][..dim]);
            let panel = start + position / LANES * LANES * dim + position % LANES;
            let panel = &mut self.keys[panel..];
            for (k, to) in k.chunks(LANES).zip(panel.chunks_mut(LANES * LANES)) {
                T::narrow::<I>(k, &mut narrow[..k.len()]);
                for (d, &x) in narrow[..k.len()].iter().enumerate() {
                    to[d * LANES] = x;
                }
            }
        }
    }
}

/// The stored keys or values of a head.
trait KvView: Copy + Send + Sync {
    /// A range of whole panels or rows as `f32`, converted into `scratch` if necessary.
    fn view<'a, I: Isa>(&'a self, range: Range<usize>, scratch: &'a mut [f32]) -> &'a [f32];
}

impl<T: Float<Real = f32>> KvView for &[T] {
    #[inline(always)]
    fn view<'a, I: Isa>(&'a self, range: Range<usize>, scratch: &'a mut [f32]) -> &'a [f32] {
        T::view::<I>(&self[range], scratch)
    }
}

/// Attention of a range of queries, at query heads that share a head of keys and values (GQA). A row is a pair of a query
/// and a head.
struct CacheAttention<'a, K, V> {
    attend: &'a Attend<'a>,
    dim: usize,
    /// Index of the first query.
    first: usize,
    /// Number of queries.
    count: usize,
    /// Number of heads of a query.
    heads: usize,
    /// First head of this task.
    first_head: usize,
    /// Number of heads of this task.
    share: usize,
    keys: K,
    values: V,
    scratch: &'a mut [f32],
    to: &'a DisjointSlice<'a, f32>,
}

impl<K: KvView, V: KvView> Task for CacheAttention<'_, K, V> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let (a, dim) = (self.attend, self.dim);
        let (first, heads, first_head, share) =
            (self.first, self.heads, self.first_head, self.share);
        let rows = self.count * share;
        let (q, scratch) = self.scratch.split_at_mut(rows * dim);
        let (sums, scratch) = scratch.split_at_mut(rows * dim);
        let (scores, scratch) = scratch.split_at_mut(rows * BLOCK_POSITIONS);
        let (maxima, scratch) = scratch.split_at_mut(rows);
        let (totals, scratch) = scratch.split_at_mut(rows);
        let (k_scratch, v_scratch) = scratch.split_at_mut(BLOCK_POSITIONS * dim);
        // The position of a row, and its offset in `q` and in the output.
        let position = |row: usize| a.first + first + row / share;
        let offset = |row: usize| ((first + row / share) * heads + first_head + row % share) * dim;
        for (row, q) in q.chunks_exact_mut(dim).enumerate() {
            for (to, &x) in q.iter_mut().zip(&a.q[offset(row)..]) {
                *to = x * a.scale;
            }
        }
        sums.fill(0.0);
        totals.fill(0.0);
        maxima.fill(f32::NEG_INFINITY);
        let start = a.visible(position(0)).start / BLOCK_POSITIONS;
        let last_visible = a.visible(position(rows - 1)).end;
        let end = last_visible.div_ceil(BLOCK_POSITIONS);
        for block in start..end {
            let from = block * BLOCK_POSITIONS;
            // Skips the panels that no query sees.
            let visible = last_visible - from;
            let size = visible.next_multiple_of(LANES).min(BLOCK_POSITIONS) * dim;
            let range = from * dim..from * dim + size;
            let k = self.keys.view::<I>(range.clone(), k_scratch);
            let v = self.values.view::<I>(range, v_scratch);
            let mut row = 0;
            while row < rows {
                let n = TILE_QUERIES.min(rows - row);
                let q = &q[row * dim..];
                let scores = &mut scores[row * BLOCK_POSITIONS..][..n * BLOCK_POSITIONS];
                match n {
                    4 => score::<I, 4>(q, dim, k, scores),
                    3 => score::<I, 3>(q, dim, k, scores),
                    2 => score::<I, 2>(q, dim, k, scores),
                    _ => score::<I, 1>(q, dim, k, scores),
                }
                for i in row..row + n {
                    let scores = &mut scores[(i - row) * BLOCK_POSITIONS..][..BLOCK_POSITIONS];
                    let visible = a.visible(position(i));
                    let low = visible.start.saturating_sub(from).min(BLOCK_POSITIONS);
                    let high = visible.end.saturating_sub(from).min(BLOCK_POSITIONS);
                    let state = CacheSoftmax {
                        max: &mut maxima[i],
                        total: &mut totals[i],
                        sums: &mut sums[i * dim..][..dim],
                    };
                    state.update::<I>(a.soft_cap, scores, low..high);
                }
                let sums = &mut sums[row * dim..];
                match n {
                    4 => mix::<I, 4>(scores, v, dim, sums),
                    3 => mix::<I, 3>(scores, v, dim, sums),
                    2 => mix::<I, 2>(scores, v, dim, sums),
                    _ => mix::<I, 1>(scores, v, dim, sums),
                }
                row += n;
            }
        }
        for (row, sums) in sums.chunks_exact(dim).enumerate() {
            let scale = 1.0 / totals[row];
            // SAFETY: every pair of a query and a head belongs to one task, and is written here once.
            let to = unsafe { self.to.range(offset(row), dim) };
            for (to, &x) in to.iter_mut().zip(sums) {
                *to = x * scale;
            }
        }
    }
}

/// Computes the scores of `R` queries with the keys of a block.
#[inline(always)]
fn score<I: Isa, const R: usize>(q: &[f32], dim: usize, k: &[f32], scores: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if avx2::score::<I, R>(q, dim, k, scores) {
        return;
    }
    let q: [&[f32]; R] = std::array::from_fn(|r| &q[r * dim..][..dim]);
    for (panel, k) in k.chunks_exact(dim * LANES).enumerate() {
        let mut sums = [[0.0_f32; LANES]; R];
        let (k, _) = k.as_chunks::<LANES>();
        for d in 0..dim {
            let k = &k[d];
            for r in 0..R {
                let q = q[r][d];
                for lane in 0..LANES {
                    sums[r][lane] = q.mul_add_on::<I>(k[lane], sums[r][lane]);
                }
            }
        }
        for r in 0..R {
            scores[r * BLOCK_POSITIONS + panel * LANES..][..LANES].copy_from_slice(&sums[r]);
        }
    }
}

/// The state of a row's online softmax.
struct CacheSoftmax<'a> {
    /// Running maximum of the scores.
    max: &'a mut f32,
    /// Sum of the weights, relative to the maximum.
    total: &'a mut f32,
    /// Weighted sums of the values.
    sums: &'a mut [f32],
}

impl CacheSoftmax<'_> {
    /// Replaces the scores of a block by weights, which are zero outside of `visible`, and rescales the sums if the
    /// maximum grows.
    #[inline(always)]
    fn update<I: Isa>(self, cap: Option<f32>, scores: &mut [f32], visible: Range<usize>) {
        if visible.is_empty() {
            scores.fill(0.0);
            return;
        }
        if let Some(cap) = cap {
            for s in scores.iter_mut() {
                *s = cap * (*s / cap).tanh_on::<I>();
            }
        }
        scores[..visible.start].fill(f32::NEG_INFINITY);
        scores[visible.end..].fill(f32::NEG_INFINITY);
        let max = crate::cpu::row::maximum(scores).max(*self.max);
        if max > *self.max {
            let factor = (*self.max - max).exp_on::<I>();
            *self.max = max;
            *self.total *= factor;
            for x in self.sums {
                *x *= factor;
            }
        }
        let mut lanes = [0.0_f32; LANES];
        for scores in scores.as_chunks_mut::<LANES>().0 {
            for (s, lane) in scores.iter_mut().zip(&mut lanes) {
                *s = (*s - max).exp_on::<I>();
                *lane += *s;
            }
        }
        let mut width = LANES / 2;
        while width > 0 {
            for i in 0..width {
                lanes[i] += lanes[i + width];
            }
            width /= 2;
        }
        *self.total += lanes[0];
    }
}

/// Adds the weighted values of a block to the sums of `R` queries.
#[inline(always)]
fn mix<I: Isa, const R: usize>(weights: &[f32], v: &[f32], dim: usize, sums: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    let mut d = avx2::mix::<I, R>(weights, v, dim, sums);
    #[cfg(not(target_arch = "x86_64"))]
    let mut d = 0;
    let weights: [&[f32]; R] =
        std::array::from_fn(|r| &weights[r * BLOCK_POSITIONS..][..BLOCK_POSITIONS]);
    while d + LANES <= dim {
        let mut lanes = [[0.0_f32; LANES]; R];
        for r in 0..R {
            lanes[r].copy_from_slice(&sums[r * dim + d..][..LANES]);
        }
        for (j, v) in v.chunks_exact(dim).enumerate() {
            let v: &[f32; LANES] = v[d..]
                .first_chunk()
                .expect("at least LANES elements are left");
            for r in 0..R {
                let w = weights[r][j];
                for lane in 0..LANES {
                    lanes[r][lane] = w.mul_add_on::<I>(v[lane], lanes[r][lane]);
                }
            }
        }
        for r in 0..R {
            sums[r * dim + d..][..LANES].copy_from_slice(&lanes[r]);
        }
        d += LANES;
    }
    // The remainder if `dim` is not a multiple of the lanes.
    for d in d..dim {
        for r in 0..R {
            let mut sum = sums[r * dim + d];
            for (j, v) in v.chunks_exact(dim).enumerate() {
                sum = weights[r][j].mul_add_on::<I>(v[d], sum);
            }
            sums[r * dim + d] = sum;
        }
    }
}
