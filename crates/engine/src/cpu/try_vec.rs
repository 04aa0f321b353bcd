//! Fallible vectors for scratch memory whose size depends on the data: a failed allocation is a typed error and does not
//! abort the process.

use crate::memory;
use crate::{Error, Result};

/// From this many bytes on, the memory limit is checked too; smaller vectors are frequent and short-lived.
const MIN_LIMITED_BYTES: usize = 32 << 10;

/// Returns an empty vector with a capacity of `count` elements.
pub(super) fn empty<T>(op: &'static str, count: usize) -> Result<Vec<T>> {
    let bytes = count.saturating_mul(size_of::<T>());
    let refused = |in_use| Error::OutOfMemory {
        op,
        requested: bytes,
        in_use,
        limit: memory::memory_limit(),
    };
    if bytes >= MIN_LIMITED_BYTES {
        let in_use = memory::stats().in_use;
        if in_use.saturating_add(bytes) > memory::memory_limit() {
            return Err(refused(in_use));
        }
    }
    let mut vec = Vec::new();
    match vec.try_reserve_exact(count) {
        Ok(()) => Ok(vec),
        Err(_) => Err(refused(memory::stats().in_use)),
    }
}

/// Returns a vector of `count` copies of `value`.
pub(super) fn filled<T: Clone>(op: &'static str, count: usize, value: T) -> Result<Vec<T>> {
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
    }
}
