//! Weight matrices in the layout of files.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use bessemer_hal::NO_COPY_ALIGNMENT_BYTES;
use half::{bf16, f16};

use super::{BlockFormat, unpack};
use crate::cpu::quant_matmul::Repacked;
use crate::metal::{Block, Metal};
use crate::storage::{Bytes, Storage};
use crate::{Error, Result, Shape};

/// The element type of a [`QuantMatrix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weights {
    /// `f32`
    F32,
    /// `f16`
    F16,
    /// `bf16`
    BF16,
    /// Quantised blocks.
    Block(BlockFormat),
}

impl Weights {
    /// The lower-case name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::Block(format) => format.name(),
        }
    }

    /// Size in bytes of a row of `cols` weights; `None` if that is not a whole number of blocks, or overflows.
    pub const fn row_bytes(self, cols: usize) -> Option<usize> {
        match self {
            Self::F32 => cols.checked_mul(4),
            Self::F16 | Self::BF16 => cols.checked_mul(2),
            Self::Block(format) => format.row_bytes(cols),
        }
    }

    /// Size in bytes of `rows` of `cols` weights after [`QuantMatrix::repacked`] on this machine; `None` if it does not
    /// repack them.
    pub fn repacked_bytes(self, rows: usize, cols: usize) -> Option<usize> {
        Repacked::bytes(self, rows, cols)
    }

    /// Its ggml type id, which Metal kernels use: the `FORMAT` of `metal/msl/quant.h`.
    pub(crate) const fn msl(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::BF16 => 30,
            Self::Block(format) => format.ggml_type(),
        }
    }

    /// Converts whole rows to `f32`; the lengths must match.
    #[inline(always)]
    pub(crate) fn widen(self, bytes: &[u8], to: &mut [f32]) {
        match self {
            Self::F32 => {
                for (from, to) in bytes.as_chunks::<4>().0.iter().zip(to) {
                    *to = f32::from_le_bytes(*from);
                }
            }
            Self::F16 => {
                for (from, to) in bytes.as_chunks::<2>().0.iter().zip(to) {
                    *to = f16::from_le_bytes(*from).to_f32();
                }
            }
            Self::BF16 => {
                for (from, to) in bytes.as_chunks::<2>().0.iter().zip(to) {
                    *to = bf16::from_le_bytes(*from).to_f32();
                }
            }
            Self::Block(format) => unpack(format, bytes, to),
        }
    }
}

impl From<BlockFormat> for Weights {
    fn from(format: BlockFormat) -> Self {
        Self::Block(format)
    }
}

impl fmt::Display for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A weight matrix `[rows, cols]` with blocks along the columns, over shared bytes, usually a mapped file. Cheap to clone.
///
/// A Metal device uses the bytes in place if they start at a multiple of 4 and all pages of 16 KiB that they touch belong
/// to the owner, as for most tensors of a file that is mapped as a whole. Otherwise it makes one copy.
#[derive(Clone)]
pub struct QuantMatrix(Arc<MatrixData>);

struct MatrixData {
    weights: Weights,
    rows: usize,
    cols: usize,
    /// The owner's bytes, and copies or views of them on Metal devices.
    bytes: Storage,
    repacked: Option<Repacked>,
}

/// A range of the owner's bytes.
struct OwnedRange {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

/// Alignment that Metal kernels need, which read words of up to this many bytes from the start of a row.
const WORD_BYTES: usize = 4;

impl Bytes for OwnedRange {
    fn bytes(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }

    fn pages(&self) -> Option<(NonNull<u8>, usize)> {
        let all = (*self.owner).as_ref();
        let base = all.as_ptr().addr();
        let (start, end) = (base + self.range.start, base + self.range.end);
        let first = start / NO_COPY_ALIGNMENT_BYTES * NO_COPY_ALIGNMENT_BYTES;
        let last = end.checked_next_multiple_of(NO_COPY_ALIGNMENT_BYTES)?;
        if !start.is_multiple_of(WORD_BYTES) || first >= last || last > base + all.len() {
            return None;
        }
        let pages = all.get(first.checked_sub(base)?..last - base)?;
        Some((NonNull::from(pages).cast(), pages.len()))
    }
}

impl QuantMatrix {
    /// The matrix in a range of the owner's bytes, without a copy.
    pub fn new(
        weights: impl Into<Weights>,
        [rows, cols]: [usize; 2],
        owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
        range: Range<usize>,
    ) -> Result<Self> {
        let weights = weights.into();
        // Rejects sizes that overflow, so that later arithmetic is safe.
        Shape::new("quant_matmul", &[rows, cols])?;
        let len = weights
            .row_bytes(cols)
            .and_then(|row| row.checked_mul(rows));
        let given = (*owner).as_ref().get(range.clone()).map(<[u8]>::len);
        if len.is_none() || len != given {
            return Err(Error::Invalid {
                op: "quant_matmul",
                reason: format!(
                    "bytes {range:?} of {} are not {rows} rows of {cols} weights of {weights}",
                    (*owner).as_ref().len()
                ),
            });
        }
        Ok(Self(Arc::new(MatrixData {
            weights,
            rows,
            cols,
            bytes: Storage::of(OwnedRange { owner, range }),
            repacked: None,
        })))
    }

    /// The matrix in `bytes`.
    pub fn from_bytes(
        weights: impl Into<Weights>,
        shape: [usize; 2],
        bytes: Vec<u8>,
    ) -> Result<Self> {
        let range = 0..bytes.len();
        Self::new(weights, shape, Arc::new(bytes), range)
    }

