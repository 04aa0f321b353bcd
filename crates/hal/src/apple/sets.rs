//! Which residency set a buffer belongs to.
//!
//! A set is made resident as a whole. One set of all memory has brought systems down, so there are several, each a small
//! part of what the device can hold; a larger buffer has one of its own.

/// Sets that a queue takes at most.
const MOST: usize = 32;

/// A set holds one part in so many of what the device can hold.
const PARTS: u64 = 20;

/// Bytes in every set.
#[derive(Debug)]
pub(super) struct Sets {
    bytes: Vec<u64>,
    limit: u64,
}

impl Sets {
    /// No sets yet; together they hold at most `limit` bytes.
    pub(super) fn new(limit: u64) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
        }
    }

    /// The set for a buffer, which is a new one if it is the number of those there were; `None` if there is no room.
    pub(super) fn add(&mut self, length: u64) -> Option<usize> {
        let total: u64 = self.bytes.iter().sum();
        if total.checked_add(length)? > self.limit {
            return None;
        }
        let share = self.limit / PARTS;
        let fits = |bytes: &u64| *bytes == 0 || bytes + length <= share;
        let index = match self.bytes.iter().position(fits) {
            Some(index) => index,
            None if self.bytes.len() < MOST => {
                self.bytes.push(0);
                self.bytes.len() - 1
            }
            None => (0..MOST).min_by_key(|i| self.bytes[*i])?,
        };
        self.bytes[index] += length;
        Some(index)
    }

    /// Takes a buffer out of its set; true if it was the last one.
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
        let mut sets = Sets::new(1000);
        let indices: Vec<_> = [20, 20, 300, 10, 20, 50]
            .map(|n| sets.add(n).unwrap())
            .into();
        assert_eq!(indices, [0, 0, 1, 0, 2, 3]);
    }

    #[test]
    fn what_does_not_fit_the_device_is_in_no_set() {
        let mut sets = Sets::new(1000);
        assert_eq!(sets.add(900), Some(0));
        assert_eq!(sets.add(101), None);
        assert_eq!(sets.add(u64::MAX), None);
        assert_eq!(sets.add(100), Some(1));
        assert_eq!(sets.add(1), None);
    }

    #[test]
    fn a_set_that_is_empty_is_used_again() {
        let mut sets = Sets::new(1000);
        assert_eq!(sets.add(30), Some(0));
        assert_eq!(sets.add(30), Some(1));
        assert_eq!(sets.add(15), Some(0));
        assert!(!sets.remove(0, 30));
        assert!(sets.remove(0, 15));
        assert_eq!(sets.add(700), Some(0));
    }

    #[test]
    fn there_are_never_more_sets_than_a_queue_takes() {
        let mut sets = Sets::new(1000);
        for _ in 0..1000 / 26 {
            assert!(sets.add(26).unwrap() < MOST);
        }
        assert_eq!(sets.bytes.len(), MOST);
        assert!(sets.bytes.iter().all(|bytes| *bytes <= 52));
    }
}
