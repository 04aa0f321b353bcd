//! Checks of accesses whose pointer provenance is known.

use super::threadgroup::{Allocation, AllocationRange};
use super::{AccessEvent, Checker, Verdict, allocation_name, bytes};
use crate::report::ReportKind;
use crate::soft::plan::Origin;
use crate::soft::runtime::launch::{BindingAccess, BufferBinding};

impl Checker {
    /// Returns the memory that accesses at a location refer to, if the compiler knows it.
    pub(super) fn origin(&self, location: u32) -> Option<Origin> {
        let origins = &self.launch().image.plan().origins;
        origins.get(location as usize).copied().flatten()
    }

    /// Checks an access against the memory its pointer is derived from; `None` if that is not bound.
    pub(super) fn check_origin(
        &mut self,
        access: &AccessEvent,
        end: usize,
        origin: Origin,
    ) -> Option<Verdict> {
        let allocation = match origin {
            Origin::Buffer(index) => {
                let index = index as usize;
                let binding = self.launch().bindings.get(index)?;
                if !binding.is_bound() {
                    return None;
                }
                if access.address >= binding.start() && end <= binding.end() {
                    self.device_access(access, index);
                    return Some(Verdict::Proceed);
                }
                self.outside_buffer(access, index);
                return Some(self.abandon_if_unmapped(access, end));
            }
            Origin::Argument(index) => Allocation::Argument(index),
            Origin::Variable(id) => Allocation::Variable(id),
        };
        let range = self.threadgroup.range_of(allocation)?;
        let start = self.memory.start + range.start;
        if access.address >= start && end <= start + range.length {
            return Some(self.threadgroup_access(access));
        }
        self.outside_allocation(access, range);
        Some(self.abandon_if_unmapped(access, end))
    }

    /// Continues after an out-of-bounds access that hits memory of the launch; otherwise abandons the threadgroup.
    fn abandon_if_unmapped(&mut self, access: &AccessEvent, end: usize) -> Verdict {
        let is_inside = |start: usize, stop: usize| access.address >= start && end <= stop;
        let allows =
            |binding: &BufferBinding| !access.write || binding.access() == BindingAccess::Write;
        let bindings = self.launch().bindings;
        if is_inside(self.memory.start, self.memory.end)
            || bindings.iter().any(|binding| {
                binding.is_bound() && allows(binding) && is_inside(binding.start(), binding.end())
            })
        {
            return Verdict::Proceed;
        }
        self.abandon()
    }

    /// Reports an access outside the threadgroup variable or argument that its pointer is derived from.
    pub(super) fn outside_allocation(&self, access: &AccessEvent, range: AllocationRange) {
        let image = self.launch().image;
        let start = self.memory.start + range.start;
        self.report(ReportKind::Bounds, access.location, None, || {
            format!(
                "{} at offset {} of {}, which has {}",
                access.describe(),
                access.address.wrapping_sub(start) as isize,
                allocation_name(image, range.allocation),
                bytes(range.length)
            )
        });
    }
}
