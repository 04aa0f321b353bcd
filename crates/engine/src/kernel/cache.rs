//! Keys and values of a sequence, and attention over them.
//!
//! Keys lie in panels of [`LANES`] positions, `[head, panel, dim, LANES]`, so that a register holds one dimension
//! of several keys and a score is never added up across it; values lie in rows, `[head, position, dim]`. Every
//! query of every head takes in the positions in blocks of [`BLOCK_POSITIONS`], counted from the first position, with a
//! running softmax. What it computes depends neither on the queries that are computed with it nor on threads: a
//! prompt taken at once, token by token or after a reused prefix has the same bits.
#![expect(unsafe_code, reason = "tasks write to disjoint parts of the result")]

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
use crate::{Error, Result};

/// Positions of a panel of keys.
const LANES: usize = 16;
/// Positions that a running softmax takes in at once.
const BLOCK_POSITIONS: usize = 64;
/// Queries that share what is loaded.
const TILE_QUERIES: usize = 4;
/// Queries of a task, where there are many.
const TASK_QUERIES: usize = 48;

/// What keys and values are kept as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheType {
    /// `f32`: nothing is rounded.
    F32,
    /// `f16`: half the memory.
    #[default]
    F16,
    /// 8 bits and a scale for every 32 numbers: about a quarter of the memory. A number is off by up to 0.45 % of
    /// the largest of its 32.
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

    /// Bytes of a number, without those of scales.
    pub const fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 => 2,
            Self::Q8_0 => 1,
        }
    }

    /// Bytes of a key or a value of `dim` numbers.
    pub const fn row_bytes(self, dim: usize) -> usize {
        match self {
            Self::F32 | Self::F16 => self.size() * dim,
            Self::Q8_0 => dim + 2 * q8::groups(dim),
        }
    }
}

enum KvStore {
    F32(Vec<f32>, Vec<f32>),
    F16(Vec<f16>, Vec<f16>),
    Q8(q8::Q8Store),
}

/// The keys and values of one layer for one sequence, with room for a number of positions that is set when it is
/// made. Positions may be written again: a sequence that goes back simply continues from an earlier one.
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

/// An attention of some queries, one after the other, over a cache.
#[derive(Clone, Copy, Debug)]
pub struct Attend<'a> {
    /// `[queries, heads, dim]`; heads are a multiple of the cache's.
    pub q: &'a [f32],
    /// Position of the first query.
    pub first: usize,
    /// Positions in the cache that count, from 0 on; later queries than these see all of them.
    pub len: usize,
    /// What scores are multiplied with.
    pub scale: f32,
    /// Scores become `cap * tanh(score / cap)`.
    pub soft_cap: Option<f32>,
    /// How many positions, its own included, a query sees.
    pub window: Option<usize>,
    /// Whether a query sees only its own and earlier positions.
    pub causal: bool,
}

impl KvCache {
    /// An empty cache. Memory that was not written yet costs nothing on most systems.
    pub fn new(kind: CacheType, heads: usize, dim: usize, positions: usize) -> Result<Self> {
        let capacity = positions.div_ceil(BLOCK_POSITIONS).saturating_mul(BLOCK_POSITIONS);
        let count = heads.checked_mul(dim).and_then(|n| n.checked_mul(capacity));
        let Some(count) = count.filter(|n| (1..=isize::MAX as usize / 8).contains(n)) else {
            return Err(Error::SizeOverflow {
                op: "attention",
                dims: vec![heads, dim, positions],
            });
        };
        let place = KvLayout {
            heads,
            dim,
            capacity,
        };
        let store = match kind {
            CacheType::F32 => KvStore::F32(vec![0.0; count], vec![0.0; count]),
            CacheType::F16 => KvStore::F16(zeros(count), zeros(count)),
            CacheType::Q8_0 => KvStore::Q8(q8::Q8Store::new(place)),
        };
        Ok(Self {
            heads,
            dim,
            capacity,
            store,
        })
    }

    /// Positions there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// What keys and values are kept as.
    pub fn kind(&self) -> CacheType {
        match self.store {
            KvStore::F32(..) => CacheType::F32,
            KvStore::F16(..) => CacheType::F16,
            KvStore::Q8(_) => CacheType::Q8_0,
        }
    }

    /// Bytes of all positions.
    pub fn bytes(&self) -> usize {
        2 * self.heads * self.capacity * self.kind().row_bytes(self.dim)
    }

    fn place(&self) -> KvLayout {
        KvLayout {
            heads: self.heads,
            dim: self.dim,
            capacity: self.capacity,
        }
    }

