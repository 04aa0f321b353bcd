//! Accesses whose pointer is known to be made from one buffer or threadgroup variable.

use super::threadgroup::{Piece, Place};
use super::{Announced, Checker, Verdict, bytes, piece_name};
use crate::report::ReportKind;
use crate::soft::plan::Origin;
use crate::soft::runtime::launch::{Access, Binding};

impl Checker {
    /// What the accesses at a location are made to, if the compiler knows.
    pub(super) fn origin(&self, location: u32) -> Option<Origin> {
        let origins = &self.launch().image.plan().origins;
        origins.get(location as usize).copied().flatten()
    }

    /// Checks an access against the memory that it is made to; nothing if there is none of it.
    pub(super) fn access_of(
        &mut self,
        access: &Announced,
        end: usize,
        origin: Origin,
    ) -> Option<Verdict> {
        let piece = match origin {
            Origin::Buffer(index) => {
                let index = index as usize;
                let binding = self.launch().bindings.get(index)?;
                if !binding.is_bound() {
                    return None;
                }
                if access.address >= binding.start() && end <= binding.end() {
                    self.device_access(access, index);
                    return Some(Verdict::Go);
                }
                self.outside_buffer(access, index);
                return Some(self.unless_harmless(access, end));
            }
            Origin::Argument(index) => Piece::Argument(index),
            Origin::Variable(id) => Piece::Variable(id),
        };
        let place = self.threadgroup.place(piece)?;
        let start = self.memory.0 + place.start;
        if access.address >= start && end <= start + place.length {
            return Some(self.threadgroup_access(access));
        }
        self.outside_piece(access, place);
        Some(self.unless_harmless(access, end))
    }

    /// Goes on if an access that is wrong does no harm: it lands in memory of the launch.
    fn unless_harmless(&mut self, access: &Announced, end: usize) -> Verdict {
        let inside = |start: usize, stop: usize| access.address >= start && end <= stop;
        let (start, length) = self.memory;
        let allows = |binding: &Binding| !access.write || binding.access() == Access::Write;
        let bindings = self.launch().bindings;
        if inside(start, start + length)
            || bindings.iter().any(|binding| {
                binding.is_bound() && allows(binding) && inside(binding.start(), binding.end())
            })
        {
            return Verdict::Go;
        }
        self.stop()
    }

    /// Reports an access outside of the threadgroup variable or argument that it is made to.
    pub(super) fn outside_piece(&self, access: &Announced, place: Place) {
        let image = self.launch().image;
        let start = self.memory.0 + place.start;
        self.report(ReportKind::Bounds, access.location, None, || {
            format!(
                "{} at offset {} of {}, which has {}",
                access.describe(),
                access.address.wrapping_sub(start) as isize,
                piece_name(image, place.piece),
                bytes(place.length)
            )
        });
    }
}
