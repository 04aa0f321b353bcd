//! What the checker remembers of threadgroup memory.
//!
//! One worker's block, byte by byte, from threadgroup to threadgroup: clocks run on, so nothing is cleared in between.

use super::order::{Clocks, Conflict, Mark, Trace};
use crate::soft::plan::ThreadgroupVariable;
use crate::soft::runtime::ThreadgroupLayout;

/// A piece of threadgroup memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece {
    /// A variable of the kernel, by its id.
    Variable(u32),
    /// A host-sized argument, by its index.
    Argument(u32),
}

/// Where a piece lies in the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) piece: Piece,
    pub(super) start: usize,
    pub(super) length: usize,
}

/// A read of bytes that nothing has written. Whether that is a defect of its own or part of a race shows at the next
/// barrier: another thread may write them until then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unwritten {
    pub(super) offset: usize,
    pub(super) size: usize,
    pub(super) reader: Trace,
}

/// More unwritten reads than this between two barriers are not looked at one by one.
const UNWRITTEN: usize = 4096;

#[derive(Debug)]
pub(super) struct ThreadgroupShadow {
    marks: Vec<Mark>,
    /// Sorted by start.
    places: Vec<Place>,
    clocks: Clocks,
    /// Marks older than this are of earlier threadgroups.
    start: u32,
    unwritten: Vec<Unwritten>,
}

impl Default for ThreadgroupShadow {
    fn default() -> Self {
        Self {
            marks: Vec::new(),
            places: Vec::new(),
            clocks: Clocks::new(),
            start: 1,
            unwritten: Vec::new(),
        }
    }
}

impl ThreadgroupShadow {
    /// Learns the layout of a launch.
    pub(super) fn begin_launch(
        &mut self,
        layout: &ThreadgroupLayout,
        variables: &[ThreadgroupVariable],
    ) {
        let variables = variables.iter().map(|variable| Place {
            piece: Piece::Variable(variable.id),
            start: layout.arena + variable.offset,
            length: variable.size,
        });
        let arguments = layout.pieces.iter().zip(0..).filter_map(|(piece, index)| {
            piece.map(|(start, length)| Place {
                piece: Piece::Argument(index),
                start,
                length,
            })
        });
        self.places = variables.chain(arguments).collect();
        self.places.sort_by_key(|place| place.start);
        if self.marks.len() < layout.total {
            self.marks.resize(layout.total, Mark::default());
        }
    }

