//! Indices of any integer type as places along an axis.

use crate::dispatch::Dense;
use crate::dtype::with_type;
use crate::{DType, Error, Result};

/// An index of any type.
trait Index: bytemuck::Pod {
    /// As a number with a sign; what is too large for one is out of any range.
    fn signed(self) -> i64;
}

macro_rules! index {
    ($($type:ident |$x:ident| $signed:expr),*) => {$(
        impl Index for $type {
            #[inline(always)]
            fn signed(self) -> i64 {
                let $x = self;
                $signed
            }
        }
    )*};
}
index!(u8 |x| i64::from(x), u16 |x| i64::from(x), u32 |x| i64::from(x), i8 |x| i64::from(x),
    i16 |x| i64::from(x), i32 |x| i64::from(x), i64 |x| x,
    u64 |x| i64::try_from(x).unwrap_or(i64::MAX));

/// Indices that are converted at once.
pub(super) const SOME: usize = 512;

/// Converts the indices from `start` on into `places`, each of which must be along an axis of `len`.
pub(super) fn places(
    op: &'static str,
    indices: &Dense<'_>,
    dtype: DType,
    (start, len): (usize, usize),
    places: &mut [usize],
) -> Result<()> {
    with_type!(ints dtype, T => {
        convert(op, &indices.all::<T>()[start..][..places.len()], len, places)
    }, else unreachable!("checked when the op was made"))
}

fn convert<T: Index>(
    op: &'static str,
    indices: &[T],
    len: usize,
    places: &mut [usize],
) -> Result<()> {
    // One look for all: the loop has no way out and vectorises.
    let mut inside = true;
    for (place, index) in places.iter_mut().zip(indices) {
        let at = index.signed();
        let from_end = if at < 0 { len as i64 } else { 0 };
        // Below 0 still, it is above all lengths.
        *place = (at + from_end) as usize;
        inside &= *place < len;
    }
    if inside {
        return Ok(());
    }
    let bad = places.iter().zip(indices).find(|(place, _)| **place >= len);
    Err(Error::BadIndex {
        op,
        index: bad.map_or(0, |(_, index)| index.signed()),
        len,
    })
}

/// Checks all indices before anything is written.
pub(super) fn check(
    op: &'static str,
    indices: &Dense<'_>,
    dtype: DType,
    (count, len): (usize, usize),
) -> Result<()> {
    let mut scratch = [0; SOME];
    for start in (0..count).step_by(SOME) {
        let now = SOME.min(count - start);
        places(op, indices, dtype, (start, len), &mut scratch[..now])?;
    }
    Ok(())
}
