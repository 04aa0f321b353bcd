//! Results that several tasks write to.
#![expect(unsafe_code, reason = "tasks write to rows that are theirs alone")]
#![expect(
    clippy::mut_from_ref,
    reason = "that parts are disjoint is a matter of the tasks' ranges"
)]

use crate::cpu::pool::DisjointSlice;

/// The rows of a result that a task writes: those in its range, of every vector.
pub(crate) struct SharedOutput<'a> {
    pub(super) all: &'a DisjointSlice<'a, f32>,
    pub(super) vectors: usize,
    pub(super) rows: usize,
}

impl SharedOutput<'_> {
    /// Where the results of vector `i` for `len` rows from `first` on go.
    #[inline(always)]
    pub(super) fn get(&self, i: usize, first: usize, len: usize) -> &mut [f32] {
        debug_assert!(i < self.vectors);
        // SAFETY: a task asks for rows of its own range only, one vector at a time, and lets go before it asks
        // again; the ranges of tasks are disjoint.
        unsafe { self.all.range(i * self.rows + first, len) }
    }
}

/// The numbers of a task that has `range` of them to itself.
pub(super) fn own<'a, T>(
    all: &'a DisjointSlice<'_, T>,
    range: std::ops::Range<usize>,
) -> &'a mut [T] {
    // SAFETY: every task asks once, for a range that no other task has.
    unsafe { all.range(range.start, range.len()) }
}
