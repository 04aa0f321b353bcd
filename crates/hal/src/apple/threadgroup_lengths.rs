//! ThreadgroupLengths of threadgroup memory set on an encoder.

/// Lengths by index. An encoder keeps them across launches, even for indices that the next kernel does not have.
#[derive(Debug, Default)]
pub(super) struct ThreadgroupLengths(Vec<(u32, usize)>);

impl ThreadgroupLengths {
    /// Returns whether a launch with these lengths and `fixed` bytes of its kernel stays within `limit`, including
    /// lengths left over from earlier launches.
    pub(super) fn admit(&self, lengths: &[(u32, usize)], fixed: usize, limit: usize) -> bool {
        let is_leftover = |(index, _): &&(u32, usize)| lengths.iter().all(|(i, _)| i != index);
        let leftover: usize = self
            .0
            .iter()
            .filter(is_leftover)
            .map(|(_, length)| length)
            .sum();
        let own: usize = lengths.iter().map(|(_, length)| length).sum();
        leftover + own + fixed <= limit
    }

    /// Records a length.
    pub(super) fn set(&mut self, index: u32, length: usize) {
        match self.0.iter_mut().find(|(i, _)| *i == index) {
            Some((_, known)) => *known = length,
            None => self.0.push((index, length)),
        }
    }

    /// Clears the lengths, for a new encoder.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_other_launches_count_until_there_is_a_new_encoder() {
        let mut lengths = ThreadgroupLengths::default();
        assert!(lengths.admit(&[(0, 20_000)], 12_000, 32_000));
        lengths.set(0, 20_000);
        assert!(lengths.admit(&[(0, 32_000)], 0, 32_000));
        assert!(lengths.admit(&[(1, 12_000)], 0, 32_000));
        assert!(!lengths.admit(&[(1, 12_001)], 0, 32_000));
        assert!(!lengths.admit(&[], 12_001, 32_000));
        lengths.set(0, 1_000);
        assert!(lengths.admit(&[], 31_000, 32_000));
        lengths.clear();
        assert!(lengths.admit(&[(1, 32_000)], 0, 32_000));
    }
}
