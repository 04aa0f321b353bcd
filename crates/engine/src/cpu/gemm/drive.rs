//! The loops around the micro-kernel: packing, cache blocking and the split into tasks.
#![expect(
    unsafe_code,
    reason = "tasks read views and write disjoint tiles through pointers"
)]

use std::ops::Range;

use super::float::{FloatElement, GemmFloat, finish, widen};
use super::kernel::{MicroKernel, Side, TileArgs};
use super::pack::{StridedBlock, pack};
use super::problem::{GemmProblem, MatrixPtr, RightOperand};
use super::scratch::{self, Local};
use crate::cpu::pool;
use crate::storage::Storage;

/// How the micro-kernel gets the right factor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RightAccess {
    /// Read in place; its columns are contiguous.
    Direct,
    /// Packed by each task into its own scratch.
    Local,
    /// Packed in advance and shared by all tasks.
    Packed,
}

/// How a product is split into tasks.
#[derive(Clone, Copy)]
struct GemmPlan {
    access: RightAccess,
    /// True if the left factor is read in place.
    direct: bool,
    /// Rows and columns of a task.
    rows: usize,
    cols: usize,
}

/// Bytes of a right panel: most of an L1 cache, leaving space for the left panel that streams through.
const PANEL_BYTES: usize = 24 << 10;

/// Minimum steps of `k` in a depth block, if `k` has that many: results are read and written once per block. The wide
/// panels of AVX-512 then come from the L2 cache, which is fast enough.
const MIN_DEPTH: usize = 384;

/// Bytes of the block that a task packs: half of an L2 cache.
const L2_BLOCK_BYTES: usize = 256 << 10;

/// Maximum bytes of a right factor packed in one step for all tasks: most of an L3 cache.
const MAX_SHARED_PACK_BYTES: usize = 24 << 20;

/// Bytes of the shared right factor that one task packs.
const PACK_TASK_BYTES: usize = 128 << 10;

/// Maximum bytes of a right factor that is read in place; above that, its rows begin to evict each other from the L1
/// cache.
const MAX_DIRECT_BYTES: usize = 20 << 10;

/// A left factor is read in place up to this many rows, or up to this many columns of the right factor unless it is
/// tall and narrow: packing would not pay.
const MAX_DIRECT_ROWS: usize = 12;
const MAX_DIRECT_COLS: usize = 128;

/// Up to this many bytes of the right factor, or rows of the left one, each task packs its own part of the right
/// factor, which saves a barrier between all threads.
const MAX_LOCAL_BYTES: usize = 100 << 10;
const MAX_LOCAL_ROWS: usize = 96;

/// Minimum row panels in a task, as long as columns can be split as well: a right panel that was fetched should be
/// used several times.
const MIN_TASK_ROW_PANELS: usize = 10;

/// Minimum bytes of a row of a task-local right factor: two panels of AVX2, one of AVX-512.
const MIN_LOCAL_ROW_BYTES: usize = 128;

/// Minimum number of multiplications worth waking a thread for: about 10 µs on one core.
const MIN_PARALLEL_MULTIPLIES: usize = 500_000;

/// Length of a depth block: the steps of `k` that are summed in registers at a time. It depends on `k` alone, so
/// results do not depend on the rest of the blocking.
pub(super) fn depth<K: MicroKernel>(k: usize) -> usize {
    let max = (PANEL_BYTES / (K::COLS * size_of::<K::Float>())).max(MIN_DEPTH);
    k.div_ceil(k.div_ceil(max).max(1)).next_multiple_of(4)
}

/// Computes a product with a kernel.
pub(super) fn compute<
    T: FloatElement,
    B: FloatElement<Float = T::Float>,
    K: MicroKernel<Float = T::Float>,
