//! Data races between the commands of a submission.
//!
//! The front inserts a barrier between two commands whose declared ranges of a buffer conflict, and kernels cannot
//! exceed their declarations. What remains is aliasing buffers: ranges that overlap in memory but not within one buffer.
//! Shadow memory for those bytes alone records which commands have accessed them since the last barrier.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::soft::runtime::image::Image;

/// Maximum number of shadowed bytes between two barriers; overlaps beyond that are not checked.
const MAX_SHADOWED_BYTES: usize = 1 << 24;
/// Maximum number of commands between two barriers; later ones are not checked.
const MAX_COMMANDS: usize = 1 << 11;

/// Bits of a location in a [`CommandAccess`].
const LOCATION_BITS: u32 = 20;
const ATOMIC_FLAG: u32 = 1 << LOCATION_BITS;
const COMMAND_SHIFT: u32 = LOCATION_BITS + 1;

/// A command that accesses memory.
#[derive(Debug)]
pub(crate) struct CheckedCommand<'a> {
    /// The kernel's name, or the kind of command.
    pub(crate) name: &'a str,
    /// The kernel.
    pub(crate) image: Option<&'a Image>,
    /// Address ranges it may access.
    pub(crate) ranges: Vec<AccessedRange>,
}

/// An address range that a command may access.
#[derive(Debug, Clone)]
pub(crate) struct AccessedRange {
    pub(crate) addresses: Range<usize>,
    /// Whether the command may write to it.
    pub(crate) writes: bool,
}

/// Shadow memory of the ranges that several commands between two barriers may access, at least one of them writing.
#[derive(Debug)]
pub(crate) struct OverlapShadow<'a> {
    commands: Vec<CheckedCommand<'a>>,
    ranges: Vec<(Range<usize>, Mutex<Vec<CommandCell>>)>,
}

/// The accesses to a byte: the last writer, and the first two commands that read it since.
#[derive(Debug, Clone, Copy, Default)]
struct CommandCell {
    writer: CommandAccess,
    readers: [CommandAccess; 2],
}

/// A command (from 1), whether its access was atomic, and the location in its kernel, packed; 0 if there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct CommandAccess(u32);

impl CommandAccess {
    fn command(self) -> u32 {
        self.0 >> COMMAND_SHIFT
    }

    fn conflicts(self, other: Self) -> bool {
        self.0 != 0 && self.command() != other.command() && self.0 & other.0 & ATOMIC_FLAG == 0
    }
}

/// An access of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CommandTouch {
    pub(crate) address: usize,
    pub(crate) size: usize,
    pub(crate) write: bool,
    pub(crate) atomic: bool,
    /// A canonical location of the kernel; 0 if there is none.
    pub(crate) location: u32,
}

