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
use super::matmul::{MIN_THREADGROUPS, cost};
use super::msl_struct::msl_struct;
use super::record::Recorder;
use crate::Result;
use crate::ops::quant_matmul::QuantMatmul;

/// Maximum vectors of the GEMV kernel: with more, lanes would read activations more often than weights.
const MAX_GEMV_VECTORS: usize = 4;

/// Maximum vectors of the skinny kernels; more go to tiles, whose threads share their reads of the vectors.
const MAX_SKINNY_VECTORS: usize = 16;

/// SIMD-groups of a threadgroup, and maximum rows that one takes together; `SIMD_GROUPS` and 4 in `quant_matmul.metal`.
const MAX_SIMD_GROUPS: usize = 4;
const MAX_GEMV_ROWS: usize = 4;

/// Width of a SIMD-group, and weights of a chunk.
const SIMD_WIDTH: usize = 32;
const CHUNK_LEN: usize = 16;

/// Rows of the weights that a SIMD-group of a tile has, and maximum vectors of a tile.
const SIMD_GROUP_ROWS: usize = 16;
const MAX_TILE_VECTORS: usize = 64;

/// Pitch of a tile in threadgroup memory, in floats; `QUANT_PITCH` of `quant_tile.h`.
const TILE_PITCH_FLOATS: usize = 36;

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
    if rows.max(cols).max(vectors) > i32::MAX as usize {
        // Kernels count in 32 bits.
        recorder.no_kernel = true;
        return Ok(());
    }
    let x = recorder.dense(&inputs[0], output)?;
    let args = QuantMatmulArgs {
        vectors: vectors as u32,
        rows: rows as u32,
        cols: cols as u32,
        offset: x.offset as u32,
    };
    let kernel_kind = QuantKernel::of(vectors);
    let gemv = GemvGeometry::new(rows, cols, vectors);
    let skinny = SkinnyGeometry::new(&[rows], cols, vectors);
    let tile = TileGeometry::new(&[rows], vectors);
    let simd_splits = match kernel_kind {
        QuantKernel::Skinny => skinny.simd_splits,
        _ => gemv.simd_splits,
    };
    let kernel = Kernel::new("quant_matmul", kernel_kind.entry())
        .define("Q_FORMAT", op.matrix.weights().msl())
        .constant("VECTORS", vectors.min(MAX_GEMV_VECTORS) as u32)
        .constant("GEMV_ROWS", gemv.rows_per_group as u32)
        .constant("SIMD_SPLITS", simd_splits as u32)
        .constant("VECTOR_BLOCKS", tile.vector_blocks as u32)
        .constant("TILE_SIMD_GROUPS", tile.simd_groups as u32);
    let launch = recorder
        .launch_in_bands(kernel, cost(output.count(), cols))?
        .read(inputs[1].span(output))
        .read(x)
        .write(output.slice.clone())
        .value(&args);
    match kernel_kind {
        QuantKernel::Gemv => {
            launch.groups(recorder, gemv.threadgroups, MAX_SIMD_GROUPS * SIMD_WIDTH)
        }
        QuantKernel::Skinny => {
            launch.groups(recorder, skinny.threadgroups, SkinnyGeometry::THREADS)
        }
        QuantKernel::Tiled => launch.memory(tile.memory()).groups(
            recorder,
            tile.threadgroups,
            tile.simd_groups * SIMD_WIDTH,
        ),
    }
    Ok(())
}

/// The kernel that multiplies.
#[derive(Clone, Copy)]
enum QuantKernel {
    Gemv,
    Skinny,
    Tiled,
}

impl QuantKernel {
    fn of(vectors: usize) -> Self {
        if vectors <= MAX_GEMV_VECTORS {
            Self::Gemv
        } else if SkinnyGeometry::supports(vectors) {
            Self::Skinny
        } else {
            Self::Tiled
        }
    }

    fn entry(self) -> &'static str {
        match self {
            Self::Gemv => "quant_gemv",
            Self::Skinny => "quant_skinny",
            Self::Tiled => "quant_tile",
        }
    }
}

/// Geometry of a launch of `quant_gemv`.
struct GemvGeometry {
    /// Rows that a SIMD-group computes together.
    rows_per_group: usize,
    /// SIMD-groups that split the columns.
    simd_splits: usize,
    threadgroups: usize,
}

impl GemvGeometry {
    fn new(rows: usize, cols: usize, vectors: usize) -> Self {
        let threadgroups = |rows_per_group: usize, simd_splits: usize| {
            rows.div_ceil(rows_per_group * MAX_SIMD_GROUPS / simd_splits)
        };
        let (mut rows_per_group, mut simd_splits) = (MAX_GEMV_ROWS, 1);
        // More SIMD-groups for a row as long as that fills the GPU better and each has two chunks a lane; then fewer
        // rows for each. Several vectors need some rows, or lanes read little but vectors.
        while simd_splits < MAX_SIMD_GROUPS
            && threadgroups(rows_per_group, simd_splits) < MIN_THREADGROUPS
            && cols >= 4 * simd_splits * SIMD_WIDTH * CHUNK_LEN
        {
            simd_splits *= 2;
        }
        while rows_per_group > vectors.next_power_of_two() / 2
            && rows_per_group > 1
            && threadgroups(rows_per_group, simd_splits) < MIN_THREADGROUPS
        {
            rows_per_group /= 2;
        }
        Self {
            rows_per_group,
            simd_splits,
            threadgroups: threadgroups(rows_per_group, simd_splits),
        }
    }
}

