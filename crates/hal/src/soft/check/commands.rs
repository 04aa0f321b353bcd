//! Races between the commands of a submission.
//!
//! The front puts a barrier between two commands whose declared ranges of a buffer conflict, and kernels are held to what
//! is declared. What is left is memory that two buffers share: ranges that overlap in memory and not in a buffer. For
//! those bytes, and only for those, this remembers which command touched them since the last barrier.

use crate::soft::runtime::image::Image;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Bytes that are remembered between two barriers; what overlaps beyond that is not checked.
const MAX_BYTES: usize = 1 << 24;
/// Commands between two barriers; later ones are not checked.
const MAX_PARTIES: usize = 1 << 11;

const PLACE_BITS: u32 = 20;
const ATOMIC: u32 = 1 << PLACE_BITS;
const PARTY_SHIFT: u32 = PLACE_BITS + 1;

/// A command that touches memory.
#[derive(Debug)]
pub(crate) struct Party<'a> {
    /// The kernel's name, or what the command does.
    pub(crate) name: &'a str,
    /// The kernel.
    pub(crate) image: Option<&'a Image>,
    /// What it may touch, and whether it may write there.
    pub(crate) ranges: Vec<(Range<usize>, bool)>,
}

/// The memory that several commands between two barriers may touch although one of them writes.
#[derive(Debug)]
pub(crate) struct Contested<'a> {
    parties: Vec<Party<'a>>,
    ranges: Vec<(Range<usize>, Mutex<Vec<Mark>>)>,
}

/// Who touched a byte: the last writer, and the first two commands that read it since.
#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    writer: Who,
    readers: [Who; 2],
}

/// A command (from 1), whether its access was atomic, and the place in its kernel. 0 is nobody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Who(u32);

impl Who {
    fn party(self) -> u32 {
        self.0 >> PARTY_SHIFT
    }

    fn conflicts(self, other: Self) -> bool {
        self.0 != 0 && self.party() != other.party() && self.0 & other.0 & ATOMIC == 0
    }
}

/// An access of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Touch {
    pub(crate) address: usize,
    pub(crate) size: usize,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
    /// A canonical place of the kernel; 0 where there is none.
    pub(crate) place: u32,
}