    pub(super) fn begin_group(&mut self) {
        self.unwritten.clear();
        self.start = self.clocks.restart();
        if self.start > u32::MAX / 2 {
            self.marks.fill(Mark::default());
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

    /// The piece that an access at `offset` of the block belongs to, and whether it stays inside. The nearest one if it
    /// belongs to none; nothing if there is no threadgroup memory at all.
    pub(super) fn find(&self, offset: usize, size: usize) -> Option<(Place, bool)> {
        let after = self.places.partition_point(|place| place.start <= offset);
        let before = after.checked_sub(1).map(|index| self.places[index]);
        if let Some(place) = before
            && offset + size <= place.start + place.length
        {
            return Some((place, true));
        }
        // Overruns are more likely than underruns; still, an access just in front of a piece is meant for it.
        let next = self.places.get(after).copied();
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

    /// Where a piece lies.
    pub(super) fn place(&self, piece: Piece) -> Option<Place> {
        let places = self.places.iter();
        places.copied().find(|place| place.piece == piece)
    }

    /// Notes an access inside a piece. Says whether it conflicts with an earlier one.
    pub(super) fn touch(
        &mut self,
        offset: usize,
        size: usize,
        write: bool,
        trace: Trace,
    ) -> Option<Conflict> {
        let mut conflict = None;
        let mut unwritten = false;
        for mark in &mut self.marks[offset..offset + size] {
            let writer = mark.writer();
            unwritten |= !writer.is_some() || writer.time() < self.start;
            let found = if write {
                mark.write(trace, &self.clocks)
            } else {
                mark.read(trace, &self.clocks)
            };
            conflict = conflict.or(found);
        }
        // An atomic write may be a plain store, which is how atomics are initialised.
        if !write && unwritten && self.unwritten.len() < UNWRITTEN {
            self.unwritten.push(Unwritten {
                offset,
                size,
                reader: trace,
            });
        }
        conflict
    }

    /// The reads since the last barrier that really found nothing written, as opposed to racing with a writer.
    pub(super) fn take_unwritten(&mut self) -> Vec<Unwritten> {
        let marks = &self.marks;
        let start = self.start;
        let raced = |read: &Unwritten| {
            marks[read.offset..read.offset + read.size]
                .iter()
                .any(|mark| {
                    let writer = mark.writer();
                    let other = writer.is_some()
                        && writer.time() >= start
                        && writer.lane() != read.reader.lane();
                    let same_simd_group = writer.lane() / 32 == read.reader.lane() / 32;
                    other && !(same_simd_group && writer.time() > read.reader.time())
                })
        };
        let mut reads = std::mem::take(&mut self.unwritten);
        reads.retain(|read| !raced(read));
        reads
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shadow() -> ThreadgroupShadow {
        let mut shadow = ThreadgroupShadow::default();
        let mut pieces = [None; 31];
        pieces[2] = Some((512, 64));
        let layout = ThreadgroupLayout {
            arena: 128,
            pieces,
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

    fn trace(shadow: &ThreadgroupShadow, lane: u32) -> Trace {
        Trace::new(0, lane, 0, false, shadow.now(lane))
    }

    #[test]
    fn pieces_are_found_and_overruns_named_after_the_nearest() {
        let shadow = shadow();
        struct Case {
            offset: usize,
            piece: Piece,
            inside: bool,
        }
        let cases = [
            Case {
                offset: 128,
                piece: Piece::Variable(5),
                inside: true,
            },
            Case {
                offset: 224,
                piece: Piece::Variable(5),
                inside: true,
            },
            Case {
                offset: 225,
                piece: Piece::Variable(5),
                inside: false,
            },
            Case {
                offset: 124,
                piece: Piece::Variable(5),
                inside: false,
            },
            Case {
                offset: 512,
                piece: Piece::Argument(2),
                inside: true,
            },
            Case {
                offset: 576,
                piece: Piece::Argument(2),
                inside: false,
            },
            Case {
                offset: 508,
                piece: Piece::Argument(2),
                inside: false,
            },
        ];
        for case in cases {
            let (place, inside) = shadow.find(case.offset, 4).unwrap();
            assert_eq!(
                (place.piece, inside),
                (case.piece, case.inside),
                "{}",
                case.offset
            );
        }
    }

    #[test]
    fn unwritten_reads_are_kept_unless_another_thread_writes_in_the_same_interval() {
        let mut shadow = shadow();
        assert_eq!(shadow.touch(128, 4, false, trace(&shadow, 0)), None);
        assert_eq!(shadow.take_unwritten().len(), 1);
        assert_eq!(shadow.touch(132, 4, false, trace(&shadow, 0)), None);
        assert!(shadow.touch(132, 4, true, trace(&shadow, 1)).is_some());
        assert_eq!(shadow.take_unwritten().len(), 0);
        assert_eq!(shadow.touch(136, 4, true, trace(&shadow, 0)), None);
        assert_eq!(shadow.touch(136, 4, false, trace(&shadow, 0)), None);
        assert_eq!(shadow.take_unwritten().len(), 0);
        assert_eq!(shadow.touch(138, 4, false, trace(&shadow, 0)), None);
        assert_eq!(shadow.take_unwritten().len(), 1);
    }

    #[test]
    fn a_new_group_finds_nothing_written_and_nothing_to_race_with() {
        let mut shadow = shadow();
        shadow.touch(128, 4, true, trace(&shadow, 40));
        shadow.begin_group();
        assert_eq!(shadow.touch(128, 4, true, trace(&shadow, 0)), None);
        shadow.begin_group();
        assert_eq!(shadow.touch(128, 4, false, trace(&shadow, 1)), None);
        assert_eq!(shadow.take_unwritten().len(), 1);
    }
}
