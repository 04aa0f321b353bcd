//! Happens-before tracking within a threadgroup, and shadow memory cells.
//!
//! Every SIMD-group has a logical clock for threadgroup memory and one for device memory. A barrier that covers the
//! memory advances the clocks of all SIMD-groups and raises the floor: accesses below it happened before everything
//! that follows. Synchronising a SIMD-group advances its own clock only.

use crate::soft::plan::{MAX_LANES, SIMD_WIDTH};

/// SIMD-groups in the largest threadgroup.
const MAX_SIMD_GROUPS: usize = MAX_LANES / SIMD_WIDTH;

/// The logical clocks of one threadgroup for one kind of memory.
#[derive(Debug, Clone)]
pub(super) struct Clocks {
    now: [u32; MAX_SIMD_GROUPS],
    floor: [u32; MAX_SIMD_GROUPS],
}

impl Clocks {
    pub(super) fn new() -> Self {
        Self {
            now: [1; MAX_SIMD_GROUPS],
            floor: [1; MAX_SIMD_GROUPS],
        }
    }

    /// Returns the clock value of `lane`'s accesses.
    pub(super) fn now(&self, lane: u32) -> u32 {
        self.now[simd_group(lane)]
    }

    /// Orders all earlier accesses before all later ones; returns the first clock value of the later ones.
    pub(super) fn restart(&mut self) -> u32 {
        let next = self.now.iter().max().map_or(1, |latest| latest + 1);
        self.now = [next; MAX_SIMD_GROUPS];
        self.floor = self.now;
        next
    }

    /// Records a synchronisation of the whole threadgroup.
    pub(super) fn barrier(&mut self) {
        for now in &mut self.now {
            *now += 1;
        }
        self.floor = self.now;
    }

    /// Records a synchronisation of one SIMD-group.
    pub(super) fn simd_barrier(&mut self, simd_group: u32) {
        self.now[simd_group as usize % MAX_SIMD_GROUPS] += 1;
    }

    /// Returns whether an earlier access by `lane` at `time` happens before one by `by` now.
    fn ordered(&self, lane: u32, time: u32, by: u32) -> bool {
        let group = simd_group(lane);
        if group == simd_group(by) {
            lane == by || time < self.now[group]
        } else {
            time < self.floor[group]
        }
    }
}

fn simd_group(lane: u32) -> usize {
    lane as usize / SIMD_WIDTH % MAX_SIMD_GROUPS
}

/// An access in shadow memory: threadgroup, lane, location, whether it was atomic, and its clock value. All zero if
/// there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, packed(4))]
pub(super) struct AccessRecord {
    bits: u64,
    time: u32,
}

const LANE_BITS: u32 = 10;
const LOCATION_BITS: u32 = 20;
const VALID_FLAG: u64 = 1;
const ATOMIC_FLAG: u64 = 2;

impl AccessRecord {
    pub(super) fn new(group: u32, lane: u32, location: u32, atomic: bool, time: u32) -> Self {
        // Locations that do not fit are recorded as unknown.
        let location = if location >> LOCATION_BITS == 0 {
            location
        } else {
            0
        };
        let bits = VALID_FLAG
            | if atomic { ATOMIC_FLAG } else { 0 }
            | u64::from(lane) << 2
            | u64::from(location) << (2 + LANE_BITS)
            | u64::from(group) << (2 + LANE_BITS + LOCATION_BITS);
        Self { bits, time }
    }

    pub(super) fn is_some(self) -> bool {
        self.bits & VALID_FLAG != 0
    }

    pub(super) fn is_atomic(self) -> bool {
        self.bits & ATOMIC_FLAG != 0
    }

    pub(super) fn lane(self) -> u32 {
        (self.bits >> 2) as u32 & ((1 << LANE_BITS) - 1)
    }

    pub(super) fn location(self) -> u32 {
        (self.bits >> (2 + LANE_BITS)) as u32 & ((1 << LOCATION_BITS) - 1)
    }

    pub(super) fn group(self) -> u32 {
        (self.bits >> (2 + LANE_BITS + LOCATION_BITS)) as u32
    }

    pub(super) fn time(self) -> u32 {
        self.time
    }

    /// Returns whether this happens before `later`, a current access.
    fn is_before(self, later: Self, clocks: &Clocks) -> bool {
        self.group() == later.group() && clocks.ordered(self.lane(), self.time, later.lane())
    }

    fn conflicts(self, later: Self, clocks: &Clocks) -> bool {
        self.is_some() && !(self.is_atomic() && later.is_atomic()) && !self.is_before(later, clocks)
    }

    /// Returns the scope of the synchronisation that would order two accesses: SIMD-group, threadgroup, or none.
    fn distance(self, other: Self) -> u8 {
        if self.group() != other.group() {
            2
        } else {
            u8::from(simd_group(self.lane()) != simd_group(other.lane()))
        }
    }
}

/// A shadow cell: the last writer, and two readers selected such that a later write that is not ordered after all
/// readers conflicts with one of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ShadowCell {
    writer: AccessRecord,
    readers: [AccessRecord; 2],
}

/// An earlier access that a new one conflicts with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) earlier: AccessRecord,
    pub(super) earlier_wrote: bool,
}

impl ShadowCell {
    pub(super) fn writer(&self) -> AccessRecord {
        self.writer
    }