    /// Writes keys and values, `[positions, heads, dim]`, from position `first` on.
    ///
    /// # Panics
    /// Where there is no room, or lengths do not go together.
    pub fn write(&mut self, first: usize, k: &[f32], v: &[f32]) {
        let row = self.heads * self.dim;
        assert!(k.len() == v.len() && k.len().is_multiple_of(row));
        assert!(first + k.len() / row <= self.capacity, "the cache is full");
        let place = self.place();
        match &mut self.store {
            KvStore::F32(keys, values) => simd::run_narrow(WriteKv {
                place,
                first,
                k,
                v,
                keys,
                values,
            }),
            KvStore::F16(keys, values) => simd::run_narrow(WriteKv {
                place,
                first,
                k,
                v,
                keys,
                values,
            }),
            KvStore::Q8(store) => simd::run_narrow(q8::WriteQ8 {
                place,
                first,
                k,
                v,
                store,
            }),
        }
    }

    /// Writes `[queries, heads, dim]` to `to`.
    ///
    /// # Panics
    /// Where lengths do not go together.
    pub fn attend(&self, attend: &Attend<'_>, to: &mut [f32]) {
        assert_eq!(
            attend.q.len(),
            to.len(),
            "attend: as many results as queries"
        );
        assert!(
            attend.len <= self.capacity,
            "attend: more positions than there are"
        );
        match &self.store {
            KvStore::F32(keys, values) => self.run(attend, |h| self.head(h, keys, values), to),
            KvStore::F16(keys, values) => self.run(attend, |h| self.head(h, keys, values), to),
            KvStore::Q8(store) => self.run(attend, |h| store.head(self.place(), h), to),
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
        // Below: all queries at all heads, heads of one query first.
        let all = to.len() / dim;
        if all == 0 {
            return;
        }
        // How many heads the queries have is known from no other length.
        let heads = a.heads(self);
        let group = heads / self.heads;
        let queries = all / heads;
        // Enough tasks for the threads where there are few queries, few enough to share keys where there are many.
        let step = (TASK_QUERIES / group).clamp(1, queries);
        let share = if queries == 1 && self.heads < pool::threads() {
            1
        } else {
            group
        };
        let blocks = queries.div_ceil(step);
        let per_head = group / share;
        let parts = DisjointSlice::new(to);
        pool::run(self.heads * per_head * blocks, |task| {
            let (head, block) = (
                task % (self.heads * per_head),
                task / (self.heads * per_head),
            );
            let first = block * step;
            let count = step.min(queries - first);
            let rows = count * share;
            let (keys, values) = of_head(head / per_head);
            let space = rows * (2 * dim + BLOCK_POSITIONS + 2) + 2 * BLOCK_POSITIONS * dim;
            f32::with_scratch(space, |space| {
                simd::run_as(
                    Family::Attention,
                    QueryBlock {
                        attend: a,
                        dim,
                        queries: (first, count),
                        heads: (heads, head * share, share),
                        keys,
                        values,
                        space,
                        to: &parts,
                    },
                );
            });
        });
    }
}

impl Attend<'_> {
    fn heads(&self, cache: &KvCache) -> usize {
        // The last query is at `len - 1`, where it is causal; what is not causal has all queries in the cache.
        let queries = self.len - self.first;
        let heads = self.q.len() / cache.dim / queries.max(1);
        assert!(
            heads * queries * cache.dim == self.q.len() && heads.is_multiple_of(cache.heads),
            "attend: queries are at the last positions, with a multiple of the cache's heads"
        );
        heads
    }

    /// The positions that the query at a position sees.
    fn reach(&self, position: usize) -> (usize, usize) {
        let end = if self.causal {
            (position + 1).min(self.len)
        } else {
            self.len
        };
        let start = self.window.map_or(0, |w| (position + 1).saturating_sub(w));
        (start.min(end), end)
    }
}

fn zeros(count: usize) -> Vec<f16> {
    // By way of `u16`, whose zeros the system gives without writing them.
    vec![0_u16; count].reinterpret_into()
}

#[derive(Clone, Copy)]
struct KvLayout {
    heads: usize,
    dim: usize,
    capacity: usize,
}

struct WriteKv<'a, T> {
    place: KvLayout,
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
        } = self.place;
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

/// The keys or the values of a head, as they are kept.
trait KvView: Copy + Send + Sync {
    /// A range of whole panels or rows as `f32`, in `space` where need be.
    fn view<'a, I: Isa>(&'a self, range: Range<usize>, space: &'a mut [f32]) -> &'a [f32];
}

impl<T: Float<Real = f32>> KvView for &[T] {
    #[inline(always)]
    fn view<'a, I: Isa>(&'a self, range: Range<usize>, space: &'a mut [f32]) -> &'a [f32] {
        T::view::<I>(&self[range], space)
    }
}

/// Some queries at the heads that share keys.
struct QueryBlock<'a, K, V> {
    attend: &'a Attend<'a>,
    dim: usize,
    /// The first one and how many.
    queries: (usize, usize),
    /// All heads of a query, the first of these and how many.
    heads: (usize, usize, usize),
    keys: K,
    values: V,
    space: &'a mut [f32],
    to: &'a DisjointSlice<'a, f32>,
}

