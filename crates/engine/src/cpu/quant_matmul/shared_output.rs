//! Outputs that several tasks write to.
#![expect(unsafe_code, reason = "each task writes only its own rows")]
#![expect(clippy::mut_from_ref, reason = "the ranges of tasks are disjoint")]

use crate::cpu::pool::DisjointSlice;

/// An output whose rows are split between tasks: each writes its own range of every vector.
pub(crate) struct SharedOutput<'a> {
    pub(super) all: &'a DisjointSlice<'a, f32>,
    pub(super) vectors: usize,
    pub(super) rows: usize,
}

impl SharedOutput<'_> {
    /// The results of vector `i` for `len` rows from `first` on.
    #[inline(always)]
    pub(super) fn get(&self, i: usize, first: usize, len: usize) -> &mut [f32] {
        debug_assert!(i < self.vectors);
        // SAFETY: a task takes rows of its own range only, one vector at a time, and drops the slice before it takes
        // the next; the ranges of tasks are disjoint.
        unsafe { self.all.range(i * self.rows + first, len) }
    }
}

/// The elements in `range`, which belongs to one task.
pub(super) fn own<'a, T>(
    all: &'a DisjointSlice<'_, T>,
    range: std::ops::Range<usize>,
) -> &'a mut [T] {
    // SAFETY: every task calls this once per slice, with a range of its own.
    unsafe { all.range(range.start, range.len()) }
}
