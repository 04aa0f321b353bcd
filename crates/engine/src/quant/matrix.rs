//! Matrices of weights as files have them.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use bessemer_hal::NO_COPY_ALIGNMENT;
use half::{bf16, f16};

use super::{BlockFormat, unpack};
use crate::cpu::quant_matmul::Repacked;
use crate::metal::{Block, Metal};
use crate::storage::{Bytes, Storage};
use crate::{Error, Result, Shape};

/// What the elements of a [`QuantMatrix`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Weights {
    /// `f32`
    F32,
    /// `f16`
    F16,
    /// `bf16`
    BF16,
    /// Blocks.
    Block(BlockFormat),
}

impl Weights {
    /// The name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::Block(format) => format.name(),
        }
    }

    /// Bytes of a row of `cols` weights; `None` where that is no whole number of blocks, or too many.
    pub const fn row_bytes(self, cols: usize) -> Option<usize> {
        match self {
            Self::F32 => cols.checked_mul(4),
            Self::F16 | Self::BF16 => cols.checked_mul(2),
            Self::Block(format) => format.row_bytes(cols),
        }
    }

    /// Bytes of `rows` of `cols` such weights as [`QuantMatrix::repacked`] keeps them on this machine; `None` where it
    /// leaves them as they are.
    pub fn repacked_bytes(self, rows: usize, cols: usize) -> Option<usize> {
        Repacked::bytes(self, rows, cols)
    }

    /// The number that kernels know them by, which is ggml's: the `FORMAT` of `metal/msl/quant.h`.
    pub(crate) const fn msl(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::BF16 => 30,
            Self::Block(format) => format.ggml_type(),
        }
    }

    /// Writes the weights of whole rows as `f32`; lengths go together.
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

/// A matrix `[rows, cols]` of weights with blocks along the columns, over bytes that somebody else owns: a
/// mapped file, mostly. Cheap to clone.
///
/// A Metal device uses the bytes where they are if they begin at a multiple of 4 and all pages of 16 KiB that
/// they touch belong to the owner, as for most tensors of a file that is mapped as a whole. Otherwise it gets a
/// copy, once.
#[derive(Clone)]
pub struct QuantMatrix(Arc<MatrixData>);

struct MatrixData {
    weights: Weights,
    rows: usize,
    cols: usize,
    /// The owner's bytes, and what Metal devices have of them.
    bytes: Storage,
    repacked: Option<Repacked>,
}

/// A range of what somebody owns.
struct OwnedRange {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

/// Kernels read words of up to this many bytes at once from the beginning of a row.
const WORD_BYTES: usize = 4;

impl Bytes for OwnedRange {
    fn bytes(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }

    fn pages(&self) -> Option<(NonNull<u8>, usize)> {
        let all = (*self.owner).as_ref();
        let base = all.as_ptr().addr();
        let (start, end) = (base + self.range.start, base + self.range.end);
        let first = start / NO_COPY_ALIGNMENT * NO_COPY_ALIGNMENT;
        let last = end.checked_next_multiple_of(NO_COPY_ALIGNMENT)?;
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
        // Sizes that nothing can count are refused here, so that arithmetic on them is safe.
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

    /// The matrix in these bytes.
    pub fn from_bytes(
        weights: impl Into<Weights>,
        shape: [usize; 2],
        bytes: Vec<u8>,
    ) -> Result<Self> {
        let range = 0..bytes.len();
        Self::new(weights, shape, Arc::new(bytes), range)
    }

    /// This matrix repacked for fast products on this machine, at the price of a second copy in memory; this
    /// matrix itself where nothing is gained. Single rows are still read from the owner's bytes.
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

    /// Rows: the outputs of a layer.
    pub fn rows(&self) -> usize {
        self.0.rows
    }

    /// Columns: the inputs of a layer.
    pub fn cols(&self) -> usize {
        self.0.cols
    }

    /// What the elements are.
    pub fn weights(&self) -> Weights {
        self.0.weights
    }

    /// The bytes, row after row.
    pub fn bytes(&self) -> &[u8] {
        self.0.bytes.bytes()
    }

    /// Whether products on the CPU read a repacked copy.
    pub fn is_repacked(&self) -> bool {
        self.0.repacked.is_some()
    }

    /// Bytes that a product with one vector reads on the CPU.
    pub fn bytes_read(&self) -> usize {
        match &self.0.repacked {
            Some(repacked) => repacked.len(),
            None => self.0.bytes.len(),
        }
    }

    /// Writes row `i`.
    ///
    /// # Panics
    /// Where there is no such row, or `to` has not its length.
    #[doc(hidden)]
    pub fn row(&self, i: usize, to: &mut [f32]) {
        assert_eq!(to.len(), self.cols(), "a row has as many columns");
        let len = self.0.bytes.len() / self.rows().max(1);
        self.weights().widen(&self.bytes()[i * len..][..len], to);
    }

    /// The bytes as a Metal device has them: where they are, or a copy that is made once and kept. Repacked or
    /// not, they are those of [`Self::bytes`], and begin at a multiple of 4.
    pub(crate) fn on(&self, metal: &Arc<Metal>) -> Result<&Block> {
        self.0.bytes.block_on(metal, "quant_matmul")
    }

    pub(crate) fn repacked_weights(&self) -> Option<&Repacked> {
        self.0.repacked.as_ref()
    }

    /// Where it is: two matrices at one place are the same.
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
    use crate::storage::Memory;
    use crate::{Device, Tensor};

    /// A file as it is mapped.
    struct File(Memory);

    impl AsRef<[u8]> for File {
        fn as_ref(&self) -> &[u8] {
            self.0.bytes()
        }
    }

    #[test]
    fn weights_in_whole_pages_are_used_where_they_are_and_others_copied_once() {
        let device = Device::on(soft::device(SoftOptions::from_env().unwrap()).unwrap());
        let held = || device.hal().unwrap().allocated_bytes();
        let values = vec![0.5_f32; 32 * 4096];
        let blocks = crate::quant::quantize(BlockFormat::Q4_0, &values).unwrap();
        // Large blocks begin on a large page.
        let mut memory = Memory::new(8 << 20).unwrap();
        let end = memory.len();
        let page = NO_COPY_ALIGNMENT;
        // Within the file, at an odd word, and up to its end, which is no whole page.
        let within = 3 * page + 36;
        for start in [within, 5 << 20, (6 << 20) + 2, end - blocks.len() - 4] {
            memory.bytes_mut()[start..][..blocks.len()].copy_from_slice(&blocks);
        }
        let short = end - 4;
        let file = Arc::new(File(memory));
        struct Truncated(Arc<File>, usize);
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
            let before = held();
            for _ in 0..2 {
                let y = x.quant_matmul(&matrix).to_vec::<f32>().unwrap();
                assert!(y.iter().all(|v| (v - 2048.0).abs() < 1.0), "{start}: {y:?}");
            }
            let copies = (held() - before) / blocks.len();
            assert_eq!(copies, usize::from(is_copied), "from {start}");
            kept.push(matrix);
        }
    }
}
