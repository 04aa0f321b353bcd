//! The commands between two barriers, which may run at the same time.

use super::{address, regions};
use crate::driver::{self, Command, Region, own};
use crate::report::{Report, ReportKind};
use crate::soft::check::commands::{Contested, Party, Touch};
use crate::soft::pipeline::{Code, Pipeline};
use std::ops::Range;

/// The commands between two barriers, in check mode.
#[derive(Default)]
pub(super) struct Segment<'a> {
    /// What they share, if anything.
    shared: Option<Contested<'a>>,
    /// The first command behind the segment.
    end: usize,
    /// The number of the next command among those that touch memory.
    next: usize,
}

impl<'a> Segment<'a> {
    /// Comes to a command; the first of a segment shows what all of it share.
    pub(super) fn advance(&mut self, commands: &'a [Command], index: usize) {
        if index < self.end {
            self.next += 1;
            return;
        }
        let rest = commands[index..].iter();
        let segment = rest.take_while(|command| !matches!(command, Command::Barrier));
        let parties: Vec<_> = segment.map(party).collect();
        *self = Self {
            end: index + parties.len().max(1),
            shared: Contested::new(parties),
            next: 0,
        };
    }

    /// The memory that the present command may touch together with others, and its number among them.
    pub(super) fn contested(&self) -> Option<(&Contested<'a>, usize)> {
        Some((self.shared.as_ref()?, self.next))
    }

    /// Notes what a command that is no kernel touches, and reports what it conflicts with.
    pub(super) fn check_command(&self, command: &Command) -> Vec<Report> {
        let Some((contested, number)) = self.contested() else {
            return Vec::new();
        };
        if matches!(command, Command::Dispatch(_)) {
            return Vec::new();
        }
        let party = party(command);
        let report = |(range, write): &(Range<usize>, bool)| {
            let touch = Touch {
                address: range.start,
                size: range.len(),
                write: *write,
                atomic: false,
                place: 0,
            };
            let conflict = contested.touch(number, touch)?;
            let verb = if *write { "write" } else { "read" };
            Some(Report {
                kind: ReportKind::Race,
                message: format!("the {verb} of a {} conflicts with {conflict}", party.name),
                kernel: party.name.to_owned(),
                file: String::new(),
                line: 0,
                column: 0,
                buffer: None,
                thread: None,
                threadgroup: None,
                count: 1,
            })
        };
        party.ranges.iter().filter_map(report).collect()
    }
}

/// A command as the checker sees it.
fn party(command: &Command) -> Party<'_> {
    let (name, image) = match command {
        Command::Dispatch(dispatch) => {
            let pipeline = own::<Pipeline>(&*dispatch.pipeline);
            let image = match pipeline.code() {
                Code::Here(image) => Some(&**image),
                Code::Apart(_) => None,
            };
            (driver::Pipeline::info(pipeline).name.as_str(), image)
        }
        Command::Product(_) => ("matrix product", None),
        Command::Copy { .. } => ("copy", None),
        Command::Fill { .. } => ("fill", None),
        _ => ("", None),
    };
    let range = |(region, writes): (&Region, bool)| {
        let start = address(region).addr();
        (start..start + region.length, writes)
    };
    Party {
        name,
        image,
        ranges: regions(command).into_iter().map(range).collect(),
    }
}
