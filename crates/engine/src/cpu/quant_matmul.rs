//! Matmul with quantised weights on the CPU.
//!
//! [`Precision::Exact`] multiplies dequantised weights with `f32` activations. [`Precision::Fast`] quantises activations
//! to 8 bits with a scale for every 32 ([`activation`]), or to two such terms, and uses integer dot products: eight rows
//! of weights at a time if they were repacked ([`panel`]; kernels in `avx2`, or `dot` with `avx512` or `neon`), else row
//! by row ([`row`]). Half-precision weights use 16-bit fixed point for many activation rows ([`fixed_point`]), else
//! `f32`. Results are bit-identical for any number of threads and, on the fast path, for any batch split, except between
//! those two kernels of half precision.

mod activation;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(any(test, target_arch = "aarch64", target_arch = "x86_64"))]
mod dot;
mod fixed_point;
mod half;
#[cfg(target_arch = "aarch64")]
mod neon;
mod panel;
mod repacked;
mod row;
mod shared_output;

use std::cell::RefCell;

use self::activation::Activations;
use self::fixed_point::FixedPointActivations;
pub(crate) use self::repacked::Repacked;
use self::shared_output::SharedOutput;
use super::gemm::{self, Matrix};
use super::pool::{self, DisjointSlice};
use crate::dispatch::{Dense, Input, Output};
use crate::ops::quant_matmul::QuantMatmul;
use crate::quant::{Precision, Product, QuantMatrix, Weights};
use crate::{Error, Result};

/// Bytes of weights in a task: enough to hide the cost of handing it out, few enough that threads finish at about the
/// same time.
const TASK_BYTES: usize = 24 << 10;

/// Maximum bytes of weights in a task with few activation rows. Those are limited by memory bandwidth, and two threads
/// that read long runs get a third more than threads that alternate: the prefetch at the end of a task mostly fetches
/// what the other thread reads.
const MAX_STREAMED_TASK_BYTES: usize = 256 << 10;

/// Maximum activation rows for which memory bandwidth is the limit.
const MAX_STREAMED_ROWS: usize = 4;

/// Maximum activation rows for which weights are dequantised row by row (GEMV) instead of by tiles (GEMM).
const MAX_GEMV_ROWS: usize = 6;

/// Elements of a dequantised tile for GEMM: it stays in the L2 caches of two cores, and the left factor is packed once
/// per tile.
const DEQUANT_TILE_LEN: usize = 512 << 10;

/// Runs the op.
pub(crate) fn run(op: &QuantMatmul, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let x = Dense::new("quant_matmul", inputs[0])?;
    let matrix = &op.matrix;
    multiply(
        x.all(),
        op.precision,
        false,
        &mut [Product {
            matrix,
            to: output.all(),
        }],
    )
}

#[derive(Default)]
struct MatmulScratch {
    activations: Activations,
    fixed_point_x: FixedPointActivations,
    tile: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<MatmulScratch> = RefCell::default();
}