impl<K: KvView, V: KvView> Task for QueryBlock<'_, K, V> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let (a, dim) = (self.attend, self.dim);
        let (heads, head, share) = self.heads;
        let (first, count) = self.queries;
        let rows = count * share;
        let (q, space) = self.space.split_at_mut(rows * dim);
        let (sums, space) = space.split_at_mut(rows * dim);
        let (scores, space) = space.split_at_mut(rows * BLOCK_POSITIONS);
        let (tops, space) = space.split_at_mut(rows);
        let (totals, space) = space.split_at_mut(rows);
        let (k_space, v_space) = space.split_at_mut(BLOCK_POSITIONS * dim);
        // Where a row's query is among all: its position and its place in `q` and in the result.
        let position = |row: usize| a.first + first + row / share;
        let place = |row: usize| ((first + row / share) * heads + head + row % share) * dim;
        for (row, q) in q.chunks_exact_mut(dim).enumerate() {
            for (to, &x) in q.iter_mut().zip(&a.q[place(row)..]) {
                *to = x * a.scale;
            }
        }
        sums.fill(0.0);
        totals.fill(0.0);
        tops.fill(f32::NEG_INFINITY);
        let start = a.reach(position(0)).0 / BLOCK_POSITIONS;
        let end = a.reach(position(rows - 1)).1.div_ceil(BLOCK_POSITIONS);
        for block in start..end {
            let from = block * BLOCK_POSITIONS;
            // Positions past the last panel that somebody sees have no part in anything.
            let seen = a.reach(position(rows - 1)).1 - from;
            let size = seen.next_multiple_of(LANES).min(BLOCK_POSITIONS) * dim;
            let range = from * dim..from * dim + size;
            let k = self.keys.view::<I>(range.clone(), k_space);
            let v = self.values.view::<I>(range, v_space);
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
                    let (low, high) = a.reach(position(i));
                    let low = low.saturating_sub(from).min(BLOCK_POSITIONS);
                    let high = high.saturating_sub(from).min(BLOCK_POSITIONS);
                    let sums = &mut sums[i * dim..][..dim];
                    soften::<I>(
                        a.soft_cap,
                        scores,
                        (low, high),
                        (&mut tops[i], &mut totals[i]),
                        sums,
                    );
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
            // SAFETY: every query at every head is in one task, and written here once.
            let to = unsafe { self.to.range(place(row), dim) };
            for (to, &x) in to.iter_mut().zip(sums) {
                *to = x * scale;
            }
        }
    }
}

/// The scores of `R` queries with the keys of a block.
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

/// Turns the scores of a block into weights, for the running softmax; what is outside of `low..high` has none.
#[inline(always)]
fn soften<I: Isa>(
    cap: Option<f32>,
    scores: &mut [f32],
    (low, high): (usize, usize),
    (top, total): (&mut f32, &mut f32),
    sums: &mut [f32],
) {
    if low >= high {
        scores.fill(0.0);
        return;
    }
    if let Some(cap) = cap {
        for s in scores.iter_mut() {
            *s = cap * (*s / cap).tanh_on::<I>();
        }
    }
    scores[..low].fill(f32::NEG_INFINITY);
    scores[high..].fill(f32::NEG_INFINITY);
    let highest = crate::cpu::row::maximum(scores).max(*top);
    if highest > *top {
        let factor = (*top - highest).exp_on::<I>();
        *top = highest;
        *total *= factor;
        for x in sums {
            *x *= factor;
        }
    }
    let mut lanes = [0.0_f32; LANES];
    for scores in scores.as_chunks_mut::<LANES>().0 {
        for (s, lane) in scores.iter_mut().zip(&mut lanes) {
            *s = (*s - highest).exp_on::<I>();
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
    *total += lanes[0];
}

/// Adds the values of a block, by their weights, to the sums of `R` queries.
#[inline(always)]
fn mix<I: Isa, const R: usize>(weights: &[f32], v: &[f32], dim: usize, sums: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    let mut d = avx2::mix::<I, R>(weights, v, dim, sums);
    #[cfg(not(target_arch = "x86_64"))]
    let mut d = 0;
    let weights: [&[f32]; R] = std::array::from_fn(|r| &weights[r * BLOCK_POSITIONS..][..BLOCK_POSITIONS]);
    while d + LANES <= dim {
        let mut lanes = [[0.0_f32; LANES]; R];
        for r in 0..R {
            lanes[r].copy_from_slice(&sums[r * dim + d..][..LANES]);
        }
        for (j, v) in v.chunks_exact(dim).enumerate() {
            let v: &[f32; LANES] = v[d..].first_chunk().expect("as long as lanes");
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
    // Heads that are no multiple of the lanes.
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