    /// This matrix repacked for the kernels of this machine, at the price of a second copy in memory; the matrix itself
    /// if repacking gains nothing. Single rows are still read from the owner's bytes.
    #[must_use]
    pub fn repacked(&self) -> Self {
        self.repacked_with(&drop)
    }

    /// As [`Self::repacked`], a few megabytes at a time. `copied` is called with each range of [`Self::bytes`] that has
    /// been repacked: matmuls no longer read it, so a mapped file can drop those pages.
    #[must_use]
    pub fn repacked_with(&self, copied: &dyn Fn(Range<usize>)) -> Self {
        let this = &*self.0;
        match Repacked::new(this.weights, self.bytes(), this.rows, this.cols, copied) {
            None => self.clone(),
            repacked => Self(Arc::new(MatrixData {
                weights: this.weights,
                rows: this.rows,
                cols: this.cols,
                bytes: this.bytes.clone(),
                repacked,
            })),
        }
    }

    /// Number of rows: the outputs of a layer.
    pub fn rows(&self) -> usize {
        self.0.rows
    }

    /// Number of columns: the inputs of a layer.
    pub fn cols(&self) -> usize {
        self.0.cols
    }

    /// The element type.
    pub fn weights(&self) -> Weights {
        self.0.weights
    }

    /// The bytes, row by row.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes.bytes()
    }

    /// Returns true if matmuls on the CPU read a repacked copy.
    pub fn is_repacked(&self) -> bool {
        self.0.repacked.is_some()
    }

    /// Number of bytes that a product with one vector reads on the CPU.
    pub fn bytes_read(&self) -> usize {
        match &self.0.repacked {
            Some(repacked) => repacked.len(),
            None => self.0.bytes.len(),
        }
    }

    /// Dequantises row `i`.
    ///
    /// # Panics
    /// If there is no such row, or `to` has another length.
    #[doc(hidden)]
    pub fn row(&self, i: usize, to: &mut [f32]) {
        assert_eq!(
            to.len(),
            self.cols(),
            "the output does not have the length of a row"
        );
        let len = self.0.bytes.len() / self.rows().max(1);
        self.weights().widen(&self.bytes()[i * len..][..len], to);
    }

    /// The bytes on a Metal device: in place, or a copy that is made once and kept. They are those of [`Self::bytes`],
    /// even if the matrix is repacked, and start at a multiple of 4.
    pub(crate) fn on(&self, metal: &Arc<Metal>) -> Result<&Block> {
        self.0.bytes.block_on(metal, "quant_matmul")
    }

    pub(crate) fn repacked_weights(&self) -> Option<&Repacked> {
        self.0.repacked.as_ref()
    }

    /// Its address: matrices with the same address are the same.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
}

impl fmt::Debug for QuantMatrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "QuantMatrix({} [{}, {}])",
            self.weights(),
            self.rows(),
            self.cols()
        )
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use bessemer_hal::soft::{self, SoftOptions};

    use super::*;
    use crate::storage::HeapBlock;
    use crate::{Device, Tensor};

    /// A mapped file.
    struct MappedFile(HeapBlock);

    impl AsRef<[u8]> for MappedFile {
        fn as_ref(&self) -> &[u8] {
            self.0.bytes()
        }
    }

    #[test]
    fn weights_in_whole_pages_are_used_in_place_and_others_copied_once() {
        let device = Device::on(soft::device(SoftOptions::from_env().unwrap()).unwrap());
        let allocated = || device.hal().unwrap().allocated_bytes();
        let values = vec![0.5_f32; 32 * 4096];
        let blocks = crate::quant::quantize(BlockFormat::Q4_0, &values).unwrap();
        // Large allocations start on a large page.
        let mut memory = HeapBlock::new(8 << 20).unwrap();
        let end = memory.len();
        let page = NO_COPY_ALIGNMENT_BYTES;
        // Inside the file, at an odd word, and up to its end, which is not at a page boundary.
        let within = 3 * page + 36;
        for start in [within, 5 << 20, (6 << 20) + 2, end - blocks.len() - 4] {
            memory.bytes_mut()[start..][..blocks.len()].copy_from_slice(&blocks);
        }
        let short = end - 4;
        let file = Arc::new(MappedFile(memory));
        struct Truncated(Arc<MappedFile>, usize);
        impl AsRef<[u8]> for Truncated {
            fn as_ref(&self) -> &[u8] {
                &(*self.0).as_ref()[..self.1]
            }
        }
        let file = Arc::new(Truncated(file, short));
        let cases = [
            (within, false),
            (5 << 20, false),
            ((6 << 20) + 2, true),
            (short - blocks.len(), true),
        ];
        let x = Tensor::from_slice(&vec![1.0_f32; 4096], [4096]).to(&device);
        let mut kept = Vec::new();
        for (start, is_copied) in cases {
            let range = start..start + blocks.len();
            let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::clone(&file) as _;
            let matrix = QuantMatrix::new(BlockFormat::Q4_0, [32, 4096], owner, range).unwrap();
            let before = allocated();
            for _ in 0..2 {
                let y = x.quant_matmul(&matrix).to_vec::<f32>().unwrap();
                assert!(y.iter().all(|v| (v - 2048.0).abs() < 1.0), "{start}: {y:?}");
            }
            let copies = (allocated() - before) / blocks.len();
            assert_eq!(copies, usize::from(is_copied), "from {start}");
            kept.push(matrix);
        }
    }
}