/// Multiplies the rows of `x` with every matrix of `products`. If `fine`, activations are quantised to two terms.
pub(crate) fn multiply(
    x: &[f32],
    precision: Precision,
    fine: bool,
    products: &mut [Product<'_>],
) -> Result<()> {
    let Some(first) = products.first() else {
        return Ok(());
    };
    let cols = first.matrix.cols();
    let rows = x.len().checked_div(cols).unwrap_or(0);
    for p in products.iter() {
        if p.matrix.cols() != cols || rows * cols != x.len() || p.to.len() != rows * p.matrix.rows()
        {
            return Err(Error::Invalid {
                op: "quant_matmul",
                reason: format!(
                    "{} activations times {:?} do not match an output of {}",
                    x.len(),
                    p.matrix,
                    p.to.len()
                ),
            });
        }
    }
    if rows == 0 {
        return Ok(());
    }
    // Taken out during the call, so that a nested call gets another scratch.
    let mut scratch = SCRATCH.take();
    let blocking = |p: &Product<'_>| p.matrix.repacked_weights().and_then(Repacked::blocking);
    let may_round = precision == Precision::Fast && !fine && rows >= fixed_point::MIN_ROWS;
    let blocking = products.iter().find_map(blocking).filter(|_| may_round);
    // All products or none: values out of range are rare.
    let is_fixed_point = blocking.is_some_and(|blocking| scratch.fixed_point_x.set(x, blocking));
    let path = |p: &Product<'_>| match (precision, p.matrix.weights(), p.matrix.repacked_weights())
    {
        (Precision::Fast, Weights::Block(_), _) => MatmulPath::Integers,
        (Precision::Fast, _, Some(half)) if is_fixed_point && half.blocking().is_some() => {
            MatmulPath::FixedPoint
        }
        (Precision::Fast, _, Some(_)) => MatmulPath::Packed,
        _ => MatmulPath::Exact,
    };
    let is = |expected: MatmulPath| move |p: &Product<'_>| path(p) == expected;
    if products.iter().any(is(MatmulPath::Integers)) {
        let terms = 1 + usize::from(fine);
        let biased = products.iter().any(|p| match p.matrix.repacked_weights() {
            Some(Repacked::Blocks(panels)) => panels.wants_biased(rows * terms),
            _ => false,
        });
        scratch.activations.set(x, cols, terms, biased);
        let body = |m: &QuantMatrix, range, to: &SharedOutput<'_>| match m.repacked_weights() {
            Some(Repacked::Blocks(panels)) => panels.multiply(&scratch.activations, range, to),
            _ => row::multiply(m, &scratch.activations, range, to),
        };
        share(
            products,
            rows,
            is(MatmulPath::Integers),
            Repacked::height,
            body,
        );
    }
    if is_fixed_point {
        let body = |m: &QuantMatrix, range, to: &SharedOutput<'_>| {
            if let Some(repacked) = m.repacked_weights() {
                repacked.multiply_fixed_point(&scratch.fixed_point_x, range, to);
            }
        };
        share(
            products,
            rows,
            is(MatmulPath::FixedPoint),
            |_| fixed_point::TILE_COLS,
            body,
        );
    }
    if rows == 1 {
        let body = |m: &QuantMatrix, range: std::ops::Range<usize>, to: &SharedOutput<'_>| {
            if let Some(repacked) = m.repacked_weights() {
                repacked.vector(x, range.clone(), to.get(0, range.start, range.len()));
            }
        };
        share(
            products,
            rows,
            is(MatmulPath::Packed),
            Repacked::height,
            body,
        );
    } else {
        for p in products
            .iter_mut()
            .filter(|p| path(p) == MatmulPath::Packed)
        {
            if let Some(repacked) = p.matrix.repacked_weights() {
                repacked.multiply(x, p.to);
            }
        }
    }
    if rows <= MAX_GEMV_ROWS {
        let body = |m: &QuantMatrix, range, to: &SharedOutput<'_>| row::exact(m, x, range, to);
        share(
            products,
            rows,
            is(MatmulPath::Exact),
            Repacked::height,
            body,
        );
    } else {
        for p in products.iter_mut().filter(|p| path(p) == MatmulPath::Exact) {
            multiply_by_tiles(p, x, &mut scratch.tile);
        }
    }
    SCRATCH.replace(scratch);
    Ok(())
}

/// How a product is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MatmulPath {
    /// Integer dot products of quantised blocks.
    Integers,
    /// Fixed-point i16 GEMM of half-precision weights.
    FixedPoint,
    /// GEMM or GEMV of packed half-precision weights in `f32`.
    Packed,
    /// Rows dequantised on the fly.
    Exact,
}

/// How the rows of a product are split into tasks: long ones first, short ones at the end.
#[derive(Clone, Copy, Default)]
struct TaskSplit {
    /// Rows of a long task, and of a short one.
    long_rows: usize,
    short_rows: usize,
    /// Number of long tasks, and of all tasks.
    long_tasks: usize,
    tasks: usize,
}

impl TaskSplit {
    /// Splits rows of `row` bytes at multiples of `height`, with up to `run` bytes in a long task and the last `tail`
    /// bytes in short ones.
    fn new(rows: usize, row: usize, height: usize, run: usize, tail: usize) -> Self {
        let task_rows = |bytes: usize| (bytes / row.max(1)).next_multiple_of(height).max(height);
        let (long_rows, short_rows) = (task_rows(run.max(TASK_BYTES)), task_rows(TASK_BYTES));
        let long_tasks = rows.saturating_sub(tail / row.max(1)) / long_rows;
        Self {
            long_rows,
            short_rows,
            long_tasks,
            tasks: long_tasks + (rows - long_tasks * long_rows).div_ceil(short_rows),
        }
    }

    /// The rows of a task.
    fn range(&self, task: usize, rows: usize) -> std::ops::Range<usize> {
        let (first, count) = match task.checked_sub(self.long_tasks) {
            None => (task * self.long_rows, self.long_rows),
            Some(i) => {
                let first = self.long_tasks * self.long_rows + i * self.short_rows;
                (first, self.short_rows)
            }
        };
        first..(first + count).min(rows)
    }
}