    /// Records a write.
    #[inline]
    pub(super) fn write(&mut self, record: AccessRecord, clocks: &Clocks) -> Option<Conflict> {
        let mut conflict = None;
        for (earlier, earlier_wrote) in [
            (self.readers[1], false),
            (self.readers[0], false),
            (self.writer, true),
        ] {
            if earlier.conflicts(record, clocks) {
                conflict = Some(Conflict {
                    earlier,
                    earlier_wrote,
                });
            }
        }
        self.writer = record;
        self.readers = [AccessRecord::default(); 2];
        conflict
    }

    /// Records a read.
    #[inline]
    pub(super) fn read(&mut self, record: AccessRecord, clocks: &Clocks) -> Option<Conflict> {
        let [first, second] = self.readers;
        // Replace a reader that happens before this one; otherwise keep the two readers with the largest distance.
        let slot = if !first.is_some() || first.is_before(record, clocks) {
            0
        } else if !second.is_some() || second.is_before(record, clocks) {
            1
        } else {
            usize::from(record.distance(first) >= first.distance(second))
        };
        self.readers[slot] = record;
        self.writer.conflicts(record, clocks).then_some(Conflict {
            earlier: self.writer,
            earlier_wrote: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(group: u32, lane: u32, clocks: &Clocks) -> AccessRecord {
        AccessRecord::new(group, lane, 7, false, clocks.now(lane))
    }

    #[test]
    fn access_records_round_trip() {
        let record = AccessRecord::new(u32::MAX, 1023, (1 << 20) - 1, true, 9);
        assert_eq!(record.group(), u32::MAX);
        assert_eq!(record.lane(), 1023);
        assert_eq!(record.location(), (1 << 20) - 1);
        assert!(record.is_atomic() && record.is_some());
        assert_eq!(record.time(), 9);
        assert_eq!(AccessRecord::new(0, 0, 1 << 20, false, 0).location(), 0);
        assert!(!AccessRecord::default().is_some());
    }

    #[test]
    fn accesses_are_ordered_by_barriers_only() {
        let mut clocks = Clocks::new();
        let mut cell = ShadowCell::default();
        assert_eq!(cell.write(record(0, 0, &clocks), &clocks), None);
        assert_eq!(cell.read(record(0, 0, &clocks), &clocks), None);
        assert!(cell.read(record(0, 1, &clocks), &clocks).is_some());
        clocks.barrier();
        assert_eq!(cell.read(record(0, 1, &clocks), &clocks), None);
        assert_eq!(cell.read(record(0, 40, &clocks), &clocks), None);
        let conflict = cell.write(record(0, 1, &clocks), &clocks).unwrap();
        assert_eq!(conflict.earlier.lane(), 40);
        assert!(!conflict.earlier_wrote);
    }

    #[test]
    fn simd_barriers_order_one_simd_group_only() {
        let mut clocks = Clocks::new();
        let mut cell = ShadowCell::default();
        cell.write(record(0, 3, &clocks), &clocks);
        clocks.simd_barrier(0);
        assert_eq!(cell.read(record(0, 4, &clocks), &clocks), None);
        assert!(cell.read(record(0, 32, &clocks), &clocks).is_some());
        clocks.simd_barrier(1);
        assert!(cell.read(record(0, 32, &clocks), &clocks).is_some());
    }

    #[test]
    fn threadgroups_are_never_ordered_and_atomics_do_not_conflict() {
        let mut clocks = Clocks::new();
        let mut cell = ShadowCell::default();
        let atomic = |group, clocks: &Clocks| AccessRecord::new(group, 0, 0, true, clocks.now(0));
        assert_eq!(cell.write(atomic(0, &clocks), &clocks), None);
        clocks.barrier();
        assert_eq!(cell.write(atomic(1, &clocks), &clocks), None);
        assert!(cell.read(record(2, 0, &clocks), &clocks).is_some());
        assert_eq!(cell.read(record(1, 0, &clocks), &clocks), None);
    }

    #[test]
    fn a_write_conflicts_with_every_reader_it_is_not_ordered_after() {
        let clocks = Clocks::new();
        for readers in [
            vec![0, 1, 2],
            vec![0, 40, 1],
            vec![40, 0, 41],
            vec![0, 33, 65, 1],
        ] {
            let mut cell = ShadowCell::default();
            for &reader in &readers {
                cell.read(record(0, reader, &clocks), &clocks);
            }
            for writer in [0, 1, 2, 40, 41, 100] {
                let mut copy = cell;
                let conflict = copy.write(record(0, writer, &clocks), &clocks);
                assert!(conflict.is_some(), "{readers:?} then {writer}");
            }
        }
        let mut cell = ShadowCell::default();
        for group in [1, 1, 2, 1, 2, 2] {
            cell.read(record(group, 0, &clocks), &clocks);
        }
        for group in [1, 2, 3] {
            let mut copy = cell;
            assert!(copy.write(record(group, 0, &clocks), &clocks).is_some());
        }
    }

    #[test]
    fn restarting_orders_everything() {
        let mut clocks = Clocks::new();
        let mut cell = ShadowCell::default();
        clocks.simd_barrier(3);
        cell.write(record(0, 100, &clocks), &clocks);
        let start = clocks.restart();
        assert!(cell.writer().time() < start);
        assert_eq!(cell.write(record(0, 0, &clocks), &clocks), None);
        assert_eq!(cell.writer().time(), start);
    }
}
