//! Products with quantised weights on the CPU.
//!
//! [`Precision::Exact`] multiplies dequantised weights with `f32` activations. [`Precision::Fast`] rounds
//! activations to 8 bits with a scale for every 32 ([`activation`]), or to two such numbers, and multiplies integers, eight rows of
//! weights at a time where they were repacked so ([`panel`]; the loops are those of `avx2`, or `dot` with `avx512` or `neon`), else row by
//! row ([`row`]). HalfWeights are multiplied with many activations as 16-bit integers ([`short`]), else in `f32`. A product has
//! the same bits on any number of threads, and however many activations are multiplied together on the fast path, but for
//! those two ways of halves.

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
use self::fixed_point::Shorts;
pub(crate) use self::repacked::Repacked;
use self::shared_output::SharedOutput;
use super::gemm::{self, Matrix};
use super::pool::{self, DisjointSlice};
use crate::dispatch::{Dense, Input, Output};
use crate::ops::quant_matmul::QuantMatmul;
use crate::quant::{Precision, Product, QuantMatrix, Weights};
use crate::{Error, Result};

/// Bytes of weights in a task: enough to hide what handing it out costs, few enough that threads end together.
const TASK: usize = 24 << 10;

/// Bytes of weights in a task of few vectors, at most. These wait for memory, and two threads that read long runs of it
/// get a third more than those that take turns: what is fetched ahead at the end of a task is mostly the other's.
const RUN: usize = 256 << 10;

/// Vectors up to which that is so.
const STREAMED: usize = 4;

/// Vectors up to which rows of weights are dequantised for themselves: products of matrices are not worth it.
const FEW: usize = 6;

/// Numbers of a dequantised tile for products of matrices: it stays in the second cache of two cores, and the
/// left factor is packed as many times as there are tiles.
const TILE: usize = 512 << 10;

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
struct Scratch {
    activations: Activations,
    shorts: Shorts,
    tile: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// All products of `x`, rows of as many numbers as the matrices have columns; with `fine`, integers are pairs.
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
                    "{} numbers times {:?} do not make {}",
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
    // Taken out meanwhile, so that a call inside a call finds another one.
    let mut scratch = SCRATCH.take();
    let cut = |p: &Product<'_>| p.matrix.repacked_weights().and_then(Repacked::cut);
    let may = precision == Precision::Fast && !fine && rows >= fixed_point::LEAST;
    let cuts = products.iter().find_map(cut).filter(|_| may);
    // All at once or none: numbers that are not tame are rare.
    let is_short = cuts.is_some_and(|cut| scratch.shorts.set(x, cut));
    let way = |p: &Product<'_>| match (precision, p.matrix.weights(), p.matrix.repacked_weights()) {
        (Precision::Fast, Weights::Block(_), _) => Way::Integers,
        (Precision::Fast, _, Some(halves)) if is_short && halves.cut().is_some() => Way::Shorts,
        (Precision::Fast, _, Some(_)) => Way::Packed,
        _ => Way::Exact,
    };
    let is = |wanted: Way| move |p: &Product<'_>| way(p) == wanted;
    if products.iter().any(is(Way::Integers)) {
        let parts = 1 + usize::from(fine);
        let raised = products.iter().any(|p| match p.matrix.repacked_weights() {
            Some(Repacked::Blocks(panels)) => panels.wants_raised(rows * parts),
            _ => false,
        });
        scratch.activations.set(x, cols, parts, raised);
        let body = |m: &QuantMatrix, range, to: &SharedOutput<'_>| match m.repacked_weights() {
            Some(Repacked::Blocks(panels)) => panels.multiply(&scratch.activations, range, to),
            _ => row::multiply(m, &scratch.activations, range, to),
        };
        share(products, rows, is(Way::Integers), Repacked::height, body);
    }
    if is_short {
        let body = |m: &QuantMatrix, range, to: &SharedOutput<'_>| {
            if let Some(repacked) = m.repacked_weights() {
                repacked.multiply_shorts(&scratch.shorts, range, to);
            }
        };
        share(
            products,
            rows,
            is(Way::Shorts),
            |_| fixed_point::WIDTH,
            body,
        );
    }
    if rows == 1 {
        let body = |m: &QuantMatrix, range: std::ops::Range<usize>, to: &SharedOutput<'_>| {
            if let Some(repacked) = m.repacked_weights() {
                repacked.vector(x, range.clone(), to.get(0, range.start, range.len()));
            }
        };
        share(products, rows, is(Way::Packed), Repacked::height, body);
    } else {
        for p in products.iter_mut().filter(|p| way(p) == Way::Packed) {
            if let Some(repacked) = p.matrix.repacked_weights() {
                repacked.multiply(x, p.to);
            }
        }
    }
    if rows <= FEW {
        let body = |m: &QuantMatrix, range, to: &SharedOutput<'_>| row::exact(m, x, range, to);
        share(products, rows, is(Way::Exact), Repacked::height, body);
    } else {
        for p in products.iter_mut().filter(|p| way(p) == Way::Exact) {
            tiles(p, x, &mut scratch.tile);
        }
    }
    SCRATCH.replace(scratch);
    Ok(())
}

/// How a product is computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Blocks, as integers.
    Integers,
    /// HalfWeights, as integers.
    Shorts,
    /// Plain floats in the panels of matrix products.
    Packed,
    /// Rows dequantised as they are needed.
    Exact,
}

