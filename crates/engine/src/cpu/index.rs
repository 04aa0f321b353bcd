//! Conversion and bounds checks of index tensors of any integer type.

use crate::dispatch::{Dense, Input};
use crate::dtype::with_type;
use crate::{DType, Error, Result};

/// An integer element type of an index tensor.
trait IndexType: bytemuck::Pod {
    /// Converts to `i64`, saturating: `i64::MAX` is out of range for every axis.
    fn to_i64(self) -> i64;
}

macro_rules! index {
    ($($type:ident |$x:ident| $signed:expr),*) => {$(
        impl IndexType for $type {
            #[inline(always)]
            fn to_i64(self) -> i64 {
                let $x = self;
                $signed
            }
        }
    )*};
}
index!(
    u8 | x | i64::from(x),
    u16 | x | i64::from(x),
    u32 | x | i64::from(x),
    i8 | x | i64::from(x),
    i16 | x | i64::from(x),
    i32 | x | i64::from(x),
    i64 | x | x,
    u64 | x | i64::try_from(x).unwrap_or(i64::MAX)
);

/// Indices that are converted per call, on the stack.
pub(super) const INDEX_BLOCK_LEN: usize = 512;

/// The indices of an op into an axis of `axis_len` elements.
pub(super) struct AxisIndices<'a> {
    pub(super) op: &'static str,
    pub(super) values: Dense<'a>,
    pub(super) dtype: DType,
    pub(super) axis_len: usize,
}

impl<'a> AxisIndices<'a> {
    /// Reads an index tensor, copying it if it is not contiguous.
    pub(super) fn new(op: &'static str, input: Input<'a>, axis_len: usize) -> Result<Self> {
        Ok(Self {
            op,
            values: Dense::new(op, input)?,
            dtype: input.dtype,
            axis_len,
        })
    }

    /// Converts the indices from number `start` on into `positions` along the axis, with negative ones counted from
    /// the end. An index out of range is an error.
    pub(super) fn resolve(&self, start: usize, positions: &mut [usize]) -> Result<()> {
        with_type!(ints self.dtype, T => {
            let indices = &self.values.all::<T>()[start..][..positions.len()];
            resolve(self.op, indices, self.axis_len, positions)
        }, else unreachable!("checked when the op was made"))
    }

    /// Checks the first `count` indices.
    pub(super) fn check(&self, count: usize) -> Result<()> {
        let mut scratch = [0; INDEX_BLOCK_LEN];
        for start in (0..count).step_by(INDEX_BLOCK_LEN) {
            let len = INDEX_BLOCK_LEN.min(count - start);
            self.resolve(start, &mut scratch[..len])?;
        }
        Ok(())
    }
}

fn resolve<T: IndexType>(
    op: &'static str,
    indices: &[T],
    len: usize,
    positions: &mut [usize],
) -> Result<()> {
    // One check for all: a loop without an early exit vectorises.
    let mut in_range = true;
    for (position, index) in positions.iter_mut().zip(indices) {
        let at = index.to_i64();
        let from_end = if at < 0 { len as i64 } else { 0 };
        // A negative value wraps to one above every length.
        *position = (at + from_end) as usize;
        in_range &= *position < len;
    }
    if in_range {
        return Ok(());
    }
    let mut pairs = positions.iter().zip(indices);
    let bad = pairs.find(|(position, _)| **position >= len);
    Err(Error::BadIndex {
        op,
        index: bad.map_or(0, |(_, index)| index.to_i64()),
        len,
    })
}
