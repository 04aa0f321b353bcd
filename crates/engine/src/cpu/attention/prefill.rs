//! Attention of many queries.
//!
//! Keys and values are packed once into GEMM panels for all queries; then, as in flash attention, each block of queries
//! of each head loops over the tiles of keys with an online softmax.

use super::tile::{self, OnlineSoftmax, PANEL_WIDTH, TILE_KEYS, TileInput, TileOutput};
use super::{AttentionProblem, HeadsView, RowIndex};
use crate::Result;
use crate::cpu::grid::{self, MatrixSize};
use crate::cpu::pool;
use crate::cpu::row::{Float, Real};
use crate::cpu::simd::{self, Family, Isa, Task};
use crate::storage::Storage;

/// Queries of a block: few enough that their sums and scores stay in the L2 cache, many enough to be worth reading a
/// tile of keys.
const BLOCK_QUERIES: usize = 96;

pub(super) fn run<T: Float>(problem: &AttentionProblem<'_, T>, to: &mut [T]) -> Result<()> {
    let shape = *problem.k.layout.shape();
    let (batch, kv_heads) = (shape[0], shape[1]);
    let tiles = problem.keys.div_ceil(TILE_KEYS);
    let columns = problem.value_dim.next_multiple_of(PANEL_WIDTH);
    let (k_size, v_size) = (problem.dim * TILE_KEYS, TILE_KEYS * columns);
    let bytes = |size: usize| batch * kv_heads * tiles * size * size_of::<T::Real>();
    let mut k_panels = Storage::new("attention", bytes(k_size))?;
    let mut v_panels = Storage::new("attention", bytes(v_size))?;
    let k_all =
        bytemuck::cast_slice_mut::<u8, T::Real>(k_panels.bytes_mut().expect("newly allocated"));
    let v_all =
        bytemuck::cast_slice_mut::<u8, T::Real>(v_panels.bytes_mut().expect("newly allocated"));
    let first = |i: usize| RowIndex {
        batch: i / tiles / kv_heads,
        head: i / tiles % kv_heads,
        token: i % tiles * TILE_KEYS,
    };
    pool::for_each_chunk(k_all, k_size, |i, panels| {
        simd::run_as(
            Family::Attention,
            PackPanels {
                from: &problem.k,
                first: first(i),
                panels,
                columns: None,
            },
        );
    });
    pool::for_each_chunk(v_all, v_size, |i, panels| {
        simd::run_as(
            Family::Attention,
            PackPanels {
                from: &problem.v,
                first: first(i),
                panels,
                columns: Some(columns),
            },
        );
    });
    let heads = MatrixSize {
        rows: 1,
        columns: problem.queries * problem.value_dim,
    };
    grid::for_each_column_block(to, heads, BLOCK_QUERIES * problem.value_dim, |mut out| {
        let (batch, head) = (out.matrix / problem.heads, out.matrix % problem.heads);
        let first = out.column / problem.value_dim;
        let count = out.width / problem.value_dim;
        let kv_head = batch * kv_heads + head / problem.group;
        let scratch_len = BLOCK_QUERIES * (problem.dim + TILE_KEYS + columns);
        T::Real::with_scratch(scratch_len, |scratch| {
            simd::run_as(
                Family::Attention,
                QueryBlock {
                    problem,
                    first: RowIndex {
                        batch,
                        head,
                        token: first,
                    },
                    k: &k_all[kv_head * tiles * k_size..][..tiles * k_size],
                    v: &v_all[kv_head * tiles * v_size..][..tiles * v_size],
                    columns,
                    count,
                    scratch,
                    to: out.row(0),
                },
            );
        });
    });
    Ok(())
}

/// Packs a tile of keys into panels whose columns are keys, or a tile of values into panels whose columns are dims.
/// Missing rows and columns at the end are zero-padded.
struct PackPanels<'a, T: Float> {
    from: &'a HeadsView<'a, T>,
    first: RowIndex,
    panels: &'a mut [T::Real],
    /// For values: dims, rounded up to whole panels.
    columns: Option<usize>,
}

