//! The loops around the micro-kernel: what is packed, what is cut into tasks, what stays in which cache.
#![expect(
    unsafe_code,
    reason = "tasks read views and write disjoint tiles through pointers"
)]

use std::ops::Range;

use super::float::{Float, Wide, finish, widen};
use super::kernel::{Kernel, Side, Tile};
use super::pack::{Block, pack};
use super::problem::{Product, Right, View};
use super::scratch::{self, Local};
use crate::cpu::pool;
use crate::storage::Storage;

/// How the right factor reaches the micro-kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Feed {
    /// Read where it is; its columns are contiguous.
    Direct,
    /// Packed by each task for itself.
    Local,
    /// Packed before, for all tasks.
    Packed,
}

/// Where a product is cut.
#[derive(Clone, Copy)]
struct Plan {
    feed: Feed,
    /// Whether the left factor is read where it is.
    direct: bool,
    /// Rows and columns of a task.
    rows: usize,
    cols: usize,
}

/// Bytes of a right panel: most of a first-level cache, beside the left panel that passes through.
const PANEL_BYTES: usize = 24 << 10;

/// Steps of `k` that are summed at a time, at least, where there are so many: results are read and written once for
/// each. Wide panels of AVX-512 come from the second-level cache then, in time.
const LEAST_DEPTH: usize = 384;

/// Bytes of the block that a task packs: half of a second-level cache.
const BLOCK_BYTES: usize = 256 << 10;

/// Bytes of a right factor that is packed for all tasks at once: most of a third-level cache.
const SHARED_BYTES: usize = 24 << 20;

/// Bytes of it that one task packs.
const PACK_BYTES: usize = 128 << 10;

/// A right factor of so few bytes is read where it is; above that, its rows begin to displace each other
/// from the first-level cache.
const DIRECT_BYTES: usize = 20 << 10;

/// A left factor of so few rows is read where it is, or one that meets so few columns unless it is tall
/// and narrow: packing would not pay.
const DIRECT_ROWS: usize = 12;
const DIRECT_COLS: usize = 128;

/// A right factor of so few bytes, or one that so few rows are multiplied with, is packed by each task
/// for itself: that saves a round of all threads.
const LOCAL_BYTES: usize = 100 << 10;
const LOCAL_ROWS: usize = 96;

/// Panels of rows of a task, at least, as long as there are columns to divide as well: a right panel
/// that was fetched should be used several times.
const LEAST_PANELS: usize = 10;

/// Bytes of a row of the right factor that a task packs for itself, at least: two panels of AVX2, one of AVX-512.
const LEAST_BYTES: usize = 128;

/// Multiplications that are worth waking a thread for: some 10 µs on one core.
const ALONE: usize = 500_000;

/// Steps of `k` that are summed in registers at a time; it depends on `k` alone, so that the bits of a
/// product do not depend on how it is cut otherwise.
pub(super) fn depth<K: Kernel>(k: usize) -> usize {
    let most = (PANEL_BYTES / (K::COLS * size_of::<K::Float>())).max(LEAST_DEPTH);
    k.div_ceil(k.div_ceil(most).max(1)).next_multiple_of(4)
}

/// Computes a product with a kernel.
pub(super) fn compute<T: Wide, B: Wide<Float = T::Float>, K: Kernel<Float = T::Float>>(
    p: &Product<T, B>,
) {
    let Right::View(b) = p.b else {
        return tasks::<T, B, K>(p, &plan::<T, B, K>(p, Feed::Packed));
    };
    // Only what is packed is of another type.
    let b = View {
        start: b.start.cast::<T>(),
        row: b.row,
        col: b.col,
    };
    // A narrow product is computed the other way round where that leaves fewer lanes idle.
    let cost = |m: usize, n: usize| m.next_multiple_of(2) * n.next_multiple_of(K::COLS);
    if cost(p.n, p.m) * 5 < cost(p.m, p.n) * 4 {
        let flip = |v: View<*const T>| View {
            row: v.col,
            col: v.row,
            ..v
        };
        let flipped = Product {
            m: p.n,
            n: p.m,
            a: flip(b),
            b: Right::View(flip(p.a)),
            k: p.k,
            mix: p.mix,
            c: View {
                row: p.c.col,
                col: p.c.row,
                ..p.c
            },
        };
        return compute_view::<T, K>(&flipped);
    }
    compute_view::<T, K>(&Product {
        m: p.m,
        n: p.n,
        k: p.k,
        mix: p.mix,
        a: p.a,
        b: Right::View(b),
        c: p.c,
    });
}