impl<'a> OverlapShadow<'a> {
    /// Finds the memory that commands between two barriers share; `None` if none of it may be written.
    pub(crate) fn new(commands: Vec<CheckedCommand<'a>>) -> Option<Self> {
        let mut shared: Vec<Range<usize>> = Vec::new();
        for (index, command) in commands.iter().enumerate().take(MAX_COMMANDS) {
            for other in &commands[..index] {
                for a in &command.ranges {
                    for b in &other.ranges {
                        let start = a.addresses.start.max(b.addresses.start);
                        let common = start..a.addresses.end.min(b.addresses.end);
                        if (a.writes || b.writes) && !common.is_empty() {
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
        let mut remaining = MAX_SHADOWED_BYTES;
        merged.retain(|range| {
            let fits = range.len() <= remaining;
            remaining -= if fits { range.len() } else { 0 };
            fits
        });
        let cells = |range: Range<usize>| {
            let cells = vec![CommandCell::default(); range.len()];
            (range, Mutex::new(cells))
        };
        (!merged.is_empty()).then(|| Self {
            commands,
            ranges: merged.into_iter().map(cells).collect(),
        })
    }

    /// Records an access of the command with this index; describes the earlier access of another command that it
    /// conflicts with.
    pub(crate) fn touch(&self, command: usize, touch: CommandTouch) -> Option<String> {
        if command >= MAX_COMMANDS - 1 {
            return None;
        }
        let location = touch.location & (ATOMIC_FLAG - 1);
        let atomic = if touch.atomic { ATOMIC_FLAG } else { 0 };
        let access = CommandAccess((command as u32 + 1) << COMMAND_SHIFT | atomic | location);
        let mut found = None;
        for (range, cells) in &self.ranges {
            let start = touch.address.max(range.start);
            let end = (touch.address + touch.size).min(range.end);
            if start >= end {
                continue;
            }
            let mut cells = cells.lock().unwrap_or_else(PoisonError::into_inner);
            for cell in &mut cells[start - range.start..end - range.start] {
                found = found.or(cell.touch(access, touch.write));
            }
        }
        found.map(|(other, wrote)| self.describe(other, wrote))
    }

    fn describe(&self, access: CommandAccess, wrote: bool) -> String {
        let command = &self.commands[access.command() as usize - 1];
        let verb = if wrote { "write" } else { "read" };
        let line = command
            .image
            .and_then(|image| image.location(access.0 & (ATOMIC_FLAG - 1)))
            .map_or(String::new(), |location| {
                format!(" at line {}", location.line)
            });
        let subject = if command.image.is_some() {
            format!("kernel `{}`", command.name)
        } else {
            format!("the {}", command.name)
        };
        format!("the {verb} by {subject}{line}: no barrier orders the two commands")
    }
}

impl CommandCell {
    fn touch(&mut self, access: CommandAccess, write: bool) -> Option<(CommandAccess, bool)> {
        let mut found = self.writer.conflicts(access).then_some((self.writer, true));
        if write {
            let reader = self.readers.into_iter().find(|r| r.conflicts(access));
            found = found.or(reader.map(|reader| (reader, false)));
            *self = Self {
                writer: access,
                ..Self::default()
            };
        } else if let Some(free) = self
            .readers
            .iter_mut()
            .find(|reader| reader.0 == 0 || reader.command() == access.command())
        {
            *free = access;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command<'a>(name: &'a str, ranges: &[AccessedRange]) -> CheckedCommand<'a> {
        CheckedCommand {
            name,
            image: None,
            ranges: ranges.to_vec(),
        }
    }

    fn range(addresses: Range<usize>, writes: bool) -> AccessedRange {
        AccessedRange { addresses, writes }
    }

    fn touch(address: usize, size: usize, write: bool) -> CommandTouch {
        CommandTouch {
            address,
            size,
            write,
            atomic: false,
            location: 0,
        }
    }

    #[test]
    fn only_overlapping_memory_with_a_writer_is_shadowed() {
        let (low, high) = (0..64, 64..128);
        for (one, two, overlaps) in [
            (range(low.clone(), true), range(high.clone(), true), false),
            (range(low.clone(), false), range(low.clone(), false), false),
            (range(low.clone(), true), range(32..96, false), true),
        ] {
            let commands = vec![command("a", &[one]), command("b", &[two])];
            assert_eq!(OverlapShadow::new(commands).is_some(), overlaps);
        }
        let single = command("a", &[range(low.clone(), true), range(low, false)]);
        assert!(OverlapShadow::new(vec![single]).is_none(), "one command");
    }

    #[test]
    fn accesses_of_two_commands_to_a_byte_conflict_unless_both_read() {
        let ranges = [range(0..64, true)];
        let overlaps = OverlapShadow::new(vec![
            command("fill", &ranges),
            command("copy", &ranges),
            command("product", &ranges),
        ])
        .unwrap();
        assert_eq!(overlaps.touch(0, touch(0, 4, true)), None);
        assert_eq!(overlaps.touch(0, touch(2, 4, false)), None, "its own");
        assert_eq!(overlaps.touch(1, touch(6, 4, true)), None, "other bytes");
        assert_eq!(
            overlaps.touch(1, touch(3, 1, false)).as_deref(),
            Some("the write by the fill: no barrier orders the two commands")
        );
        for reader in 0..3 {
            assert_eq!(overlaps.touch(reader, touch(32, 4, false)), None);
        }
        let conflict = overlaps.touch(0, touch(35, 8, true)).unwrap();
        assert!(conflict.starts_with("the read by the copy"), "{conflict}");
        let atomic = |address| CommandTouch {
            atomic: true,
            ..touch(address, 4, true)
        };
        assert_eq!(overlaps.touch(0, atomic(48)), None);
        assert_eq!(overlaps.touch(1, atomic(48)), None);
        assert!(overlaps.touch(2, touch(48, 4, false)).is_some());
    }
}
