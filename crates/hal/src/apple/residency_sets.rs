//! Assignment of buffers to residency sets.
//!
//! A set is made resident as a whole. A single set of all memory has crashed systems, so there are several, each a
//! small fraction of what the device can hold; a larger buffer has its own set.

/// Maximum number of sets of a queue.
const MAX_SETS: usize = 32;

/// A set holds at most 1/20 of what the device can hold.
const SET_LIMIT_DIVISOR: u64 = 20;

/// Number of bytes in every set.
#[derive(Debug)]
pub(super) struct ResidencySets {
    bytes: Vec<u64>,
    limit: u64,
}

impl ResidencySets {
    /// Starts without sets; their total is at most `limit` bytes.
    pub(super) fn new(limit: u64) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
        }
    }

    /// Returns the index of the set for a buffer, which is a new set if the index equals the previous number of sets;
    /// `None` if the buffer exceeds the limit.
    pub(super) fn add(&mut self, length: u64) -> Option<usize> {
        let total: u64 = self.bytes.iter().sum();
        if total.checked_add(length)? > self.limit {
            return None;
        }
        let set_limit = self.limit / SET_LIMIT_DIVISOR;
        let fits = |bytes: &u64| *bytes == 0 || bytes + length <= set_limit;
        let index = match self.bytes.iter().position(fits) {
            Some(index) => index,
            None if self.bytes.len() < MAX_SETS => {
                self.bytes.push(0);
                self.bytes.len() - 1
            }
            None => (0..MAX_SETS).min_by_key(|i| self.bytes[*i])?,
        };
        self.bytes[index] += length;
        Some(index)
    }

    /// Removes a buffer from its set; true if it was the last one.
    pub(super) fn remove(&mut self, index: usize, length: u64) -> bool {
        self.bytes[index] -= length;
        self.bytes[index] == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_buffers_share_a_set_and_large_ones_have_their_own() {
        let mut sets = ResidencySets::new(1000);
        let indices: Vec<_> = [20, 20, 300, 10, 20, 50]
            .map(|n| sets.add(n).unwrap())
            .into();
        assert_eq!(indices, [0, 0, 1, 0, 2, 3]);
    }

    #[test]
    fn buffers_beyond_the_limit_are_in_no_set() {
        let mut sets = ResidencySets::new(1000);
        assert_eq!(sets.add(900), Some(0));
        assert_eq!(sets.add(101), None);
        assert_eq!(sets.add(u64::MAX), None);
        assert_eq!(sets.add(100), Some(1));
        assert_eq!(sets.add(1), None);
    }

    #[test]
    fn an_empty_set_is_reused() {
        let mut sets = ResidencySets::new(1000);
        assert_eq!(sets.add(30), Some(0));
        assert_eq!(sets.add(30), Some(1));
        assert_eq!(sets.add(15), Some(0));
        assert!(!sets.remove(0, 30));
        assert!(sets.remove(0, 15));
        assert_eq!(sets.add(700), Some(0));
    }

    #[test]
    fn there_are_never_more_sets_than_a_queue_allows() {
        let mut sets = ResidencySets::new(1000);
        for _ in 0..1000 / 26 {
            assert!(sets.add(26).unwrap() < MAX_SETS);
        }
        assert_eq!(sets.bytes.len(), MAX_SETS);
        assert!(sets.bytes.iter().all(|bytes| *bytes <= 52));
    }
}
