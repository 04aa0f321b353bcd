//! Which accesses of a threadgroup are ordered, and what memory remembers of them.
//!
//! Every SIMD-group has a clock for threadgroup memory and one for device memory. A barrier that covers the memory
//! moves the clocks of all SIMD-groups and sets the floor: what happened below it is over for everybody. Synchronising
//! a SIMD-group moves its own clock alone.

use crate::soft::plan::{MAX_LANES, SIMD_WIDTH};

/// SIMD-groups of the largest threadgroup.
const SIMD_GROUPS: usize = MAX_LANES / SIMD_WIDTH;

/// The clocks of one threadgroup for one kind of memory.
#[derive(Debug, Clone)]
pub(super) struct Clocks {
    now: [u32; SIMD_GROUPS],
    floor: [u32; SIMD_GROUPS],
}

impl Clocks {
    pub(super) fn new() -> Self {
        Self {
            now: [1; SIMD_GROUPS],
            floor: [1; SIMD_GROUPS],
        }
    }

    /// The time of `lane`'s accesses.
    pub(super) fn now(&self, lane: u32) -> u32 {
        self.now[simd_group(lane)]
    }

    /// Orders everything before against everything after; returns the first time after.
    pub(super) fn restart(&mut self) -> u32 {
        let next = self.now.iter().max().map_or(1, |latest| latest + 1);
        self.now = [next; SIMD_GROUPS];
        self.floor = self.now;
        next
    }

    /// All lanes of the threadgroup have synchronised.
    pub(super) fn barrier(&mut self) {
        for now in &mut self.now {
            *now += 1;
        }
        self.floor = self.now;
    }

    /// The lanes of one SIMD-group have synchronised.
    pub(super) fn simd_barrier(&mut self, simd_group: u32) {
        self.now[simd_group as usize % SIMD_GROUPS] += 1;
    }

    /// Whether an earlier access by `lane` at `time` is ordered before one by `by` now.
    fn ordered(&self, lane: u32, time: u32, by: u32) -> bool {
        let there = simd_group(lane);
        if there == simd_group(by) {
            lane == by || time < self.now[there]
        } else {
            time < self.floor[there]
        }
    }
}

fn simd_group(lane: u32) -> usize {
    lane as usize / SIMD_WIDTH % SIMD_GROUPS
}

/// One access, as memory remembers it: threadgroup, lane, place, whether it was atomic, and its time.
/// All zero is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, packed(4))]
pub(super) struct Trace {
    bits: u64,
    time: u32,
}

const LANE_BITS: u32 = 10;
const PLACE_BITS: u32 = 20;
const VALID: u64 = 1;
const ATOMIC: u64 = 2;

impl Trace {
    pub(super) fn new(group: u32, lane: u32, place: u32, atomic: bool, time: u32) -> Self {
        // A kernel with more places than fit has its last ones unknown.
        let place = if place >> PLACE_BITS == 0 { place } else { 0 };
        let bits = VALID
            | if atomic { ATOMIC } else { 0 }
            | u64::from(lane) << 2
            | u64::from(place) << (2 + LANE_BITS)
            | u64::from(group) << (2 + LANE_BITS + PLACE_BITS);
        Self { bits, time }
    }

    pub(super) fn is_some(self) -> bool {
        self.bits & VALID != 0
    }

    pub(super) fn is_atomic(self) -> bool {
        self.bits & ATOMIC != 0
    }

    pub(super) fn lane(self) -> u32 {
        (self.bits >> 2) as u32 & ((1 << LANE_BITS) - 1)
    }

    pub(super) fn place(self) -> u32 {
        (self.bits >> (2 + LANE_BITS)) as u32 & ((1 << PLACE_BITS) - 1)
    }

    pub(super) fn group(self) -> u32 {
        (self.bits >> (2 + LANE_BITS + PLACE_BITS)) as u32
    }

    pub(super) fn time(self) -> u32 {
        self.time
    }

    /// Whether this happened before `later`, an access of the present moment.
    fn is_before(self, later: Self, clocks: &Clocks) -> bool {
        self.group() == later.group() && clocks.ordered(self.lane(), self.time, later.lane())
    }

    fn conflicts(self, later: Self, clocks: &Clocks) -> bool {
        self.is_some() && !(self.is_atomic() && later.is_atomic()) && !self.is_before(later, clocks)
    }

    /// How hard two accesses are to order: within a SIMD-group, a threadgroup, or not at all.
    fn distance(self, other: Self) -> u8 {
        if self.group() != other.group() {
            2
        } else {
            u8::from(simd_group(self.lane()) != simd_group(other.lane()))
        }
    }
}

/// What a piece of memory remembers: its last writer, and two readers chosen so that whoever writes next without being
/// ordered after all readers is found to conflict with one of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Mark {
    writer: Trace,
    readers: [Trace; 2],
}

/// An earlier access that a new one conflicts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) earlier: Trace,
    pub(super) earlier_wrote: bool,
}

impl Mark {
    pub(super) fn writer(&self) -> Trace {
        self.writer
    }

