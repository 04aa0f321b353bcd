//! Fallible vectors for memory whose size depends on the data or on the caller: a failed allocation is a typed error and
//! does not abort the process.

use bytemuck::Zeroable;

use crate::{Error, Result, memory};

/// From this many bytes on, the memory limit is checked too; smaller vectors are frequent and short-lived.
const MIN_LIMITED_BYTES: usize = 32 << 10;

/// The error of an allocation of `bytes` bytes.
pub(crate) fn refused(op: &'static str, bytes: usize) -> Error {
    Error::OutOfMemory {
        op,
        requested: bytes,
        in_use: memory::stats().in_use,
        limit: memory::memory_limit(),
    }
}

/// Returns an error if `count` values of `T` would exceed the memory limit.
pub(crate) fn check<T>(op: &'static str, count: usize) -> Result<()> {
    let bytes = count.saturating_mul(size_of::<T>());
    if bytes >= MIN_LIMITED_BYTES
        && memory::stats().in_use.saturating_add(bytes) > memory::memory_limit()
    {
        return Err(refused(op, bytes));
    }
    Ok(())
}

/// Returns an empty vector with a capacity of `count` elements.
pub(crate) fn empty<T>(op: &'static str, count: usize) -> Result<Vec<T>> {
    check::<T>(op, count)?;
    let mut vec = Vec::new();
    vec.try_reserve_exact(count)
        .map_err(|_| refused(op, count.saturating_mul(size_of::<T>())))?;
    Ok(vec)
}

/// Returns a vector of `count` zeros. Those of primitive types come from the system, which provides their pages when they
/// are first written.
pub(crate) fn zeros<T: Zeroable + Clone>(op: &'static str, count: usize) -> Result<Vec<T>> {
    // There is no fallible form of `vec!`: this finds out whether it would abort.
    drop(empty::<T>(op, count)?);
    Ok(vec![T::zeroed(); count])
}

/// Returns a vector of `count` copies of `value`.
pub(crate) fn filled<T: Clone>(op: &'static str, count: usize, value: T) -> Result<Vec<T>> {
    let mut vec = empty(op, count)?;
    vec.resize(count, value);
    Ok(vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_sizes_that_no_machine_has() {
        for count in [usize::MAX, usize::MAX / 8, isize::MAX as usize / 8] {
            let error = filled("sort", count, 0_u64).expect_err("too much");
            assert!(
                matches!(error, Error::OutOfMemory { op: "sort", .. }),
                "{error}"
            );
        }
        assert_eq!(filled("sort", 3, 7_u8), Ok(vec![7; 3]));
        assert!(zeros::<u16>("sort", isize::MAX as usize / 2).is_err());
        assert_eq!(zeros::<u16>("sort", 3), Ok(vec![0; 3]));
    }
}