impl<T: Float> Task for PackPanels<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let first = self.first.token;
        let shape = self.from.layout.shape();
        let (rows, dim) = (shape[2], shape[3]);
        T::Real::with_scratch(dim, |scratch| {
            if first + TILE_KEYS > rows || self.columns.is_some_and(|c| c != dim) {
                self.panels.fill(T::Real::ZERO);
            }
            for i in 0..TILE_KEYS.min(rows - first) {
                let index = RowIndex {
                    token: first + i,
                    ..self.first
                };
                let row = T::view::<I>(self.from.row(index), scratch);
                if self.columns.is_some() {
                    for (panel, piece) in self
                        .panels
                        .chunks_exact_mut(TILE_KEYS * PANEL_WIDTH)
                        .zip(row.chunks(PANEL_WIDTH))
                    {
                        panel[i * PANEL_WIDTH..][..piece.len()].copy_from_slice(piece);
                    }
                } else {
                    let first = i / PANEL_WIDTH * PANEL_WIDTH * dim;
                    let panel = &mut self.panels[first..][..PANEL_WIDTH * dim];
                    for (to, &x) in panel.chunks_exact_mut(PANEL_WIDTH).zip(row) {
                        to[i % PANEL_WIDTH] = x;
                    }
                }
            }
        });
    }
}

/// A block of queries of one head.
struct QueryBlock<'a, T: Float> {
    problem: &'a AttentionProblem<'a, T>,
    first: RowIndex,
    k: &'a [T::Real],
    v: &'a [T::Real],
    columns: usize,
    count: usize,
    scratch: &'a mut [T::Real],
    to: &'a mut [T],
}

impl<T: Float> Task for QueryBlock<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let (p, count, columns) = (self.problem, self.count, self.columns);
        let first = self.first.token;
        let query = |i: usize| RowIndex {
            token: first + i,
            ..self.first
        };
        let dim = p.dim;
        let (q, scratch) = self.scratch.split_at_mut(BLOCK_QUERIES * dim);
        let (scores, sums) = scratch.split_at_mut(BLOCK_QUERIES * TILE_KEYS);
        let scale = T::Real::of(p.op.scale());
        for (i, row) in q.chunks_exact_mut(dim.max(1)).take(count).enumerate() {
            T::widen::<I>(p.q.row(query(i)), row);
            for x in row {
                *x = *x * scale;
            }
        }
        if dim == 0 {
            scores.fill(T::Real::ZERO);
        }
        sums[..count * columns].fill(T::Real::ZERO);
        let mut softmax = [OnlineSoftmax::EMPTY; BLOCK_QUERIES];
        // The keys from the first that the first query attends to, to the last that the last query attends to.
        let low = p.op.reach(first, p.queries, p.keys).start;
        let high = p.op.reach(first + count - 1, p.queries, p.keys).end;
        for tile in low / TILE_KEYS..high.div_ceil(TILE_KEYS) {
            let k = &self.k[tile * dim * TILE_KEYS..][..dim * TILE_KEYS];
            let queries = TileInput { data: q, lda: dim };
            let products = TileOutput {
                data: scores,
                ldc: TILE_KEYS,
                accumulate: false,
            };
            tile::gemm::<I, _>(queries, k, dim, products, count);
            for (i, row) in scores.chunks_exact_mut(TILE_KEYS).take(count).enumerate() {
                p.cap_and_mask::<I>(query(i), tile * TILE_KEYS, row);
                let factor = softmax[i].update::<I>(row);
                if factor != T::Real::of(1.0) {
                    for x in &mut sums[i * columns..][..columns] {
                        *x = *x * factor;
                    }
                }
            }
            let v = &self.v[tile * TILE_KEYS * columns..][..TILE_KEYS * columns];
            let weights = TileInput {
                data: scores,
                lda: TILE_KEYS,
            };
            let output = TileOutput {
                data: sums,
                ldc: columns,
                accumulate: true,
            };
            tile::gemm::<I, _>(weights, v, TILE_KEYS, output, count);
        }
        let rows = self.to.chunks_exact_mut(p.value_dim);
        for ((to, sum), softmax) in rows.zip(sums.chunks_exact_mut(columns)).zip(&softmax) {
            let scale = softmax.scale();
            let sum = &mut sum[..p.value_dim];
            for x in sum.iter_mut() {
                *x = *x * scale;
            }
            T::narrow::<I>(sum, to);
        }
    }
}