/// Geometry of a launch of the skinny kernels (`quant_skinny.h`), for up to 16 vectors.
pub(crate) struct SkinnyGeometry {
    /// Blocks of eight vectors.
    pub(crate) vector_blocks: usize,
    /// SIMD-groups that split the columns. Their number is the same for any number of vectors, so that sums are the
    /// same.
    pub(crate) simd_splits: usize,
    pub(crate) threadgroups: usize,
}

impl SkinnyGeometry {
    pub(crate) const THREADS: usize = MAX_SIMD_GROUPS * SIMD_WIDTH;

    /// Columns that a SIMD-group takes in one step.
    const STEP_COLS: usize = 4 * CHUNK_LEN;

    /// Geometry for matrices of these numbers of rows; a threadgroup has rows of one of them.
    pub(crate) fn new(rows: &[usize], cols: usize, vectors: usize) -> Self {
        let threadgroups = |simd_splits: usize| -> usize {
            let threadgroups = rows
                .iter()
                .map(|r| r.div_ceil(SIMD_GROUP_ROWS * MAX_SIMD_GROUPS / simd_splits));
            threadgroups.sum()
        };
        let mut simd_splits = 1;
        while simd_splits < MAX_SIMD_GROUPS
            && threadgroups(simd_splits) < MIN_THREADGROUPS
            && cols >= 2 * simd_splits * Self::STEP_COLS
        {
            simd_splits *= 2;
        }
        Self {
            vector_blocks: vectors.min(MAX_SKINNY_VECTORS).div_ceil(8),
            simd_splits,
            threadgroups: threadgroups(simd_splits),
        }
    }

    /// Whether the skinny kernels support this number of vectors.
    pub(crate) fn supports(vectors: usize) -> bool {
        vectors <= MAX_SKINNY_VECTORS
    }
}

/// Geometry of a launch of the tiled kernels (`quant_tile.h`).
pub(crate) struct TileGeometry {
    /// Blocks of eight vectors.
    pub(crate) vector_blocks: usize,
    /// SIMD-groups, each with 16 rows of the weights.
    pub(crate) simd_groups: usize,
    /// Tiles of vectors and of rows.
    pub(crate) threadgroups: (usize, usize),
}

impl TileGeometry {
    /// Geometry for matrices of these numbers of rows; a tile has rows of one of them.
    pub(crate) fn new(rows: &[usize], vectors: usize) -> Self {
        let vector_blocks = vectors
            .min(MAX_TILE_VECTORS)
            .div_ceil(8)
            .next_power_of_two();
        let vector_tiles = vectors.div_ceil(8 * vector_blocks);
        let row_tiles = |simd_groups: usize| -> usize {
            let tiles = rows
                .iter()
                .map(|rows| rows.div_ceil(simd_groups * SIMD_GROUP_ROWS));
            tiles.sum()
        };
        // A thread loads at most four `float4` of the vectors, which limits the vectors of a small threadgroup.
        let mut simd_groups = MAX_SIMD_GROUPS;
        while simd_groups > 1
            && vector_blocks <= simd_groups
            && vector_tiles * row_tiles(simd_groups) < MIN_THREADGROUPS
        {
            simd_groups /= 2;
        }
        Self {
            vector_blocks,
            simd_groups,
            threadgroups: (vector_tiles, row_tiles(simd_groups)),
        }
    }

    /// Bytes of threadgroup memory.
    pub(crate) fn memory(&self) -> usize {
        (8 * self.vector_blocks + SIMD_GROUP_ROWS * self.simd_groups)
            * TILE_PITCH_FLOATS
            * size_of::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometries_stay_within_the_limits_of_the_kernels() {
        for vectors in 1..200 {
            for rows in [1, 16, 100, 576, 4096, 50_000] {
                let tile = TileGeometry::new(&[rows], vectors);
                assert!([1, 2, 4, 8].contains(&tile.vector_blocks), "{vectors}");
                assert!(
                    tile.vector_blocks <= 2 * tile.simd_groups,
                    "{vectors} {rows}"
                );
                assert!(tile.memory() <= 32 << 10 && tile.memory().is_multiple_of(16));
                assert!(tile.threadgroups.0 * tile.vector_blocks * 8 >= vectors);
                assert!(tile.threadgroups.1 * tile.simd_groups * SIMD_GROUP_ROWS >= rows);
                for cols in [32, 576, 4096] {
                    let gemv = GemvGeometry::new(rows, cols, vectors.min(MAX_GEMV_VECTORS));
                    let rows_per_group = gemv.rows_per_group * MAX_SIMD_GROUPS / gemv.simd_splits;
                    assert!(
                        gemv.rows_per_group >= 1
                            && rows_per_group >= 1
                            && gemv.threadgroups * rows_per_group >= rows
                    );
                    let skinny = SkinnyGeometry::new(&[rows], cols, vectors);
                    assert!(MAX_SIMD_GROUPS.is_multiple_of(skinny.simd_splits));
                    assert!(
                        skinny.threadgroups * SIMD_GROUP_ROWS * MAX_SIMD_GROUPS
                            / skinny.simd_splits
                            >= rows
                    );
                    assert!(8 * skinny.vector_blocks >= vectors.min(MAX_SKINNY_VECTORS));
                    // Sums do not depend on the other vectors of a batch.
                    assert_eq!(
                        skinny.simd_splits,
                        SkinnyGeometry::new(&[rows], cols, 2).simd_splits
                    );
                }
            }
        }
    }
}
