//! Joining neighbours, the best pair first, until none is left to join.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A piece of a text on its way to becoming a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    /// Where it begins in the text.
    pub(super) start: usize,
    /// Bytes; 0 once it has become part of its left neighbour.
    pub(super) len: usize,
    /// The token it is, or [`UNKNOWN`].
    pub(super) id: u32,
    previous: usize,
    next: usize,
}

/// Not a token.
pub(super) const UNKNOWN: u32 = u32::MAX;
/// No neighbour.
const NONE: usize = usize::MAX;

/// Symbols in the order of the text.
#[derive(Debug, Default)]
pub(super) struct Symbols(Vec<Symbol>);

/// Two neighbours that may be joined: the smallest is joined first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    rank: u32,
    left: usize,
    right: usize,
    /// Bytes of both, by which a pair that is no longer there is known.
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
            previous: at.checked_sub(1).unwrap_or(NONE),
            next: NONE,
        });
    }

    /// Joins pairs as long as `join` gives a rank and a token for one; the lowest rank goes first, then
    /// the leftmost. Takes `n log n` steps whatever the text.
    pub(super) fn merge(&mut self, join: impl Fn(&Symbol, &Symbol) -> Option<(u32, u32)>) {
        let symbols = &mut self.0;
        let mut queue = BinaryHeap::new();
        let pair = |symbols: &[Symbol], left: usize, right: usize| {
            let (a, b) = (symbols.get(left)?, symbols.get(right)?);
            let (rank, id) = join(a, b)?;
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
            if a.len == 0 || b.len == 0 || a.len + b.len != len || a.next != right {
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

    /// What is left.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Symbol> {
        self.0.iter().filter(|s| s.len > 0)
    }
}
