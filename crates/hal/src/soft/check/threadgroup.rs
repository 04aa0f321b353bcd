//! Shadow memory of threadgroup memory.
//!
//! It covers one worker's mapping, byte by byte, across threadgroups: the clocks keep running, so nothing is
//! cleared in between.

use super::happens_before::{AccessRecord, Clocks, Conflict, ShadowCell};
use crate::soft::plan::ThreadgroupVariable;
use crate::soft::runtime::ThreadgroupLayout;

/// An allocation in threadgroup memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allocation {
    /// A variable of the kernel, by its id.
    Variable(u32),
    /// A host-sized argument, by its index.
    Argument(u32),
}

/// The range of an allocation in the mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AllocationRange {
    pub(super) allocation: Allocation,
    pub(super) start: usize,
    pub(super) length: usize,
}

/// A read of unwritten bytes. Whether it is an uninitialised read or part of a race is decided at the next barrier:
/// another thread may write the bytes until then.
#[derive(Debug, Clone, Copy)]
pub(super) struct UninitialisedRead {
    pub(super) offset: usize,
    pub(super) size: usize,
    pub(super) reader: AccessRecord,
}

/// Maximum number of uninitialised reads recorded between two barriers.
const MAX_UNINITIALISED_READS: usize = 4096;

#[derive(Debug)]
pub(super) struct ThreadgroupShadow {
    cells: Vec<ShadowCell>,
    /// Sorted by start.
    ranges: Vec<AllocationRange>,
    clocks: Clocks,
    /// Cells older than this belong to earlier threadgroups.
    start: u32,
    uninitialised: Vec<UninitialisedRead>,
}

impl Default for ThreadgroupShadow {
    fn default() -> Self {
        Self {
            cells: Vec::new(),
            ranges: Vec::new(),
            clocks: Clocks::new(),
            start: 1,
            uninitialised: Vec::new(),
        }
    }
}

impl ThreadgroupShadow {
    /// Adopts the layout of a launch.
    pub(super) fn begin_launch(
        &mut self,
        layout: &ThreadgroupLayout,
        variables: &[ThreadgroupVariable],
    ) {
        let variables = variables.iter().map(|variable| AllocationRange {
            allocation: Allocation::Variable(variable.id),
            start: layout.arena + variable.offset,
            length: variable.size,
        });
        let arguments = layout
            .arguments
            .iter()
            .zip(0..)
            .filter_map(|(range, index)| {
                range.as_ref().map(|range| AllocationRange {
                    allocation: Allocation::Argument(index),
                    start: range.start,
                    length: range.len(),
                })
            });
        self.ranges = variables.chain(arguments).collect();
        self.ranges.sort_by_key(|range| range.start);
        if self.cells.len() < layout.total {
            self.cells.resize(layout.total, ShadowCell::default());
        }
    }

    pub(super) fn begin_group(&mut self) {
        self.uninitialised.clear();
        self.start = self.clocks.restart();
        if self.start > u32::MAX / 2 {
            self.cells.fill(ShadowCell::default());
            self.clocks = Clocks::new();
            self.start = self.clocks.restart();
        }
    }

    pub(super) fn clocks(&mut self) -> &mut Clocks {
        &mut self.clocks
    }

    pub(super) fn now(&self, lane: u32) -> u32 {
        self.clocks.now(lane)
    }

    /// Finds the allocation that an access at `offset` belongs to, or else the nearest one, and whether the access is in
    /// bounds; `None` if there is no threadgroup memory at all.
    pub(super) fn find(&self, offset: usize, size: usize) -> Option<(AllocationRange, bool)> {
        let after = self.ranges.partition_point(|range| range.start <= offset);
        let before = after.checked_sub(1).map(|index| self.ranges[index]);
        if let Some(range) = before
            && offset + size <= range.start + range.length
        {
            return Some((range, true));
        }
        // Overruns are more likely than underruns; still, an access just before an allocation is attributed to it.
        let next = self.ranges.get(after).copied();
        let nearest = match (before, next) {
            (Some(before), Some(next)) => {
                let past = offset.saturating_sub(before.start + before.length);
                if past <= next.start - offset {
                    before
                } else {
                    next
                }
            }
            (before, next) => before.or(next)?,
        };
        Some((nearest, false))
    }

    /// The range of an allocation.
    pub(super) fn range_of(&self, allocation: Allocation) -> Option<AllocationRange> {
        let ranges = self.ranges.iter();
        ranges.copied().find(|range| range.allocation == allocation)
    }

