//! Vectors for scratch memory whose size depends on data: where there is no memory for one, a typed error
//! and not the end of the process.

use crate::memory;
use crate::{Error, Result};

/// From this many bytes on, the memory limit is looked at too; smaller vectors are many and pass quickly.
const COUNTED: usize = 32 << 10;

/// An empty vector with room for `count` elements.
pub(super) fn empty<T>(op: &'static str, count: usize) -> Result<Vec<T>> {
    let bytes = count.saturating_mul(size_of::<T>());
    let refused = |in_use| Error::OutOfMemory {
        op,
        requested: bytes,
        in_use,
        limit: memory::memory_limit(),
    };
    if bytes >= COUNTED {
        let in_use = memory::stats().in_use;
        if in_use.saturating_add(bytes) > memory::memory_limit() {
            return Err(refused(in_use));
        }
    }
    let mut room = Vec::new();
    match room.try_reserve_exact(count) {
        Ok(()) => Ok(room),
        Err(_) => Err(refused(memory::stats().in_use)),
    }
}

/// A vector of `count` elements.
pub(super) fn filled<T: Clone>(op: &'static str, count: usize, value: T) -> Result<Vec<T>> {
    let mut room = empty(op, count)?;
    room.resize(count, value);
    Ok(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_refused() {
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
