//! Indices of any integer type as places along an axis.

use crate::dispatch::Dense;
use crate::dtype::with_type;
use crate::{DType, Error, Result};

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
        let indices = &indices.all::<T>()[start..][..places.len()];
        // One look for all: the loop has no way out and vectorises.
        let mut inside = true;
        for (place, &index) in places.iter_mut().zip(indices) {
            let at = index as i64;
            let negative = T::MIN != 0 && at < 0;
            *place = at.wrapping_add(if negative { len as i64 } else { 0 }) as usize;
            inside &= *place < len;
        }
        let bad = || places.iter().position(|&place| place >= len);
        match if inside { None } else { bad() } {
            None => Ok(()),
            Some(i) => Err(Error::BadIndex {
                op,
                index: i64::try_from(indices[i]).unwrap_or(i64::MAX),
                len,
            }),
        }
    }, else unreachable!("checked when the op was made"))
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