fn compute_view<T: Wide, K: Kernel<Float = T::Float>>(p: &Product<T>) {
    let Right::View(b) = p.b else { return };
    let bytes = p.k.saturating_mul(p.n).saturating_mul(size_of::<T>());
    let feed = if T::SAME && b.col == 1 && bytes <= DIRECT_BYTES {
        Feed::Direct
    } else if p.m <= LOCAL_ROWS || bytes <= LOCAL_BYTES {
        Feed::Local
    } else {
        Feed::Packed
    };
    if feed != Feed::Packed {
        return tasks::<T, T, K>(p, &plan::<T, T, K>(p, feed));
    }
    let row = p.k * size_of::<T::Float>();
    let cols = (SHARED_BYTES / row.max(1)).max(16 * K::COLS);
    let mut cols = p.n.div_ceil(p.n.div_ceil(cols)).next_multiple_of(K::COLS);
    // Counted as memory of tensors is. Where there is not enough, fewer columns are packed at a time, and
    // in the end each task packs for itself what it needs.
    let mut memory = loop {
        match Storage::new("matmul", cols.saturating_mul(row)) {
            Ok(memory) => break memory,
            Err(_) if cols > K::COLS => cols = (cols / 2).next_multiple_of(K::COLS),
            Err(_) => return tasks::<T, T, K>(p, &plan::<T, T, K>(p, Feed::Local)),
        }
    };
    let panels = bytemuck::cast_slice_mut(memory.bytes_mut().expect("nobody else has it"));
    for first in (0..p.n).step_by(cols) {
        let n = cols.min(p.n - first);
        let panels = &mut panels[..n.next_multiple_of(K::COLS) * p.k];
        // SAFETY: columns below `n` exist.
        let (b, c) = unsafe {
            let b = View {
                start: b.start.offset(first as isize * b.col),
                ..b
            };
            let c = View {
                start: p.c.start.offset(first as isize * p.c.col),
                ..p.c
            };
            (b, c)
        };
        pack_shared::<T, K>(b, p.k, n, panels);
        let part = Product {
            n,
            b: Right::Panels(panels.as_ptr()),
            c,
            ..*p
        };
        tasks::<T, T, K>(&part, &plan::<T, T, K>(&part, Feed::Packed));
    }
}

/// Packs a right factor of `k` by `n`, on all threads: for every block of steps, all panels.
pub(super) fn pack_shared<T: Wide, K: Kernel<Float = T::Float>>(
    b: View<*const T>,
    k: usize,
    n: usize,
    out: &mut [T::Float],
) {
    struct Shared<T, F>(View<*const T>, *mut F);
    // SAFETY: tasks read the view and write disjoint panels.
    unsafe impl<T, F> Sync for Shared<T, F> {}

    let shared = Shared(b, out.as_mut_ptr());
    let depth = depth::<K>(k);
    let panels = n.div_ceil(K::COLS);
    let some = (PACK_BYTES / (depth * K::COLS * size_of::<T::Float>())).max(1);
    let groups = panels.div_ceil(some);
    pool::run(groups * k.div_ceil(depth), |task| {
        let shared = &shared;
        let step = task / groups * depth;
        let depth = depth.min(k - step);
        let panel = task % groups * some;
        let first = panel * K::COLS;
        // SAFETY: the block lies in the view, its panels in `out`.
        unsafe {
            let start = shared.0.start;
            let block = Block {
                start: start.offset(first as isize * b.col + step as isize * b.row),
                line: b.col,
                step: b.row,
                lines: (some * K::COLS).min(n - first),
                depth,
            };
            let out = shared.1.add((panels * step + panel * depth) * K::COLS);
            pack::<T, K>(Side::Right, block, out, depth * K::COLS);
        }
    });
}

fn plan<T: Wide, B: Wide<Float = T::Float>, K: Kernel<Float = T::Float>>(
    p: &Product<T, B>,
    feed: Feed,
) -> Plan {
    let threads = pool::threads();
    let work = p.m.saturating_mul(p.n).saturating_mul(p.k);
    let want = match work {
        _ if work < ALONE => 1,
        _ if work < 16 * ALONE => threads,
        _ => 4 * threads,
    };
    let (high, wide) = (p.m.div_ceil(K::ROWS), p.n.div_ceil(K::COLS));
    // At most so many panels that a block of the left factor fills half of a second-level cache; the
    // same for a block of the right factor that a task packs for itself.
    let depth = depth::<K>(p.k).max(1);
    let most = |lines: usize| (BLOCK_BYTES / (depth * lines * size_of::<T::Float>())).max(1);
    let (high_most, wide_most) = match feed {
        Feed::Direct => (most(K::ROWS), usize::MAX),
        Feed::Local => (most(K::ROWS), most(K::COLS)),
        Feed::Packed if T::SAME => (most(K::ROWS), usize::MAX),
        Feed::Packed => (most(K::ROWS).min(16), 16),
    };
    let even = |n: usize, pieces: usize| n.div_ceil(n.min(pieces).max(1));
    let (rows, cols) = if feed == Feed::Local {
        let least = LEAST_BYTES / size_of::<T::Float>();
        let across = wide.div_ceil(wide_most).max(want.min(p.n.div_ceil(least)));
        let down = high.div_ceil(high_most).max(want.div_ceil(across));
        (even(high, down), even(wide, across))
    } else {
        // A narrower right factor is widened by every task for itself: rather more columns than rows of tasks.
        let pieces = if T::SAME == B::SAME {
            high.div_ceil(LEAST_PANELS)
        } else {
            high / (2 * LEAST_PANELS)
        };
        let down = high.div_ceil(high_most).max(want.min(pieces));
        let down = if down > threads {
            down.next_multiple_of(threads)
        } else {
            down
        };
        let across = wide
            .div_ceil(wide_most)
            .max(want.div_ceil(down).min(wide.div_ceil(4)));
        (even(high, down), even(wide, across))
    };
    // Tall tiles have more rows than there are registers for addresses: where both factors are read directly, these are
    // loaded again at every step. And rows that are a multiple of a page apart displace each other from a first-level
    // cache of eight ways.
    let stride = p.a.row.unsigned_abs() * size_of::<T>();
    let is_far = feed == Feed::Direct || stride.is_multiple_of(4096);
    let narrow = !(K::ROWS > 8 && p.m > 8 && is_far)
        && p.n <= DIRECT_COLS
        && (p.k > p.n || p.m <= DIRECT_COLS);
    Plan {
        feed,
        direct: T::SAME && (narrow || p.m <= DIRECT_ROWS),
        rows: rows * K::ROWS,
        cols: cols * K::COLS,
    }
}

