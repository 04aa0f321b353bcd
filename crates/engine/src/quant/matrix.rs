//! Matrices of weights as files have them.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use half::{bf16, f16};

use super::{BlockFormat, unpack};
use crate::cpu::quant_matmul::Arranged;
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
#[derive(Clone)]
pub struct QuantMatrix(Arc<Inner>);

struct Inner {
    weights: Weights,
    rows: usize,
    cols: usize,
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
    arranged: Option<Arranged>,
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
        Ok(Self(Arc::new(Inner {
            weights,
            rows,
            cols,
            owner,
            range,
            arranged: None,
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

    /// This matrix arranged for fast products on this machine, at the price of a second copy in memory; this
    /// matrix itself where nothing is gained. Rows are still read from the owner's bytes.
    #[must_use]
    pub fn arranged(&self) -> Self {
        let this = &*self.0;
        match Arranged::new(this.weights, self.bytes(), this.rows, this.cols) {
            None => self.clone(),
            arranged => Self(Arc::new(Inner {
                weights: this.weights,
                rows: this.rows,
                cols: this.cols,
                owner: Arc::clone(&this.owner),
                range: this.range.clone(),
                arranged,
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
        &(*self.0.owner).as_ref()[self.0.range.clone()]
    }

    /// Bytes that a product with one vector reads.
    pub fn bytes_read(&self) -> usize {
        match &self.0.arranged {
            Some(arranged) => arranged.len(),
            None => self.0.range.len(),
        }
    }

    /// Writes row `i`.
    ///
    /// # Panics
    /// Where there is no such row, or `to` has not its length.
    pub fn row(&self, i: usize, to: &mut [f32]) {
        assert_eq!(to.len(), self.cols(), "a row has as many columns");
        let len = self.0.range.len() / self.rows().max(1);
        self.weights().widen(&self.bytes()[i * len..][..len], to);
    }

    pub(crate) fn arranged_as(&self) -> Option<&Arranged> {
        self.0.arranged.as_ref()
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
