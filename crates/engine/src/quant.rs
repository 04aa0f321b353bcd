//! Quantised weights: the block formats of GGUF files, in ggml's exact layouts.
//!
//! A block is 32 or 256 consecutive weights of a row, with their scales. Names are ggml's: the digit is the bits per
//! weight, `_0` has a scale, `_1` a scale and an offset, `_K` (K-quants) super-blocks whose scales are quantised in turn.
//! [`dequantize`] and [`quantize`] are bit-identical to ggml's reference implementation, without an importance matrix.
//!
//! | module | contents |
//! |---|---|
//! | `legacy.rs` | blocks of 32: `Q4_0` to `Q8_0` |
//! | `k_quants.rs` | super-blocks of 256: `Q2_K` to `Q6_K` |
//! | `fit.rs` | the scale searches of K-quants |
//! | `group.rs` | unpacking to integers |
//! | `matrix.rs` | [`QuantMatrix`], the right operand of a quantised matmul |

mod fit;
mod group;
mod k_quants;
mod legacy;
mod matrix;

use std::fmt;

pub(crate) use group::group;
pub(crate) use k_quants::{q3_scales, q4_scale_offset};
pub use matrix::{QuantMatrix, Weights};

use crate::{Error, Result};

/// A block format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockFormat {
    /// `d (q - 8)`, 4 bits: 4.5 bits a weight.
    Q4_0,
    /// `d q + m`, 4 bits: 5 bits a weight.
    Q4_1,
    /// `d (q - 16)`, 5 bits: 5.5 bits a weight.
    Q5_0,
    /// `d q + m`, 5 bits: 6 bits a weight.
    Q5_1,
    /// `d q`, 8 bits, signed: 8.5 bits a weight.
    Q8_0,
    /// 2 bits, scales and offsets of 4 bits for every 16: 2.625 bits a weight.
    Q2K,
    /// 3 bits, scales of 6 bits for every 16: 3.4375 bits a weight.
    Q3K,
    /// 4 bits, scales and offsets of 6 bits for every 32: 4.5 bits a weight.
    Q4K,
    /// 5 bits, scales and offsets of 6 bits for every 32: 5.5 bits a weight.
    Q5K,
    /// 6 bits, scales of 8 bits for every 16: 6.5625 bits a weight.
    Q6K,
}

/// Maximum weights of a block.
pub(crate) const MAX_BLOCK_LEN: usize = 256;

impl BlockFormat {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// Number of weights of a block.
    pub const fn block_len(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            _ => MAX_BLOCK_LEN,
        }
    }

    /// Size of a block in bytes.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// The lower-case name, as in kernel names and on command lines: `q4_0`, `q4_k`, ….
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::Q8_0 => "q8_0",
            Self::Q2K => "q2_k",
            Self::Q3K => "q3_k",
            Self::Q4K => "q4_k",
            Self::Q5K => "q5_k",
            Self::Q6K => "q6_k",
        }
    }

    /// Its ggml type id, as in GGUF files.
    pub const fn ggml_type(self) -> u32 {
        match self {
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q8_0 => 8,
            Self::Q2K => 10,
            Self::Q3K => 11,
            Self::Q4K => 12,
            Self::Q5K => 13,
            Self::Q6K => 14,
        }
    }

    /// The format with a ggml type id.
    pub fn from_ggml_type(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.ggml_type() == id)
    }

    /// Size in bytes of a row of `cols` weights; `None` if that is not a whole number of blocks, or overflows.
    pub const fn row_bytes(self, cols: usize) -> Option<usize> {
        if cols.is_multiple_of(self.block_len()) {
            (cols / self.block_len()).checked_mul(self.block_bytes())
        } else {
            None
        }
    }
}

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for BlockFormat {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let lower = s.to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|f| f.name() == lower)
            .ok_or_else(|| Error::Invalid {
                op: "quantize",
                reason: format!(
                    "`{s}` is not a block format; there are {}",
                    Self::ALL.map(Self::name).join(", ")
                ),
            })
    }
}

/// Quantises whole blocks of values.
///
/// Values that are not finite, or too large for the half-precision scales, give blocks with non-finite scales.
pub fn quantize(format: BlockFormat, values: &[f32]) -> Result<Vec<u8>> {
    let Some(len) = format.row_bytes(values.len()) else {
        return Err(Error::Invalid {
            op: "quantize",
            reason: format!(
                "{} values are not a whole number of blocks of {} for {format}",
                values.len(),
                format.block_len()
            ),
        });
    };
    let mut blocks = vec![0; len];
    let from = values.chunks_exact(format.block_len());
    for (x, to) in from.zip(blocks.chunks_exact_mut(format.block_bytes())) {
        match format {
            BlockFormat::Q4_0 => legacy::quantize_q4_0(x, to),
            BlockFormat::Q4_1 => legacy::quantize_q4_1(x, to),
            BlockFormat::Q5_0 => legacy::quantize_q5_0(x, to),
            BlockFormat::Q5_1 => legacy::quantize_q5_1(x, to),
            BlockFormat::Q8_0 => legacy::quantize_q8_0(x, to),
            BlockFormat::Q2K => k_quants::quantize_q2_k(x, to),
            BlockFormat::Q3K => k_quants::quantize_q3_k(x, to),
            BlockFormat::Q4K => k_quants::quantize_q4_k(x, to),
            BlockFormat::Q5K => k_quants::quantize_q5_k(x, to),
            BlockFormat::Q6K => k_quants::quantize_q6_k(x, to),
        }
    }
    Ok(blocks)
}

