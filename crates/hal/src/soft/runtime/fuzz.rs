//! Reproducible randomness.

/// The SplitMix64 mixing function: a bijection in which every input bit affects every output bit.
pub(crate) fn scatter(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the seed of one threadgroup: a function of the device's seed, the launch number and the threadgroup, so that a
/// run is reproducible whatever else the process does.
pub(crate) fn group_seed(seed: u64, launch: u64, group: u64) -> u64 {
    scatter(scatter(scatter(seed) ^ launch) ^ group)
}

/// A pseudorandom permutation of `0..length`, evaluated point by point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Permutation {
    length: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    /// Creates the permutation of `0..length` for `seed`.
    pub(crate) fn new(length: u64, seed: u64) -> Self {
        let bits = u64::BITS - length.saturating_sub(1).leading_zeros();
        Self {
            length,
            half_bits: bits.div_ceil(2).max(1),
            seed,
        }
    }

    /// Returns the image of `index`, which must be below the length.
    pub(crate) fn apply(&self, index: u64) -> u64 {
        // A Feistel network permutes the next power of four; cycle walking restricts it to the length.
        let mut value = index;
        loop {
            value = self.network(value);
            if value < self.length {
                return value;
            }
        }
    }

    fn network(&self, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..4 {
            let mixed = scatter(self.seed ^ scatter(right ^ (round << 56)));
            (left, right) = (right, left ^ (mixed & mask));
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_hit_everything_once() {
        for length in [1, 2, 3, 4, 5, 31, 64, 100, 1000] {
            for seed in 0..3 {
                let permutation = Permutation::new(length, seed);
                let mut hit: Vec<u64> = (0..length).map(|i| permutation.apply(i)).collect();
                hit.sort_unstable();
                assert!(hit.into_iter().eq(0..length), "length {length} seed {seed}");
            }
        }
    }

    #[test]
    fn seeds_give_different_orders() {
        let order = |seed| -> Vec<u64> {
            let permutation = Permutation::new(50, seed);
            (0..50).map(|i| permutation.apply(i)).collect()
        };
        assert_ne!(order(1), order(2));
        assert_eq!(order(1), order(1));
        assert_ne!(group_seed(1, 0, 0), group_seed(1, 0, 1));
        assert_ne!(group_seed(1, 0, 1), group_seed(1, 1, 0));
    }
}