impl<'a> Contested<'a> {
    /// What the commands between two barriers share; nothing if they share no memory that one of them may write.
    pub(crate) fn new(parties: Vec<Party<'a>>) -> Option<Self> {
        let mut shared: Vec<Range<usize>> = Vec::new();
        for (index, party) in parties.iter().enumerate().take(MAX_PARTIES) {
            for other in &parties[..index] {
                for (one, writes) in &party.ranges {
                    for (two, also) in &other.ranges {
                        let common = one.start.max(two.start)..one.end.min(two.end);
                        if (*writes || *also) && !common.is_empty() {
                            shared.push(common);
                        }
                    }
                }
            }
        }
        shared.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<usize>> = Vec::new();
        for range in shared {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        let mut left = MAX_BYTES;
        merged.retain(|range| {
            let fits = range.len() <= left;
            left -= if fits { range.len() } else { 0 };
            fits
        });
        let marks = |range: Range<usize>| {
            let marks = vec![Mark::default(); range.len()];
            (range, Mutex::new(marks))
        };
        (!merged.is_empty()).then(|| Self {
            parties,
            ranges: merged.into_iter().map(marks).collect(),
        })
    }

    /// Notes an access of the command with this index; says which earlier access of another it conflicts with.
    pub(crate) fn touch(&self, party: usize, touch: Touch) -> Option<String> {
        if party >= MAX_PARTIES - 1 {
            return None;
        }
        let place = touch.place & (ATOMIC - 1);
        let atomic = if touch.atomic { ATOMIC } else { 0 };
        let who = Who((party as u32 + 1) << PARTY_SHIFT | atomic | place);
        let mut found = None;
        for (range, marks) in &self.ranges {
            let start = touch.address.max(range.start);
            let end = (touch.address + touch.size).min(range.end);
            if start >= end {
                continue;
            }
            let mut marks = marks.lock().unwrap_or_else(PoisonError::into_inner);
            for mark in &mut marks[start - range.start..end - range.start] {
                found = found.or(mark.touch(who, touch.write));
            }
        }
        found.map(|(other, wrote)| self.describe(other, wrote))
    }

    fn describe(&self, who: Who, wrote: bool) -> String {
        let party = &self.parties[who.party() as usize - 1];
        let access = if wrote { "write" } else { "read" };
        let line = party
            .image
            .and_then(|image| image.location(who.0 & (ATOMIC - 1)))
            .map_or(String::new(), |location| {
                format!(" at line {}", location.line)
            });
        let what = if party.image.is_some() {
            format!("kernel `{}`", party.name)
        } else {
            format!("the {}", party.name)
        };
        format!("the {access} by {what}{line}: no barrier orders the two commands")
    }
}

impl Mark {
    fn touch(&mut self, who: Who, write: bool) -> Option<(Who, bool)> {
        let mut found = self.writer.conflicts(who).then_some((self.writer, true));
        if write {
            let reader = self.readers.into_iter().find(|r| r.conflicts(who));
            found = found.or(reader.map(|reader| (reader, false)));
            *self = Self {
                writer: who,
                ..Self::default()
            };
        } else if let Some(free) = self
            .readers
            .iter_mut()
            .find(|reader| reader.0 == 0 || reader.party() == who.party())
        {
            *free = who;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party<'a>(name: &'a str, ranges: &[(Range<usize>, bool)]) -> Party<'a> {
        Party {
            name,
            image: None,
            ranges: ranges.to_vec(),
        }
    }

    fn touch(address: usize, size: usize, write: bool) -> Touch {
        Touch {
            address,
            size,
            write,
            atomic: false,
            place: 0,
        }
    }

    #[test]
    fn only_overlapping_memory_that_one_may_write_is_contested() {
        let (low, high) = (0..64, 64..128);
        for (one, two, contested) in [
            ((low.clone(), true), (high.clone(), true), false),
            ((low.clone(), false), (low.clone(), false), false),
            ((low.clone(), true), (32..96, false), true),
        ] {
            let parties = vec![party("a", &[one]), party("b", &[two])];
            assert_eq!(Contested::new(parties).is_some(), contested);
        }
        let both = party("a", &[(low.clone(), true), (low, false)]);
        assert!(Contested::new(vec![both]).is_none(), "one command");
    }

    #[test]
    fn bytes_that_two_commands_touch_conflict_unless_both_read() {
        let ranges = [(0..64, true)];
        let contested = Contested::new(vec![
            party("fill", &ranges),
            party("copy", &ranges),
            party("product", &ranges),
        ])
        .unwrap();
        assert_eq!(contested.touch(0, touch(0, 4, true)), None);
        assert_eq!(contested.touch(0, touch(2, 4, false)), None, "its own");
        assert_eq!(contested.touch(1, touch(6, 4, true)), None, "other bytes");
        assert_eq!(
            contested.touch(1, touch(3, 1, false)).as_deref(),
            Some("the write by the fill: no barrier orders the two commands")
        );
        for reader in 0..3 {
            assert_eq!(contested.touch(reader, touch(32, 4, false)), None);
        }
        let conflict = contested.touch(0, touch(35, 8, true)).unwrap();
        assert!(conflict.starts_with("the read by the copy"), "{conflict}");
        let atomic = |address| Touch {
            atomic: true,
            ..touch(address, 4, true)
        };
        assert_eq!(contested.touch(0, atomic(48)), None);
        assert_eq!(contested.touch(1, atomic(48)), None);
        assert!(contested.touch(2, touch(48, 4, false)).is_some());
    }
}
