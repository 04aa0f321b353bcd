//! `quant_matmul` on Metal.
//!
//! Weights are read in the file's format and dequantised in registers; activations stay `f32`, whatever the
//! [`Precision`](crate::quant::Precision). The bytes are those of the matrix as stored: the CPU's repacking does not
//! matter here. By the number of vectors:
//!
//! - up to 4, `quant_gemv`: lanes stream a few rows of the weights together;
//! - up to 16, `quant_skinny`: SIMD-group matrices whose weights lanes dequantise in place, without threadgroup memory;
//! - more, `quant_tile`: tiles of the result by SIMD-group matrices, of 8, 16, 32 or 64 vectors.
//!
//! All of them read and dequantise a weight once for up to 64 vectors.

use super::input::{Input, Output};
use super::kernel::Kernel;
use super::matmul::{BUSY, cost};
use super::msl_struct::msl_struct;
use super::record::Recorder;
use crate::Result;
use crate::ops::quant_matmul::QuantMatmul;

/// Maximum vectors of the GEMV kernel: with more, lanes would read activations more often than weights.
const FEW: usize = 4;

/// Maximum vectors of the skinny kernels; more go to tiles, whose threads share their reads of the vectors.
const BATCH: usize = 16;

/// SIMD-groups of a threadgroup, and maximum rows that one takes together; `SIMD_GROUPS` and 4 in `quant_matmul.metal`.
const TEAM: usize = 4;
const EACH: usize = 4;

/// Width of a SIMD-group, and weights of a chunk.
const LANES: usize = 32;
const CHUNK: usize = 16;

/// Rows of the weights that a SIMD-group of a tile has, and maximum vectors of a tile.
const TILE_ROWS: usize = 16;
const TILE_VECTORS: usize = 64;

/// Pitch of a tile in threadgroup memory, in floats; `QUANT_PITCH` of `quant_tile.h`.
const PITCH: usize = 36;

msl_struct! {
    /// Arguments of the quantized matmul kernels.
    pub(super) struct QuantMatmulArgs {
        vectors: u32,
        rows: u32,
        cols: u32,
        /// Offset of the first vector in the bound range, in elements.
        offset: u32,
    }
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
        // Kernels count in 32 bits.
        recorder.missing = true;
        return Ok(());
    }
    let x = recorder.dense(&inputs[0], output)?;
    let problem = QuantMatmulArgs {
        vectors: vectors as u32,
        rows: rows as u32,
        cols: cols as u32,
        offset: x.offset as u32,
    };
    let path = Path::of(vectors);
    let few = Few::new(rows, cols, vectors);
    let batch = Batch::new(&[rows], cols, vectors);
    let tile = Tile::new(&[rows], vectors);
    let across = match path {
        Path::Batch => batch.across,
        _ => few.across,
    };
    let kernel = Kernel::new("quant_matmul", path.entry())
        .with("Q_FORMAT", op.matrix.weights().msl())
        .constant("VECTORS", vectors.min(FEW) as u32)
        .constant("EACH", few.each as u32)
        .constant("ACROSS", across as u32)
        .constant("EIGHTS", tile.eights as u32)
        .constant("TILE_TEAM", tile.team as u32);
    let launch = recorder
        .launch_in_bands(kernel, cost(output.count(), cols))?
        .read(inputs[1].span(output))
        .read(x)
        .write(output.slice.clone())
        .value(&problem);
    match path {
        Path::Few => launch.groups(recorder, few.groups, TEAM * LANES),
        Path::Batch => launch.groups(recorder, batch.groups, Batch::THREADS),
        Path::Tile => launch
            .memory(tile.memory())
            .groups(recorder, tile.groups, tile.team * LANES),
    }
    Ok(())
}

/// The kernel that multiplies.
#[derive(Clone, Copy)]
enum Path {
    Few,
    Batch,
    Tile,
}

impl Path {
    fn of(vectors: usize) -> Self {
        if vectors <= FEW {
            Self::Few
        } else if Batch::takes(vectors) {
            Self::Batch
        } else {
            Self::Tile
        }
    }

    fn entry(self) -> &'static str {
        match self {
            Self::Few => "quant_few",
            Self::Batch => "quant_batch",
            Self::Tile => "quant_tile",
        }
    }
}

/// Geometry of a launch of `quant_gemv`.
struct Few {
    /// Rows that a SIMD-group computes together.
    each: usize,
    /// SIMD-groups that split the columns.
    across: usize,
    groups: usize,
}

impl Few {
    fn new(rows: usize, cols: usize, vectors: usize) -> Self {
        let groups = |each: usize, across: usize| rows.div_ceil(each * TEAM / across);
        let (mut each, mut across) = (EACH, 1);
        // More SIMD-groups for a row as long as that fills the GPU better and each has two chunks a lane; then fewer
        // rows for each. Several vectors need some rows, or lanes read little but vectors.
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

/// Geometry of a launch of the skinny kernels (`quant_skinny.h`), for up to 16 vectors.
pub(crate) struct Batch {
    /// Blocks of eight vectors.
    pub(crate) eights: usize,
    /// SIMD-groups that split the columns. Their number is the same for any number of vectors, so that sums are the
    /// same.
    pub(crate) across: usize,
    pub(crate) groups: usize,
}

impl Batch {
    pub(crate) const THREADS: usize = TEAM * LANES;

    /// Columns that a SIMD-group takes in one step.
    const STEP: usize = 4 * CHUNK;

    /// Geometry for matrices of these numbers of rows; a threadgroup has rows of one of them.
    pub(crate) fn new(rows: &[usize], cols: usize, vectors: usize) -> Self {
        let groups = |across: usize| -> usize {
            let groups = rows.iter().map(|r| r.div_ceil(TILE_ROWS * TEAM / across));
            groups.sum()
        };
        let mut across = 1;
        while across < TEAM && groups(across) < BUSY && cols >= 2 * across * Self::STEP {
            across *= 2;
        }
        Self {
            eights: vectors.min(BATCH).div_ceil(8),
            across,
            groups: groups(across),
        }
    }

    /// Whether the skinny kernels support this number of vectors.
    pub(crate) fn takes(vectors: usize) -> bool {
        vectors <= BATCH
    }
}

/// Geometry of a launch of the tiled kernels (`quant_tile.h`).
pub(crate) struct Tile {
    /// Blocks of eight vectors.
    pub(crate) eights: usize,
    /// SIMD-groups, each with 16 rows of the weights.
    pub(crate) team: usize,
    /// Tiles of vectors and of rows.
    pub(crate) groups: (usize, usize),
}

impl Tile {
    /// Geometry for matrices of these numbers of rows; a tile has rows of one of them.
    pub(crate) fn new(rows: &[usize], vectors: usize) -> Self {
        let eights = vectors.min(TILE_VECTORS).div_ceil(8).next_power_of_two();
        let across = vectors.div_ceil(8 * eights);
        let tall = |team: usize| -> usize {
            let tiles = rows.iter().map(|rows| rows.div_ceil(team * TILE_ROWS));
            tiles.sum()
        };
        // A thread loads at most four `float4` of the vectors, which limits the vectors of a small threadgroup.
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
                    let batch = Batch::new(&[rows], cols, vectors);
                    assert!(TEAM.is_multiple_of(batch.across));
                    assert!(batch.groups * TILE_ROWS * TEAM / batch.across >= rows);
                    assert!(8 * batch.eights >= vectors.min(BATCH));
                    // Sums do not depend on the other vectors of a batch.
                    assert_eq!(batch.across, Batch::new(&[rows], cols, 2).across);
                }
            }
        }
    }
}
