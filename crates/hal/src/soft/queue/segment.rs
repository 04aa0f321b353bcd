//! Segments: the commands between two barriers, which may run concurrently.

use super::{AccessedRegion, accessed_regions, address};
use crate::driver::{self, Command, own};
use crate::report::{Report, ReportKind};
use crate::soft::check::commands::{AccessedRange, CheckedCommand, CommandTouch, OverlapShadow};
use crate::soft::pipeline::{Code, Pipeline};

/// The commands between two barriers, in check mode.
#[derive(Default)]
pub(super) struct Segment<'a> {
    /// Shadow memory of the bytes they share, if any.
    shared: Option<OverlapShadow<'a>>,
    /// Index of the first command after the segment.
    end: usize,
    /// Number of the next command in the segment.
    next: usize,
}

impl<'a> Segment<'a> {
    /// Advances to a command; at the first one of a segment, collects the memory that its commands share.
    pub(super) fn advance(&mut self, commands: &'a [Command], index: usize) {
        if index < self.end {
            self.next += 1;
            return;
        }
        let rest = commands[index..].iter();
        let segment = rest.take_while(|command| !matches!(command, Command::Barrier));
        let commands: Vec<_> = segment.map(checked_command).collect();
        *self = Self {
            end: index + commands.len().max(1),
            shared: OverlapShadow::new(commands),
            next: 0,
        };
    }

    /// Shadow memory that the current command may share with others, and the command's number.
    pub(super) fn overlaps(&self) -> Option<(&OverlapShadow<'a>, usize)> {
        Some((self.shared.as_ref()?, self.next))
    }

    /// Records the accesses of a command that is not a kernel, and reports its conflicts.
    pub(super) fn check_command(&self, command: &Command) -> Vec<Report> {
        let Some((overlaps, number)) = self.overlaps() else {
            return Vec::new();
        };
        if matches!(command, Command::Dispatch(_)) {
            return Vec::new();
        }
        let checked_command = checked_command(command);
        let report = |range: &AccessedRange| {
            let touch = CommandTouch {
                address: range.addresses.start,
                size: range.addresses.len(),
                write: range.writes,
                atomic: false,
                location: 0,
            };
            let conflict = overlaps.touch(number, touch)?;
            let verb = if range.writes { "write" } else { "read" };
            Some(Report {
                kind: ReportKind::Race,
                message: format!(
                    "the {verb} of a {} conflicts with {conflict}",
                    checked_command.name
                ),
                kernel: checked_command.name.to_owned(),
                file: String::new(),
                line: 0,
                column: 0,
                buffer: None,
                thread: None,
                threadgroup: None,
                count: 1,
            })
        };
        checked_command.ranges.iter().filter_map(report).collect()
    }
}

/// Describes a command to the checker.
fn checked_command(command: &Command) -> CheckedCommand<'_> {
    let (name, image) = match command {
        Command::Dispatch(dispatch) => {
            let pipeline = own::<Pipeline>(&*dispatch.pipeline);
            let image = match pipeline.code() {
                Code::InProcess(image) => Some(&**image),
                Code::PerProcess(_) => None,
            };
            (driver::Pipeline::info(pipeline).name.as_str(), image)
        }
        Command::Product(_) => ("matrix product", None),
        Command::Copy { .. } => ("copy", None),
        Command::Fill { .. } => ("fill", None),
        _ => ("", None),
    };
    let range = |accessed: AccessedRegion<'_>| {
        let start = address(accessed.region).addr();
        AccessedRange {
            addresses: start..start + accessed.region.length,
            writes: accessed.writes,
        }
    };
    CheckedCommand {
        name,
        image,
        ranges: accessed_regions(command).into_iter().map(range).collect(),
    }
}