>(
    p: &GemmProblem<T, B>,
) {
    let RightOperand::Strided(b) = p.b else {
        return tasks::<T, B, K>(p, &plan::<T, B, K>(p, RightAccess::Packed));
    };
    // Only packed right factors have another element type.
    let b = MatrixPtr {
        start: b.start.cast::<T>(),
        row: b.row,
        col: b.col,
    };
    // A narrow product is computed transposed if that leaves fewer lanes idle.
    let cost = |m: usize, n: usize| m.next_multiple_of(2) * n.next_multiple_of(K::COLS);
    if cost(p.n, p.m) * 5 < cost(p.m, p.n) * 4 {
        let flip = |v: MatrixPtr<*const T>| MatrixPtr {
            row: v.col,
            col: v.row,
            ..v
        };
        let flipped = GemmProblem {
            m: p.n,
            n: p.m,
            a: flip(b),
            b: RightOperand::Strided(flip(p.a)),
            k: p.k,
            mix: p.mix,
            c: MatrixPtr {
                row: p.c.col,
                col: p.c.row,
                ..p.c
            },
        };
        return compute_view::<T, K>(&flipped);
    }
    compute_view::<T, K>(&GemmProblem {
        m: p.m,
        n: p.n,
        k: p.k,
        mix: p.mix,
        a: p.a,
        b: RightOperand::Strided(b),
        c: p.c,
    });
}

fn compute_view<T: FloatElement, K: MicroKernel<Float = T::Float>>(p: &GemmProblem<T>) {
    let RightOperand::Strided(b) = p.b else {
        return;
    };
    let bytes = p.k.saturating_mul(p.n).saturating_mul(size_of::<T>());
    let access = if T::SAME && b.col == 1 && bytes <= MAX_DIRECT_BYTES {
        RightAccess::Direct
    } else if p.m <= MAX_LOCAL_ROWS || bytes <= MAX_LOCAL_BYTES {
        RightAccess::Local
    } else {
        RightAccess::Packed
    };
    if access != RightAccess::Packed {
        return tasks::<T, T, K>(p, &plan::<T, T, K>(p, access));
    }
    let row = p.k * size_of::<T::Float>();
    let cols = (MAX_SHARED_PACK_BYTES / row.max(1)).max(16 * K::COLS);
    let mut cols = p.n.div_ceil(p.n.div_ceil(cols)).next_multiple_of(K::COLS);
    // Counted as tensor memory. If allocation fails, fewer columns are packed at a time, and as a last resort
    // each task packs its own panels.
    let mut memory = loop {
        match Storage::new("matmul", cols.saturating_mul(row)) {
            Ok(memory) => break memory,
            Err(_) if cols > K::COLS => cols = (cols / 2).next_multiple_of(K::COLS),
            Err(_) => return tasks::<T, T, K>(p, &plan::<T, T, K>(p, RightAccess::Local)),
        }
    };
    let panels = bytemuck::cast_slice_mut(memory.bytes_mut().expect("new storage is not shared"));
    for first in (0..p.n).step_by(cols) {
        let n = cols.min(p.n - first);
        let panels = &mut panels[..n.next_multiple_of(K::COLS) * p.k];
        // SAFETY: columns below `n` exist.
        let (b, c) = unsafe {
            let b = MatrixPtr {
                start: b.start.offset(first as isize * b.col),
                ..b
            };
            let c = MatrixPtr {
                start: p.c.start.offset(first as isize * p.c.col),
                ..p.c
            };
            (b, c)
        };
        pack_shared::<T, K>(b, p.k, n, panels);
        let slice = GemmProblem {
            n,
            b: RightOperand::Panels(panels.as_ptr()),
            c,
            ..*p
        };
        tasks::<T, T, K>(&slice, &plan::<T, T, K>(&slice, RightAccess::Packed));
    }
}