/// Rows that tasks are cut at: the height of panels.
const HEIGHT: usize = panel::HEIGHT;

/// How the rows of a product become tasks: long ones first, and short ones at the end.
#[derive(Clone, Copy, Default)]
struct Cut {
    /// Rows of a long task, and of a short one.
    long: usize,
    short: usize,
    /// Tasks of the first kind, and of both.
    longs: usize,
    tasks: usize,
}

impl Cut {
    /// Cuts rows of `row` bytes at multiples of `height`, with up to `run` bytes in a long task and the last `tail`
    /// bytes in short ones.
    fn new(rows: usize, row: usize, height: usize, run: usize, tail: usize) -> Self {
        let many = |bytes: usize| (bytes / row.max(1)).next_multiple_of(height).max(height);
        let (long, short) = (many(run.max(TASK)), many(TASK));
        let longs = rows.saturating_sub(tail / row.max(1)) / long;
        Self {
            long,
            short,
            longs,
            tasks: longs + (rows - longs * long).div_ceil(short),
        }
    }

    /// The rows of a task.
    fn range(&self, task: usize, rows: usize) -> std::ops::Range<usize> {
        let (first, count) = match task.checked_sub(self.longs) {
            None => (task * self.long, self.long),
            Some(i) => (self.longs * self.long + i * self.short, self.short),
        };
        first..(first + count).min(rows)
    }
}

/// Calls `body` for ranges of rows of all the products that `which` says, on all threads. Rows of repacked weights are cut
/// at multiples of `height`.
fn share(
    products: &mut [Product<'_>],
    vectors: usize,
    which: impl Fn(&Product<'_>) -> bool,
    height: impl Fn(&Repacked) -> usize,
    body: impl Fn(&QuantMatrix, std::ops::Range<usize>, &SharedOutput<'_>) + Sync,
) {
    // More products than a layer has share the room of several calls.
    const MOST: usize = 4;
    for products in products.chunks_mut(MOST) {
        let bytes: usize = products
            .iter()
            .filter(|p| which(p))
            .map(|p| p.matrix.bytes_read())
            .sum();
        // Rows do not depend on how they are cut, so threads may be counted here.
        let run = if vectors <= STREAMED {
            (bytes / (8 * pool::threads())).min(RUN)
        } else {
            TASK
        };
        let last = products.iter().rposition(&which);
        let mut cuts = [Cut::default(); MOST];
        for (i, p) in products.iter().enumerate().filter(|(_, p)| which(p)) {
            let row = p.matrix.bytes_read() / p.matrix.rows().max(1);
            let height = p.matrix.repacked_weights().map_or(HEIGHT, &height);
            let tail = if last == Some(i) {
                2 * pool::threads() * run
            } else {
                0
            };
            cuts[i] = Cut::new(p.matrix.rows(), row, height, run, tail);
        }
        let total = cuts.iter().map(|c| c.tasks).sum();
        if total == 0 {
            continue;
        }
        let mut targets = products
            .iter_mut()
            .map(|p| (p.matrix, DisjointSlice::new(p.to)));
        let targets: [_; MOST] = std::array::from_fn(|_| targets.next());
        pool::run(total, |mut task| {
            let mut i = 0;
            while task >= cuts[i].tasks {
                task -= cuts[i].tasks;
                i += 1;
            }
            let (matrix, all) = targets[i].as_ref().expect("tasks are of products");
            let rows = matrix.rows();
            body(
                matrix,
                cuts[i].range(task, rows),
                &SharedOutput { all, vectors, rows },
            );
        });
    }
}

/// A product of matrices, on weights dequantised tile by tile.
fn tiles(product: &mut Product<'_>, x: &[f32], space: &mut Vec<f32>) {
    let (matrix, cols) = (product.matrix, product.matrix.cols());
    let (vectors, rows) = (x.len() / cols, matrix.rows());
    let height = (TILE / cols)
        .clamp(64, rows.max(64))
        .next_multiple_of(HEIGHT);
    if space.len() < height * cols {
        space.resize(height * cols, 0.0);
    }
    let left = Matrix::contiguous(x, vectors, cols);
    for first in (0..rows).step_by(height) {
        let count = height.min(rows - first);
        let tile = &mut space[..count * cols];
        pool::for_each_chunk(tile, HEIGHT * cols, |i, to| {
            row::widen_rows(matrix, first + i * HEIGHT, to);
        });
        let right = Matrix::contiguous(&*tile, count, cols).t();
        gemm::gemm(1.0, left, right, 0.0, &mut product.to[first..], rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_cover_all_rows_in_order_and_begin_where_panels_do() {
        for rows in [0, 1, 7, 16, 100, 1536, 8960, 8961] {
            for (run, tail) in [
                (0, 0),
                (TASK, 0),
                (RUN, 0),
                (RUN, 4 * RUN),
                (RUN, usize::MAX),
            ] {
                for row in [0, 1, 324, 888, 5180, 200_000] {
                    let cut = Cut::new(rows, row, 16, run, tail);
                    let mut next = 0;
                    for task in 0..cut.tasks {
                        let range = cut.range(task, rows);
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
        let cut = Cut::new(8960, 888, 16, RUN, 4 * RUN);
        assert_eq!(cut.range(0, 8960), 0..304);
        assert!(cut.range(cut.tasks - 1, 8960).len() <= 32);
        assert!((cut.tasks - cut.longs) * 32 * 888 >= 4 * RUN);
    }
}