    /// Notes a write.
    #[inline]
    pub(super) fn write(&mut self, trace: Trace, clocks: &Clocks) -> Option<Conflict> {
        let mut conflict = None;
        for (earlier, earlier_wrote) in [
            (self.readers[1], false),
            (self.readers[0], false),
            (self.writer, true),
        ] {
            if earlier.conflicts(trace, clocks) {
                conflict = Some(Conflict {
                    earlier,
                    earlier_wrote,
                });
            }
        }
        self.writer = trace;
        self.readers = [Trace::default(); 2];
        conflict
    }

    /// Notes a read.
    #[inline]
    pub(super) fn read(&mut self, trace: Trace, clocks: &Clocks) -> Option<Conflict> {
        let [first, second] = self.readers;
        // A reader that is over for us is worth less than we are; otherwise keep the two furthest apart.
        let slot = if !first.is_some() || first.is_before(trace, clocks) {
            0
        } else if !second.is_some() || second.is_before(trace, clocks) {
            1
        } else {
            usize::from(trace.distance(first) >= first.distance(second))
        };
        self.readers[slot] = trace;
        self.writer.conflicts(trace, clocks).then_some(Conflict {
            earlier: self.writer,
            earlier_wrote: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(group: u32, lane: u32, clocks: &Clocks) -> Trace {
        Trace::new(group, lane, 7, false, clocks.now(lane))
    }

    #[test]
    fn traces_keep_their_parts() {
        let trace = Trace::new(u32::MAX, 1023, (1 << 20) - 1, true, 9);
        assert_eq!(trace.group(), u32::MAX);
        assert_eq!(trace.lane(), 1023);
        assert_eq!(trace.place(), (1 << 20) - 1);
        assert!(trace.is_atomic() && trace.is_some());
        assert_eq!(trace.time(), 9);
        assert_eq!(Trace::new(0, 0, 1 << 20, false, 0).place(), 0);
        assert!(!Trace::default().is_some());
    }

    #[test]
    fn barriers_order_and_their_absence_does_not() {
        let mut clocks = Clocks::new();
        let mut mark = Mark::default();
        assert_eq!(mark.write(trace(0, 0, &clocks), &clocks), None);
        assert_eq!(mark.read(trace(0, 0, &clocks), &clocks), None);
        assert!(mark.read(trace(0, 1, &clocks), &clocks).is_some());
        clocks.barrier();
        assert_eq!(mark.read(trace(0, 1, &clocks), &clocks), None);
        assert_eq!(mark.read(trace(0, 40, &clocks), &clocks), None);
        let conflict = mark.write(trace(0, 1, &clocks), &clocks).unwrap();
        assert_eq!(conflict.earlier.lane(), 40);
        assert!(!conflict.earlier_wrote);
    }

    #[test]
    fn simd_barriers_order_one_simd_group_only() {
        let mut clocks = Clocks::new();
        let mut mark = Mark::default();
        mark.write(trace(0, 3, &clocks), &clocks);
        clocks.simd_barrier(0);
        assert_eq!(mark.read(trace(0, 4, &clocks), &clocks), None);
        assert!(mark.read(trace(0, 32, &clocks), &clocks).is_some());
        clocks.simd_barrier(1);
        assert!(mark.read(trace(0, 32, &clocks), &clocks).is_some());
    }

    #[test]
    fn threadgroups_are_never_ordered_and_atomics_get_along() {
        let mut clocks = Clocks::new();
        let mut mark = Mark::default();
        let atomic = |group, clocks: &Clocks| Trace::new(group, 0, 0, true, clocks.now(0));
        assert_eq!(mark.write(atomic(0, &clocks), &clocks), None);
        clocks.barrier();
        assert_eq!(mark.write(atomic(1, &clocks), &clocks), None);
        assert!(mark.read(trace(2, 0, &clocks), &clocks).is_some());
        assert_eq!(mark.read(trace(1, 0, &clocks), &clocks), None);
    }

    #[test]
    fn a_writer_finds_whichever_reader_it_is_not_ordered_after() {
        let clocks = Clocks::new();
        for readers in [
            vec![0, 1, 2],
            vec![0, 40, 1],
            vec![40, 0, 41],
            vec![0, 33, 65, 1],
        ] {
            let mut mark = Mark::default();
            for &reader in &readers {
                mark.read(trace(0, reader, &clocks), &clocks);
            }
            for writer in [0, 1, 2, 40, 41, 100] {
                let mut copy = mark;
                let conflict = copy.write(trace(0, writer, &clocks), &clocks);
                assert!(conflict.is_some(), "{readers:?} then {writer}");
            }
        }
        let mut mark = Mark::default();
        for group in [1, 1, 2, 1, 2, 2] {
            mark.read(trace(group, 0, &clocks), &clocks);
        }
        for group in [1, 2, 3] {
            let mut copy = mark;
            assert!(copy.write(trace(group, 0, &clocks), &clocks).is_some());
        }
    }

    #[test]
    fn restarting_orders_everything() {
        let mut clocks = Clocks::new();
        let mut mark = Mark::default();
        clocks.simd_barrier(3);
        mark.write(trace(0, 100, &clocks), &clocks);
        let start = clocks.restart();
        assert!(mark.writer().time() < start);
        assert_eq!(mark.write(trace(0, 0, &clocks), &clocks), None);
        assert_eq!(mark.writer().time(), start);
    }
}
