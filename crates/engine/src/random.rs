//! Counter-based random numbers, a pure function of a key.
//!
//! There is no hidden state: a [`Key`] and a counter determine a random number, so programs are reproducible on any
//! backend, with any number of threads, in any order. Use a key once; [`Key::split`] and [`Key::fold_in`] derive as many
//! independent keys as needed.
//!
//! ```
//! use bessemer::{DType, random};
//! let [for_weights, for_data] = random::Key::new(7).split_into();
//! let w = random::normal(&for_weights, [3, 3], DType::F32);
//! let x = random::uniform(&for_data, [3], -1.0, 1.0, DType::F32);
//! assert_eq!(w.matmul(&x).shape()[..], [3]);
//! # Ok::<(), bessemer::Error>(())
//! ```
//!
//! # The generator
//!
//! Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2,
//! 3", SC 2011): a block cipher that maps a key and a counter of 64 bits each to 64 random bits. Block `j`
//! of a tensor is the cipher of counter `j`, low word first. Elements of up to 32 bits take a word each
//! (element `i` takes word `i % 2` of block `i / 2`), larger ones a block each. So elements do not depend on
//! the number of elements, nor on the shape of the tensor.

pub use crate::ops::random::{bernoulli, bits, normal, randint, uniform};

/// A key of the random number generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    words: [u32; 2],
}

/// The counter bit of split keys, which no element has, since there are fewer of them: split keys are blocks outside
/// those of any tensor.
const SPLIT_COUNTER: u64 = 1 << 63;

/// The counter of the key from which [`Key::fold_in`] derives others; no element and no split key uses it.
const FOLD_COUNTER: u64 = u64::MAX;

impl Key {
    /// A key from a seed; different seeds give unrelated keys.
    pub const fn new(seed: u64) -> Self {
        Self {
            words: [(seed >> 32) as u32, seed as u32],
        }
    }

    /// `n` keys that are unrelated to this one and to each other. The first ones do not depend on `n`.
    pub fn split(&self, n: usize) -> impl ExactSizeIterator<Item = Self> + use<> {
        let key = *self;
        (0..n).map(move |i| key.derive(i as u64 | SPLIT_COUNTER))
    }

    /// `N` keys, inferred from the pattern: `let [a, b] = key.split_into();`.
    pub fn split_into<const N: usize>(&self) -> [Self; N] {
        std::array::from_fn(|i| self.derive(i as u64 | SPLIT_COUNTER))
    }

    /// Derives the key of a number, such as the index of a step, layer or sample.
    pub fn fold_in(&self, number: u64) -> Self {
        self.derive(FOLD_COUNTER).derive(number)
    }

    pub(crate) const fn words(&self) -> [u32; 2] {
        self.words
    }

    fn derive(self, counter: u64) -> Self {
        let words = threefry(self.words, [counter as u32, (counter >> 32) as u32]);
        Self { words }
    }
}

/// Threefry-2x32-20.
#[inline(always)]
pub(crate) fn threefry(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    /// Rotations of the second word in bits, for each of eight rounds.
    const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
    /// Gives the third word of the key, so that no extended key is all zeros.
    const PARITY: u32 = 0x1bd1_1bda;

    let keys = [key[0], key[1], key[0] ^ key[1] ^ PARITY];
    let mut a = counter[0].wrapping_add(keys[0]);
    let mut b = counter[1].wrapping_add(keys[1]);
    for group in 0..5_usize {
        for round in 0..4 {
            a = a.wrapping_add(b);
            b = b.rotate_left(ROTATIONS[group % 2 * 4 + round]) ^ a;
        }
        a = a.wrapping_add(keys[(group + 1) % 3]);
        b = b
            .wrapping_add(keys[(group + 2) % 3])
            .wrapping_add(group as u32 + 1);
    }
    [a, b]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threefry_gives_the_published_answers() {
        // From the authors' Random123, kat_vectors, threefry2x32 with 20 rounds.
        let ones = [u32::MAX; 2];
        let pi = [[0x243f_6a88, 0x85a3_08d3], [0x1319_8a2e, 0x0370_7344]];
        assert_eq!(threefry([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry(ones, ones), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(threefry(pi[1], pi[0]), [0xc492_3a9c, 0x483d_f7a0]);
    }

    #[test]
    fn derived_keys_are_all_different() {
        let key = Key::new(1);
        let mut keys: Vec<_> = key.split(1000).collect();
        keys.extend((0..1000).map(|i| key.fold_in(i)));
        keys.extend(key.split_into::<3>().map(|k| k.fold_in(0)));
        keys.push(key);
        let all: std::collections::HashSet<_> = keys.iter().map(|k| k.words).collect();
        assert_eq!(all.len(), keys.len());
        assert_eq!(key.split(5).last(), key.split(1000).nth(4));
        assert_eq!(key.split_into::<2>()[1], keys[1]);
    }
}