fn tasks<T: Wide, B: Wide<Float = T::Float>, K: Kernel<Float = T::Float>>(
    p: &Product<T, B>,
    plan: &Plan,
) {
    let (down, across) = (p.m.div_ceil(plan.rows), p.n.div_ceil(plan.cols));
    pool::run(down * across, |task| {
        let (row, col) = (task / across * plan.rows, task % across * plan.cols);
        let rows = row..p.m.min(row + plan.rows);
        let cols = col..p.n.min(col + plan.cols);
        scratch::local(|local| {
            // SAFETY: the tile lies in `c`, and no other task has a part of it.
            unsafe { tile::<T, B, K>(p, plan, rows, cols, local) }
        });
    });
}

/// The block of the right factor that is in use, as panels: panel `i` starts at `start + i * panel`.
#[derive(Clone, Copy)]
struct Panels<F> {
    start: *const F,
    panel: usize,
    step: isize,
    packed: bool,
}

/// Computes the part of `c` in the rows and columns given.
///
/// # Safety
/// Rows and columns must be in the product and nobody else may use them in `c`.
unsafe fn tile<T: Wide, B: Wide<Float = T::Float>, K: Kernel<Float = T::Float>>(
    p: &Product<T, B>,
    plan: &Plan,
    rows: Range<usize>,
    cols: Range<usize>,
    local: &mut Local,
) {
    let (zero, one) = (T::Float::ZERO, T::Float::ONE);
    let (m, n) = (rows.len(), cols.len());
    let depth_most = depth::<K>(p.k);
    let Local { a, b, c } = local;
    let sums = if T::SAME {
        &mut []
    } else {
        c.get::<T::Float>(m * n)
    };
    for step in (0..p.k).step_by(depth_most) {
        let depth = depth_most.min(p.k - step);
        // SAFETY: rows, columns and steps are in the product.
        unsafe {
            let start =
                p.a.start
                    .offset(rows.start as isize * p.a.row + step as isize * p.a.col);
            let (left, left_row, left_step) = if plan.direct {
                (start.cast::<T::Float>(), p.a.row, p.a.col)
            } else {
                let block = Block {
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
            // Panels of `b` that need packing here: all, the last one if it is not whole, or none.
            let (right, own) = match p.b {
                Right::View(view) => {
                    let start = view
                        .start
                        .offset(step as isize * view.row + cols.start as isize * view.col);
                    let own = if plan.feed == Feed::Direct {
                        n - n % K::COLS
                    } else {
                        0
                    };
                    let block = Block {
                        start: start.offset(own as isize * view.col),
                        line: view.col,
                        step: view.row,
                        lines: n - own,
                        depth,
                    };
                    let out = b.get::<T::Float>((n - own).next_multiple_of(K::COLS) * depth);
                    pack::<B, K>(Side::Right, block, out.as_mut_ptr(), K::COLS * depth);
                    let start = start.cast::<T::Float>();
                    let panels = Panels {
                        start,
                        panel: K::COLS,
                        step: view.row,
                        packed: false,
                    };
                    (panels, own..n)
                }
                Right::Panels(start) => {
                    let all = p.n.next_multiple_of(K::COLS);
                    let panels = Panels {
                        start: start.add(step * all + cols.start * depth),
                        panel: K::COLS * depth,
                        step: K::COLS as isize,
                        packed: true,
                    };
                    (panels, n..n)
                }
                Right::Packed(_) => {
                    b.get::<T::Float>(K::COLS * depth);
                    let panels = Panels {
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
                    Right::Packed(start) => {
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
                // While the rows of this panel are computed, the next one is fetched, a part with each tile.
                let (next, bytes) = match narrow {
                    Some(from) => (from.wrapping_add(length).cast(), length * size_of::<B>()),
                    None => (panel.wrapping_add(length), length * size_of::<T::Float>()),
                };
                let share = (bytes / 64).div_ceil(m.div_ceil(K::ROWS));
                let ahead = packed && col + K::COLS < n;
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
                    K::tile(&Tile {
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
                        soon: next.wrapping_byte_add(64 * share * (row / K::ROWS)),
                        soon_lines: if ahead { share.min(16) } else { 0 },
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
