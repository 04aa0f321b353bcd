//! Merging adjacent symbols, the best pair first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A part of a text that is being merged into a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    /// Its start in the text.
    pub(super) start: usize,
    /// Bytes; 0 after it has been merged into its left neighbour.
    pub(super) len: usize,
    /// Its token, or [`UNKNOWN`].
    pub(super) id: u32,
    previous: usize,
    next: usize,
}

/// Id of a symbol that is not a token.
pub(super) const UNKNOWN: u32 = u32::MAX;
/// Index of a missing neighbour.
const NO_NEIGHBOUR: usize = usize::MAX;

/// Symbols in text order, as a linked list.
#[derive(Debug, Default)]
pub(super) struct Symbols(Vec<Symbol>);

/// Two neighbours that may be merged, smallest first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    rank: u32,
    left: usize,
    right: usize,
    /// Bytes of both, to detect stale pairs.
    len: usize,
    id: u32,
}

impl Symbols {
    pub(super) fn push(&mut self, start: usize, len: usize, id: u32) {
        let at = self.0.len();
        if let Some(last) = self.0.last_mut() {
            last.next = at;
        }
        self.0.push(Symbol {
            start,
            len,
            id,
            previous: at.checked_sub(1).unwrap_or(NO_NEIGHBOUR),
            next: NO_NEIGHBOUR,
        });
    }

    /// Merges pairs while `find` returns a rank and a token for one; the lowest rank first, then
    /// the leftmost. Takes O(n log n) steps for any text.
    pub(super) fn merge(&mut self, find: impl Fn(&Symbol, &Symbol) -> Option<(u32, u32)>) {
        let symbols = &mut self.0;
        let mut queue = BinaryHeap::new();
        let pair = |symbols: &[Symbol], left: usize, right: usize| {
            let (a, b) = (symbols.get(left)?, symbols.get(right)?);
            let (rank, id) = find(a, b)?;
            Some(Reverse(Pair {
                rank,
                left,
                right,
                len: a.len + b.len,
                id,
            }))
        };
        queue.extend((1..symbols.len()).filter_map(|right| pair(symbols, right - 1, right)));
        while let Some(Reverse(best)) = queue.pop() {
            let Pair {
                left, right, len, ..
            } = best;
            let (a, b) = (symbols[left], symbols[right]);
            // A stale pair: one of its symbols has been merged.
            if a.len == 0 || a.next != right || a.len + b.len != len {
                continue;
            }
            symbols[right].len = 0;
            symbols[left].len = len;
            symbols[left].id = best.id;
            symbols[left].next = b.next;
            if let Some(after) = symbols.get_mut(b.next) {
                after.previous = left;
            }
            queue.extend(pair(symbols, a.previous, left));
            queue.extend(pair(symbols, left, b.next));
        }
    }

    /// The remaining symbols.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Symbol> {
        self.0.iter().filter(|s| s.len > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks and tokens of pairs.
    type Merges = [((u32, u32), (u32, u32))];

    fn merged(merges: &Merges, text: &[u32]) -> Vec<u32> {
        let mut symbols = Symbols::default();
        for (at, &id) in text.iter().enumerate() {
            symbols.push(at, 1, id);
        }
        symbols.merge(|a, b| find(merges, a.id, b.id));
        symbols.iter().map(|s| s.id).collect()
    }

    fn find(merges: &Merges, a: u32, b: u32) -> Option<(u32, u32)> {
        let found = merges.iter().find(|(pair, _)| *pair == (a, b));
        found.map(|(_, merge)| *merge)
    }

    /// The definition itself: find the leftmost pair of the lowest rank, merge it, start again.
    fn expected(merges: &Merges, text: &[u32]) -> Vec<u32> {
        let mut text = text.to_vec();
        loop {
            let pairs = text.windows(2).enumerate();
            let merge = |(at, pair): (usize, &[u32])| {
                let (rank, id) = find(merges, pair[0], pair[1])?;
                Some((rank, at, id))
            };
            let Some((_, at, id)) = pairs.filter_map(merge).min() else {
                return text;
            };
            text.splice(at..at + 2, [id]);
        }
    }

    #[test]
    fn of_equal_ranks_the_leftmost_is_merged_first() {
        // `aa` of `a a`: pairs overlap, and all of them have the same rank.
        let doubles = [((0, 0), (0, 9))];
        assert_eq!(merged(&doubles, &[0; 3]), [9, 0]);
        assert_eq!(merged(&doubles, &[0; 4]), [9, 9]);
        assert_eq!(merged(&doubles, &[0; 5]), [9, 9, 0]);
        assert_eq!(merged(&doubles, &[1, 0, 0, 0]), [1, 9, 0]);
        // `a b` and `b c` are different merges of one rank.
        let chain = [((0, 1), (3, 8)), ((1, 2), (3, 9))];
        assert_eq!(merged(&chain, &[0, 1, 2]), [8, 2]);
        // A lower rank on the right is merged first.
        let ranked = [((0, 1), (3, 8)), ((1, 2), (2, 9))];
        assert_eq!(merged(&ranked, &[0, 1, 2]), [0, 9]);
    }

    #[test]
    fn random_merges_match_the_definition() {
        let mut state = 7_u64;
        let mut below = |n: u32| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % n
        };
        for round in 0..3000 {
            // Few tokens and fewer ranks, so that most merges tie with another one.
            let count = 1 + below(8);
            let merges: Vec<_> = (0..count)
                .map(|i| ((below(3 + i), below(3 + i)), (below(4), 3 + i)))
                .collect();
            let text: Vec<u32> = (0..below(14)).map(|_| below(3)).collect();
            assert_eq!(
                merged(&merges, &text),
                expected(&merges, &text),
                "round {round}: {merges:?} over {text:?}"
            );
        }
    }
}