/// Packs a right factor of `k` by `n` on all threads: for every depth block, all panels.
pub(super) fn pack_shared<T: FloatElement, K: MicroKernel<Float = T::Float>>(
    b: MatrixPtr<*const T>,
    k: usize,
    n: usize,
    out: &mut [T::Float],
) {
    struct Shared<T, F>(MatrixPtr<*const T>, *mut F);
    // SAFETY: tasks read the view and write disjoint panels.
    unsafe impl<T, F> Sync for Shared<T, F> {}

    let shared = Shared(b, out.as_mut_ptr());
    let depth = depth::<K>(k);
    let panels = n.div_ceil(K::COLS);
    let task_panels = (PACK_TASK_BYTES / (depth * K::COLS * size_of::<T::Float>())).max(1);
    let groups = panels.div_ceil(task_panels);
    pool::run(groups * k.div_ceil(depth), |task| {
        let shared = &shared;
        let step = task / groups * depth;
        let depth = depth.min(k - step);
        let panel = task % groups * task_panels;
        let first = panel * K::COLS;
        // SAFETY: the block is inside the view, its panels inside `out`.
        unsafe {
            let start = shared.0.start;
            let block = StridedBlock {
                start: start.offset(first as isize * b.col + step as isize * b.row),
                line: b.col,
                step: b.row,
                lines: (task_panels * K::COLS).min(n - first),
                depth,
            };
            let out = shared.1.add((panels * step + panel * depth) * K::COLS);
            pack::<T, K>(Side::Right, block, out, depth * K::COLS);
        }
    });
}

fn plan<T: FloatElement, B: FloatElement<Float = T::Float>, K: MicroKernel<Float = T::Float>>(
    p: &GemmProblem<T, B>,
    access: RightAccess,
) -> GemmPlan {
    let threads = pool::threads();
    let work = p.m.saturating_mul(p.n).saturating_mul(p.k);
    let want = match work {
        _ if work < MIN_PARALLEL_MULTIPLIES => 1,
        _ if work < 16 * MIN_PARALLEL_MULTIPLIES => threads,
        _ => 4 * threads,
    };
    let (high, wide) = (p.m.div_ceil(K::ROWS), p.n.div_ceil(K::COLS));
    // Limits the panels so that a block of the left factor fills half of an L2 cache, and so does a block of a
    // task-local right factor.
    let depth = depth::<K>(p.k).max(1);
    let max_panels =
        |lines: usize| (L2_BLOCK_BYTES / (depth * lines * size_of::<T::Float>())).max(1);
    let (max_high, max_wide) = match access {
        RightAccess::Direct => (max_panels(K::ROWS), usize::MAX),
        RightAccess::Local => (max_panels(K::ROWS), max_panels(K::COLS)),
        RightAccess::Packed if T::SAME => (max_panels(K::ROWS), usize::MAX),
        RightAccess::Packed => (max_panels(K::ROWS).min(16), 16),
    };
    let even = |n: usize, pieces: usize| n.div_ceil(n.min(pieces).max(1));
    let (rows, cols) = if access == RightAccess::Local {
        let min_cols = MIN_LOCAL_ROW_BYTES / size_of::<T::Float>();
        let across = wide
            .div_ceil(max_wide)
            .max(want.min(p.n.div_ceil(min_cols)));
        let down = high.div_ceil(max_high).max(want.div_ceil(across));
        (even(high, down), even(wide, across))
    } else {
        // Every task widens its own part of a narrower right factor, so prefer splitting columns to splitting rows.
        let pieces = if T::SAME == B::SAME {
            high.div_ceil(MIN_TASK_ROW_PANELS)
        } else {
            high / (2 * MIN_TASK_ROW_PANELS)
        };
        let down = high.div_ceil(max_high).max(want.min(pieces));
        let down = if down > threads {
            down.next_multiple_of(threads)
        } else {
            down
        };
        let across = wide
            .div_ceil(max_wide)
            .max(want.div_ceil(down).min(wide.div_ceil(4)));
        (even(high, down), even(wide, across))
    };
    // Tall tiles have more rows than there are address registers: if both factors are read in place, addresses are
    // reloaded at every step. And rows whose stride is a multiple of a page evict each other from an 8-way L1 cache.
    let stride = p.a.row.unsigned_abs() * size_of::<T>();
    let is_far = access == RightAccess::Direct || stride.is_multiple_of(4096);
    let narrow = !(K::ROWS > 8 && p.m > 8 && is_far)
        && p.n <= MAX_DIRECT_COLS
        && (p.k > p.n || p.m <= MAX_DIRECT_COLS);
    GemmPlan {
        access,
        direct: T::SAME && (narrow || p.m <= MAX_DIRECT_ROWS),
        rows: rows * K::ROWS,
        cols: cols * K::COLS,
    }
}

