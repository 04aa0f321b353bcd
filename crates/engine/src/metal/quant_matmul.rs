//! `quant_matmul` on Metal.
//!
//! Weights are read as the file has them, and become floats in registers; activations stay `f32`, whatever
//! the [`Precision`](crate::quant::Precision). The bytes are those of the matrix as it is: what the CPU
//! arranges for itself does not matter here. By the number of vectors:
//!
//! - up to 4, `quant_few`: lanes go through a few rows of the weights at once;
//! - more, `quant_tile`: tiles of the result by SIMD-group matrices, of 8, 16, 32 or 64 vectors, so that up to
//!   64 vectors read the weights once.

use bytemuck::{Pod, Zeroable};

use super::input::{Input, Output};
use super::kernel::Kernel;
use super::matmul::{BUSY, cost};
use super::record::Recorder;
use crate::Result;
use crate::ops::quant_matmul::QuantMatmul;

/// More vectors go to tiles: lanes would read activations more often than they read weights.
const FEW: usize = 4;

/// SIMD-groups of a threadgroup, and rows that one takes at most; `TEAM` and 4 in `quant_matmul.metal`.
const TEAM: usize = 4;
const EACH: usize = 4;

/// Threads of a SIMD-group, and weights of a chunk.
const LANES: usize = 32;
const CHUNK: usize = 16;

/// Rows of the weights that a SIMD-group of a tile has, and vectors of the largest tile.
const TILE_ROWS: usize = 16;
const TILE_VECTORS: usize = 64;

/// Floats between lines of a tile in threadgroup memory; `QUANT_PITCH` of `quant_tile.h`.
const PITCH: usize = 36;

/// A product as `quant_matmul.metal` knows it.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Problem {
    vectors: u32,
    rows: u32,
    cols: u32,
    offset: u32,
}

/// The inputs are the activations and the bytes of the matrix.
pub(crate) fn record(
    op: &QuantMatmul,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let (rows, cols) = (op.matrix.rows(), op.matrix.cols());
    let vectors = output.count() / rows;
    let most = i32::MAX as usize;
    if rows.max(cols).max(vectors) > most {
        // More than kernels count.
        recorder.missing = true;
        return Ok(());
    }
    let x = recorder.dense(&inputs[0], output)?;
    let problem = Problem {
        vectors: vectors as u32,
        rows: rows as u32,
        cols: cols as u32,
        offset: x.offset as u32,
    };
    let cost = cost(output.count(), cols);
    let entry = if vectors <= FEW {
        "quant_few"
    } else {
        "quant_tile"
    };
    let few = Few::new(rows, cols, vectors);
    let tile = Tile::new(&[rows], vectors);
    let kernel = Kernel::new("quant_matmul", entry)
        .with("Q_FORMAT", op.matrix.weights().msl())
        .constant(0, vectors.min(FEW) as u32)
        .constant(1, few.each as u32)
        .constant(2, few.across as u32)
        .constant(3, tile.eights as u32)
        .constant(4, tile.team as u32);
    let launch = recorder
        .launch(&kernel)?
        .read(inputs[1].span(output))
        .read(x)
        .write(output.slice.clone())
        .value(&problem)
        .cost(cost);
    match vectors {
        ..=FEW => launch.groups(recorder, few.groups, TEAM * LANES),
        _ => launch
            .memory(tile.memory())
            .groups(recorder, tile.groups, tile.team * LANES),
    }
    Ok(())
}

/// How few vectors are multiplied.
struct Few {
    /// Rows that a SIMD-group takes at once.
    each: usize,
    /// SIMD-groups that share the columns.
    across: usize,
    groups: usize,
}

impl Few {
    fn new(rows: usize, cols: usize, vectors: usize) -> Self {
        let groups = |each: usize, across: usize| rows.div_ceil(each * TEAM / across);
        let (mut each, mut across) = (EACH, 1);
        // More SIMD-groups for a row as long as that makes a busier GPU and each has two chunks a lane; then
        // fewer rows for each. Several vectors need some, or lanes read little else.
        while across < TEAM && groups(each, across) < BUSY && cols >= 4 * across * LANES * CHUNK {
            across *= 2;
        }
        while each > vectors.next_power_of_two() / 2 && each > 1 && groups(each, across) < BUSY {
            each /= 2;
        }
        Self {
            each,
            across,
            groups: groups(each, across),
        }
    }
}

/// How many are: the shape of tiles that `quant_tile.h` computes.
pub(crate) struct Tile {
    /// Times eight vectors.
    pub(crate) eights: usize,
    /// SIMD-groups, each with 16 rows of the weights.
    pub(crate) team: usize,
    /// Tiles of vectors and of rows.
    pub(crate) groups: (usize, usize),
}

impl Tile {
    /// Of products of vectors with matrices of so many rows each; a tile has rows of one of them.
    pub(crate) fn new(rows: &[usize], vectors: usize) -> Self {
        let eights = vectors.min(TILE_VECTORS).div_ceil(8).next_power_of_two();
        let across = vectors.div_ceil(8 * eights);
        let tall = |team: usize| -> usize {
            let tiles = rows.iter().map(|rows| rows.div_ceil(team * TILE_ROWS));
            tiles.sum()
        };
        // Threads bring four times four numbers of the vectors at most, which limits what a small team can have.
        let mut team = TEAM;
        while team > 1 && eights <= team && across * tall(team) < BUSY {
            team /= 2;
        }
        Self {
            eights,
            team,
            groups: (across, tall(team)),
        }
    }

    /// Bytes of threadgroup memory.
    pub(crate) fn memory(&self) -> usize {
        (8 * self.eights + TILE_ROWS * self.team) * PITCH * size_of::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_stay_within_what_kernels_have_room_for() {
        for vectors in 1..200 {
            for rows in [1, 16, 100, 576, 4096, 50_000] {
                let tile = Tile::new(&[rows], vectors);
                assert!([1, 2, 4, 8].contains(&tile.eights), "{vectors}");
                assert!(tile.eights <= 2 * tile.team, "{vectors} {rows}");
                assert!(tile.memory() <= 32 << 10 && tile.memory().is_multiple_of(16));
                assert!(tile.groups.0 * tile.eights * 8 >= vectors);
                assert!(tile.groups.1 * tile.team * TILE_ROWS >= rows);
                for cols in [32, 576, 4096] {
                    let few = Few::new(rows, cols, vectors.min(FEW));
                    let each = few.each * TEAM / few.across;
                    assert!(few.each >= 1 && each >= 1 && few.groups * each >= rows);
                }
            }
        }
    }
}