/// Calls `body` for ranges of rows of all products that satisfy `filter`, on all threads. Repacked weights are split at
/// multiples of `height` rows.
fn share(
    products: &mut [Product<'_>],
    vectors: usize,
    filter: impl Fn(&Product<'_>) -> bool,
    height: impl Fn(&Repacked) -> usize,
    body: impl Fn(&QuantMatrix, std::ops::Range<usize>, &SharedOutput<'_>) + Sync,
) {
    // A layer has no more; others run in several jobs.
    const MAX_BATCHED_PRODUCTS: usize = 4;
    for products in products.chunks_mut(MAX_BATCHED_PRODUCTS) {
        let bytes: usize = products
            .iter()
            .filter(|p| filter(p))
            .map(|p| p.matrix.bytes_read())
            .sum();
        // Results do not depend on the split, so it may depend on the number of threads.
        let run = if vectors <= MAX_STREAMED_ROWS {
            (bytes / (8 * pool::threads())).min(MAX_STREAMED_TASK_BYTES)
        } else {
            TASK_BYTES
        };
        let last = products.iter().rposition(&filter);
        let mut splits = [TaskSplit::default(); MAX_BATCHED_PRODUCTS];
        for (i, p) in products.iter().enumerate().filter(|(_, p)| filter(p)) {
            let row = p.matrix.bytes_read() / p.matrix.rows().max(1);
            let height = p
                .matrix
                .repacked_weights()
                .map_or(panel::PANEL_ROWS, &height);
            let tail = if last == Some(i) {
                2 * pool::threads() * run
            } else {
                0
            };
            splits[i] = TaskSplit::new(p.matrix.rows(), row, height, run, tail);
        }
        let total = splits.iter().map(|s| s.tasks).sum();
        if total == 0 {
            continue;
        }
        let mut targets = products
            .iter_mut()
            .map(|p| (p.matrix, DisjointSlice::new(p.to)));
        let targets: [_; MAX_BATCHED_PRODUCTS] = std::array::from_fn(|_| targets.next());
        pool::run(total, |mut task| {
            let mut i = 0;
            while task >= splits[i].tasks {
                task -= splits[i].tasks;
                i += 1;
            }
            let (matrix, all) = targets[i]
                .as_ref()
                .expect("every task belongs to a product");
            let rows = matrix.rows();
            body(
                matrix,
                splits[i].range(task, rows),
                &SharedOutput { all, vectors, rows },
            );
        });
    }
}

/// GEMM with weights dequantised tile by tile.
fn multiply_by_tiles(product: &mut Product<'_>, x: &[f32], scratch: &mut Vec<f32>) {
    let (matrix, cols) = (product.matrix, product.matrix.cols());
    let (vectors, rows) = (x.len() / cols, matrix.rows());
    let height = (DEQUANT_TILE_LEN / cols)
        .clamp(64, rows.max(64))
        .next_multiple_of(panel::PANEL_ROWS);
    if scratch.len() < height * cols {
        scratch.resize(height * cols, 0.0);
    }
    let left = Matrix::contiguous(x, vectors, cols);
    for first in (0..rows).step_by(height) {
        let count = height.min(rows - first);
        let tile = &mut scratch[..count * cols];
        pool::for_each_chunk(tile, panel::PANEL_ROWS * cols, |i, to| {
            row::widen_rows(matrix, first + i * panel::PANEL_ROWS, to);
        });
        let right = Matrix::contiguous(&*tile, count, cols).t();
        gemm::gemm(1.0, left, right, 0.0, &mut product.to[first..], rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_cover_all_rows_in_order_and_start_at_panels() {
        for rows in [0, 1, 7, 16, 100, 1536, 8960, 8961] {
            for (run, tail) in [
                (0, 0),
                (TASK_BYTES, 0),
                (MAX_STREAMED_TASK_BYTES, 0),
                (MAX_STREAMED_TASK_BYTES, 4 * MAX_STREAMED_TASK_BYTES),
                (MAX_STREAMED_TASK_BYTES, usize::MAX),
            ] {
                for row in [0, 1, 324, 888, 5180, 200_000] {
                    let split = TaskSplit::new(rows, row, 16, run, tail);
                    let mut next = 0;
                    for task in 0..split.tasks {
                        let range = split.range(task, rows);
                        assert!(range.start == next && range.start.is_multiple_of(16));
                        assert!(!range.is_empty());
                        next = range.end;
                    }
                    assert_eq!(next, rows, "{rows} rows of {row}, {run}, {tail}");
                }
            }
        }
    }

    #[test]
    fn the_last_tasks_are_short() {
        let run = MAX_STREAMED_TASK_BYTES;
        let split = TaskSplit::new(8960, 888, 16, run, 4 * run);
        assert_eq!(split.range(0, 8960), 0..304);
        assert!(split.range(split.tasks - 1, 8960).len() <= 32);
        assert!((split.tasks - split.long_tasks) * 32 * 888 >= 4 * run);
    }
}