fn tasks<T: FloatElement, B: FloatElement<Float = T::Float>, K: MicroKernel<Float = T::Float>>(
    p: &GemmProblem<T, B>,
    plan: &GemmPlan,
) {
    let (down, across) = (p.m.div_ceil(plan.rows), p.n.div_ceil(plan.cols));
    pool::run(down * across, |task| {
        let (row, col) = (task / across * plan.rows, task % across * plan.cols);
        let rows = row..p.m.min(row + plan.rows);
        let cols = col..p.n.min(col + plan.cols);
        scratch::local(|local| {
            // SAFETY: the tile is inside `c` and does not overlap those of other tasks.
            unsafe { tile::<T, B, K>(p, plan, rows, cols, local) }
        });
    });
}

/// The panels of the current block of the right factor: panel `i` starts at `start + i * panel`.
#[derive(Clone, Copy)]
struct RightPanels<F> {
    start: *const F,
    panel: usize,
    step: isize,
    packed: bool,
}

/// Computes a tile of `c`, given its rows and columns.
///
/// # Safety
/// Rows and columns must be in bounds, and the tile of `c` must not be accessed from elsewhere.
unsafe fn tile<
    T: FloatElement,
    B: FloatElement<Float = T::Float>,
    K: MicroKernel<Float = T::Float>,