    /// Records an access inside an allocation. Returns an earlier access that it conflicts with.
    pub(super) fn touch(
        &mut self,
        offset: usize,
        size: usize,
        write: bool,
        record: AccessRecord,
    ) -> Option<Conflict> {
        let mut conflict = None;
        let mut unwritten = false;
        for cell in &mut self.cells[offset..offset + size] {
            let writer = cell.writer();
            unwritten |= !writer.is_some() || writer.time() < self.start;
            let found = if write {
                cell.write(record, &self.clocks)
            } else {
                cell.read(record, &self.clocks)
            };
            conflict = conflict.or(found);
        }
        // An atomic access that writes may be a store, which is how atomics are initialised.
        if !write && unwritten && self.uninitialised.len() < MAX_UNINITIALISED_READS {
            self.uninitialised.push(UninitialisedRead {
                offset,
                size,
                reader: record,
            });
        }
        conflict
    }

    /// Takes the reads since the last barrier that found uninitialised memory, as opposed to racing with a writer.
    pub(super) fn take_uninitialised(&mut self) -> Vec<UninitialisedRead> {
        let cells = &self.cells;
        let start = self.start;
        let raced = |read: &UninitialisedRead| {
            cells[read.offset..read.offset + read.size]
                .iter()
                .any(|cell| {
                    let writer = cell.writer();
                    let by_another_lane = writer.is_some()
                        && writer.time() >= start
                        && writer.lane() != read.reader.lane();
                    let same_simd_group = writer.lane() / 32 == read.reader.lane() / 32;
                    by_another_lane && !(same_simd_group && writer.time() > read.reader.time())
                })
        };
        let mut reads = std::mem::take(&mut self.uninitialised);
        reads.retain(|read| !raced(read));
        reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shadow() -> ThreadgroupShadow {
        let mut shadow = ThreadgroupShadow::default();
        let mut arguments = [const { None }; 31];
        arguments[2] = Some(512..576);
        let layout = ThreadgroupLayout {
            arena: 128,
            arguments,
            total: 1024,
        };
        let variable = ThreadgroupVariable {
            id: 5,
            offset: 0,
            size: 100,
        };
        shadow.begin_launch(&layout, &[variable]);
        shadow.begin_group();
        shadow
    }

    fn record(shadow: &ThreadgroupShadow, lane: u32) -> AccessRecord {
        AccessRecord::new(0, lane, 0, false, shadow.now(lane))
    }

    #[test]
    fn accesses_are_attributed_to_their_or_the_nearest_allocation() {
        let shadow = shadow();
        struct Case {
            offset: usize,
            allocation: Allocation,
            inside: bool,
        }
        let cases = [
            Case {
                offset: 128,
                allocation: Allocation::Variable(5),
                inside: true,
            },
            Case {
                offset: 224,
                allocation: Allocation::Variable(5),
                inside: true,
            },
            Case {
                offset: 225,
                allocation: Allocation::Variable(5),
                inside: false,
            },
            Case {
                offset: 124,
                allocation: Allocation::Variable(5),
                inside: false,
            },
            Case {
                offset: 512,
                allocation: Allocation::Argument(2),
                inside: true,
            },
            Case {
                offset: 576,
                allocation: Allocation::Argument(2),
                inside: false,
            },
            Case {
                offset: 508,
                allocation: Allocation::Argument(2),
                inside: false,
            },
        ];
        for case in cases {
            let (range, inside) = shadow.find(case.offset, 4).unwrap();
            assert_eq!(
                (range.allocation, inside),
                (case.allocation, case.inside),
                "{}",
                case.offset
            );
        }
    }

    #[test]
    fn uninitialised_reads_are_kept_unless_another_thread_writes_before_the_barrier() {
        let mut shadow = shadow();
        assert_eq!(shadow.touch(128, 4, false, record(&shadow, 0)), None);
        assert_eq!(shadow.take_uninitialised().len(), 1);
        assert_eq!(shadow.touch(132, 4, false, record(&shadow, 0)), None);
        assert!(shadow.touch(132, 4, true, record(&shadow, 1)).is_some());
        assert_eq!(shadow.take_uninitialised().len(), 0);
        assert_eq!(shadow.touch(136, 4, true, record(&shadow, 0)), None);
        assert_eq!(shadow.touch(136, 4, false, record(&shadow, 0)), None);
        assert_eq!(shadow.take_uninitialised().len(), 0);
        assert_eq!(shadow.touch(138, 4, false, record(&shadow, 0)), None);
        assert_eq!(shadow.take_uninitialised().len(), 1);
    }

    #[test]
    fn a_new_threadgroup_starts_uninitialised_and_without_races() {
        let mut shadow = shadow();
        shadow.touch(128, 4, true, record(&shadow, 40));
        shadow.begin_group();
        assert_eq!(shadow.touch(128, 4, true, record(&shadow, 0)), None);
        shadow.begin_group();
        assert_eq!(shadow.touch(128, 4, false, record(&shadow, 1)), None);
        assert_eq!(shadow.take_uninitialised().len(), 1);
    }
}
