//! Products with quantised weights on the CPU.
//!
//! [`Precision::Exact`] multiplies dequantised weights with `f32` activations. [`Precision::Fast`] rounds
//! activations to 8 bits with a scale for every 32 ([`activation`]) and multiplies integers, eight rows of
//! weights at a time where they were arranged so ([`panel`], and [`avx2`] for the loops), else row by row
//! ([`row`]). A product has the same bits however many activations are multiplied together on the fast path,
//! and on any number of threads.

mod activation;
#[cfg(target_arch = "x86_64")]
mod avx2;
mod panel;
mod part;
mod row;

use std::cell::RefCell;

use self::activation::Activations;
pub(crate) use self::panel::Panels;
use self::part::Part;
use super::gemm::{self, Matrix};
use super::pool::{self, Pieces};
use crate::dispatch::{Dense, Input, Output};
use crate::ops::quant_matmul::QuantMatmul;
use crate::quant::{Precision, Product, QuantMatrix, Weights};
use crate::{Error, Result};

/// Bytes of weights in a task: enough to hide what handing it out costs, few enough that threads end together.
const TASK: usize = 24 << 10;

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
        &mut [Product {
            matrix,
            to: output.all(),
        }],
    )
}

#[derive(Default)]
struct Scratch {
    activations: Activations,
    tile: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// All products of `x`, rows of as many numbers as the matrices have columns.
pub(crate) fn multiply(
    x: &[f32],
    precision: Precision,
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
    let integers = |p: &Product<'_>| {
        precision == Precision::Fast && matches!(p.matrix.weights(), Weights::Block(_))
    };
    if products.iter().any(integers) {
        scratch.activations.set(x, cols);
        share(products, rows, integers, |p, range, to| match p.panels() {
            Some(panels) => panels.multiply(&scratch.activations, range, to),
            None => row::multiply(p, &scratch.activations, range, to),
        });
    }
    if rows <= FEW {
        share(
            products,
            rows,
            |p| !integers(p),
            |p, range, to| {
                row::exact(p, x, range, to);
            },
        );
    } else {
        for p in products.iter_mut().filter(|p| !integers(p)) {
            tiles(p, x, &mut scratch.tile);
        }
    }
    SCRATCH.replace(scratch);
    Ok(())
}

/// Rows that tasks are cut at: the height of panels.
const HEIGHT: usize = panel::HEIGHT;

/// Calls `body` for ranges of rows of all the products that `which` says, on all threads.
fn share(
    products: &mut [Product<'_>],
    vectors: usize,
    which: impl Fn(&Product<'_>) -> bool,
    body: impl Fn(&QuantMatrix, std::ops::Range<usize>, &Part<'_>) + Sync,
) {
    // More products than a layer has share the room of several calls.
    const MOST: usize = 4;
    for products in products.chunks_mut(MOST) {
        let mut tasks = [0; MOST];
        let mut heights = [0; MOST];
        for (i, p) in products.iter().enumerate() {
            if !which(p) {
                continue;
            }
            let row = (p.matrix.bytes_read() / p.matrix.rows().max(1)).max(1);
            heights[i] = (TASK / row).next_multiple_of(HEIGHT).max(HEIGHT);
            tasks[i] = p.matrix.rows().div_ceil(heights[i]);
        }
        let total = tasks.iter().sum();
        let mut targets = products.iter_mut().map(|p| (p.matrix, Pieces::new(p.to)));
        let targets: [_; MOST] = std::array::from_fn(|_| targets.next());
        pool::run(total, |mut task| {
            let mut i = 0;
            while task >= tasks[i] {
                task -= tasks[i];
                i += 1;
            }
            let (matrix, all) = targets[i].as_ref().expect("tasks are of products");
            let rows = matrix.rows();
            let first = task * heights[i];
            let range = first..(first + heights[i]).min(rows);
            body(matrix, range, &Part { all, vectors, rows });
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
        pool::pieces(tile, HEIGHT * cols, |i, to| {
            row::widen_rows(matrix, first + i * HEIGHT, to);
        });
        let right = Matrix::contiguous(&*tile, count, cols).t();
        gemm::gemm(1.0, left, right, 0.0, &mut product.to[first..], rows);
    }
}