>(
    p: &GemmProblem<T, B>,
    plan: &GemmPlan,
    rows: Range<usize>,
    cols: Range<usize>,
    local: &mut Local,
) {
    let (zero, one) = (T::Float::ZERO, T::Float::ONE);
    let (m, n) = (rows.len(), cols.len());
    let max_depth = depth::<K>(p.k);
    let Local { a, b, c } = local;
    let sums = if T::SAME {
        &mut []
    } else {
        c.get::<T::Float>(m * n)
    };
    for step in (0..p.k).step_by(max_depth) {
        let depth = max_depth.min(p.k - step);
        // SAFETY: rows, columns and steps are in the product.
        unsafe {
            let start =
                p.a.start
                    .offset(rows.start as isize * p.a.row + step as isize * p.a.col);
            let (left, left_row, left_step) = if plan.direct {
                (start.cast::<T::Float>(), p.a.row, p.a.col)
            } else {
                let block = StridedBlock {
                    start,
                    line: p.a.row,
                    step: p.a.col,
                    lines: m,
                    depth,
                };
                let out = a.get::<T::Float>(m.next_multiple_of(K::ROWS) * depth);
                pack::<T, K>(Side::Left, block, out.as_mut_ptr(), K::ROWS * depth);
                (out.as_ptr(), 1, K::ROWS as isize)
            };
            let left_panel = if plan.direct {
                K::ROWS as isize * left_row
            } else {
                (K::ROWS * depth) as isize
            };
            // Columns of `b` to pack here: all, those of a partial last panel, or none.
            let (right, own) = match p.b {
                RightOperand::Strided(view) => {
                    let start = view
                        .start
                        .offset(step as isize * view.row + cols.start as isize * view.col);
                    let own = if plan.access == RightAccess::Direct {
                        n - n % K::COLS
                    } else {
                        0
                    };
                    let block = StridedBlock {
                        start: start.offset(own as isize * view.col),
                        line: view.col,
                        step: view.row,
                        lines: n - own,
                        depth,
                    };
                    let out = b.get::<T::Float>((n - own).next_multiple_of(K::COLS) * depth);
                    pack::<B, K>(Side::Right, block, out.as_mut_ptr(), K::COLS * depth);
                    let start = start.cast::<T::Float>();
                    let panels = RightPanels {
                        start,
                        panel: K::COLS,
                        step: view.row,
                        packed: false,
                    };
                    (panels, own..n)
                }
                RightOperand::Panels(start) => {
                    let all = p.n.next_multiple_of(K::COLS);
                    let panels = RightPanels {
                        start: start.add(step * all + cols.start * depth),
                        panel: K::COLS * depth,
                        step: K::COLS as isize,
                        packed: true,
                    };
                    (panels, n..n)
                }
                RightOperand::Packed(_) => {
                    b.get::<T::Float>(K::COLS * depth);
                    let panels = RightPanels {
                        start: std::ptr::null(),
                        panel: 0,
                        step: K::COLS as isize,
                        packed: true,
                    };
                    (panels, n..n)
                }
            };
            for col in (0..n).step_by(K::COLS) {
                let length = K::COLS * depth;
                let narrow = match p.b {
                    RightOperand::Packed(start) => {
                        let all = p.n.next_multiple_of(K::COLS);
                        Some(start.add(step * all + (cols.start + col) * depth))
                    }
                    _ => None,
                };
                let (panel, panel_step, packed) = if let Some(from) = narrow {
                    let out = b.get::<T::Float>(length);
                    widen(K::LEVEL, std::slice::from_raw_parts(from, length), out);
                    (out.as_ptr(), K::COLS as isize, true)
                } else if own.contains(&col) {
                    let at = (col - own.start) * depth;
                    let start = b.start::<T::Float>();
                    (start.add(at), K::COLS as isize, true)
                } else {
                    let start = right.start.add(col / K::COLS * right.panel);
                    (start, right.step, right.packed)
                };
                // Prefetch the next panel while this one is in use, a share with each tile.
                let (next, bytes) = match narrow {
                    Some(from) => (from.wrapping_add(length).cast(), length * size_of::<B>()),
                    None => (panel.wrapping_add(length), length * size_of::<T::Float>()),
                };
                let share = (bytes / 64).div_ceil(m.div_ceil(K::ROWS));
                let has_next = packed && col + K::COLS < n;
                for row in (0..m).step_by(K::ROWS) {
                    let (c, c_row, c_col, alpha, beta) = if T::SAME {
                        let row = (rows.start + row) as isize * p.c.row;
                        let c =
                            p.c.start
                                .offset(row + (cols.start + col) as isize * p.c.col);
                        let beta = if step == 0 { p.mix.beta } else { one };
                        (c.cast::<T::Float>(), p.c.row, p.c.col, p.mix.alpha, beta)
                    } else {
                        let beta = if step == 0 { zero } else { one };
                        let c = sums.as_mut_ptr().add(row * n + col);
                        (c, n as isize, 1, one, beta)
                    };
                    K::tile(&TileArgs {
                        depth,
                        a: left.offset((row / K::ROWS) as isize * left_panel),
                        a_row: left_row,
                        a_step: left_step,
                        b: panel,
                        b_step: panel_step,
                        c,
                        c_row,
                        c_col,
                        rows: K::ROWS.min(m - row),
                        cols: K::COLS.min(n - col),
                        alpha,
                        beta,
                        a_packed: !plan.direct,
                        b_packed: packed,
                        prefetch: next.wrapping_byte_add(64 * share * (row / K::ROWS)),
                        prefetch_lines: if has_next { share.min(16) } else { 0 },
                    });
                }
            }
        }
    }
    if T::SAME {
        return;
    }
    for (row, sums) in sums.chunks_mut(n).enumerate() {
        // SAFETY: the row is in the tile.
        unsafe {
            let row = (rows.start + row) as isize * p.c.row;
            let c = p.c.start.offset(row + cols.start as isize * p.c.col);
            if p.c.col == 1 {
                finish(p.mix, sums, std::slice::from_raw_parts_mut(c, n));
            } else {
                for (col, sum) in sums.chunks_mut(1).enumerate() {
                    let c = c.offset(col as isize * p.c.col);
                    finish(p.mix, sum, std::slice::from_raw_parts_mut(c, 1));
                }
            }
        }
    }
}