/// Dequantises whole blocks.
pub fn dequantize(format: BlockFormat, blocks: &[u8], to: &mut [f32]) -> Result<()> {
    if format.row_bytes(to.len()) != Some(blocks.len()) {
        return Err(Error::Invalid {
            op: "dequantize",
            reason: format!(
                "{} bytes are not {} weights of {format}, which has blocks of {} in {} bytes",
                blocks.len(),
                to.len(),
                format.block_len(),
                format.block_bytes()
            ),
        });
    }
    unpack(format, blocks, to);
    Ok(())
}

/// [`dequantize`] for lengths known to match. Inlined into kernels, to be compiled for their instruction set.
#[inline(always)]
pub(crate) fn unpack(format: BlockFormat, blocks: &[u8], to: &mut [f32]) {
    match format {
        BlockFormat::Q4_0 => for_each_block::<18, 32>(blocks, to, legacy::dequantize_q4_0),
        BlockFormat::Q4_1 => for_each_block::<20, 32>(blocks, to, legacy::dequantize_q4_1),
        BlockFormat::Q5_0 => for_each_block::<22, 32>(blocks, to, legacy::dequantize_q5_0),
        BlockFormat::Q5_1 => for_each_block::<24, 32>(blocks, to, legacy::dequantize_q5_1),
        BlockFormat::Q8_0 => for_each_block::<34, 32>(blocks, to, legacy::dequantize_q8_0),
        BlockFormat::Q2K => for_each_block::<84, 256>(blocks, to, k_quants::dequantize_q2_k),
        BlockFormat::Q3K => for_each_block::<110, 256>(blocks, to, k_quants::dequantize_q3_k),
        BlockFormat::Q4K => for_each_block::<144, 256>(blocks, to, k_quants::dequantize_q4_k),
        BlockFormat::Q5K => for_each_block::<176, 256>(blocks, to, k_quants::dequantize_q5_k),
        BlockFormat::Q6K => for_each_block::<210, 256>(blocks, to, k_quants::dequantize_q6_k),
    }
}

/// Calls `body` with every block of `B` bytes and its `N` weights.
#[inline(always)]
fn for_each_block<const B: usize, const N: usize>(
    blocks: &[u8],
    to: &mut [f32],
    body: impl Fn(&[u8; B], &mut [f32; N]),
) {
    let (blocks, _) = blocks.as_chunks::<B>();
    let (to, _) = to.as_chunks_mut::<N>();
    for i in 0..blocks.len().min(to.len()) {
        body(&blocks[i], &mut to[i]);
    }
}

/// The `f16` at the start of `bytes`.
#[inline(always)]
pub(crate) fn half(bytes: &[u8]) -> f32 {
    half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}

/// A value as `f16`.
fn to_half(value: f32) -> [u8; 2] {
    half::f16::from_f32(value).to_le_bytes()
}

/// How a quantised matmul is computed. Metal devices always use [`Self::Exact`]: activations and sums are `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Weights are dequantised and activations stay `f32`: only sums are rounded.
    #[default]
    Exact,
    /// Activations are quantised to 8 bits with a scale for every 32, as in llama.cpp, and multiplied as integers. The
    /// error of an activation is up to 1/254 of the largest magnitude in its group of 32.
    ///
    /// Weights that are not quantised are multiplied as by [`Self::Exact`], except for many activation rows times
    /// repacked `f16` or `bf16` weights if AVX2 is the best instruction set: both are rounded to 16-bit fixed point with
    /// a scale for every 128 columns. The error of an activation is up to 1/8,190 of the largest magnitude in its 128,
    /// that of a weight up to 1/4,096, or zero if it is at least half (`bf16`: 1/16) of the largest.
    Fast,
}

/// A matrix to multiply with, and the output.
#[derive(Debug)]
pub struct Product<'a> {
    /// The weights `[rows, cols]`.
    pub matrix: &'a QuantMatrix,
    /// The output `[activation rows, rows]`.
    pub to: &'a mut [f32],
}

/// Computes `x · Wᵀ` for every matrix of `products`, `x` being rows of as many elements as the matrices have columns.
/// Activations are quantised once for all products, which run as one job of the thread pool. This is for callers on
/// slices; the op is [`Tensor::quant_matmul`](crate::Tensor::quant_matmul).
///
/// ```
/// use bessemer::quant::{self, BlockFormat, Precision, Product, QuantMatrix};
///
/// let blocks = quant::quantize(BlockFormat::Q8_0, &[0.5; 64])?;
/// let matrix = QuantMatrix::from_bytes(BlockFormat::Q8_0, [2, 32], blocks)?;
/// let mut to = [0.0; 2];
/// let products = &mut [Product { matrix: &matrix, to: &mut to }];
/// quant::multiply(&[1.0; 32], Precision::Exact, products)?;
/// assert!((to[1] - 16.0).abs() < 0.01);
/// # Ok::<(), bessemer::Error>(())
/// ```
pub fn multiply(x: &[f32], precision: Precision, products: &mut [Product<'_>]) -> Result<()> {
    crate::cpu::quant_matmul::multiply(x, precision, false, products)
}

/// As [`multiply`] with [`Precision::Fast`], but quantises the rounding error of activations to 8 bits as well: the error
/// of an activation is up to 1/64,000 of the largest magnitude in its group of 32. Weights are read once, but twice as
/// many integers are multiplied. Weights that are not quantised are multiplied as by [`Precision::Exact`].
pub fn multiply_fine(x: &[f32], products: &mut [Product<'_>]) -> Result<()> {
    crate::cpu::quant_matmul::multiply(x, Precision::Fast, true, products)
}
