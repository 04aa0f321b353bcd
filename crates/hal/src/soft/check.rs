//! The checker of the software device.
#![expect(unsafe_code, reason = "shared with services through a raw pointer")]

use super::group::{Observer, SmGroup};
use super::runtime::ThreadgroupLayout;
use super::runtime::image::Image;
use super::runtime::launch::{Binding, Geometry};
use super::runtime::signal::Slot;
use crate::report::Report;

/// What is to happen after an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Go on.
    Go,
    /// The access would do harm: stop the threadgroup.
    Stop,
}

/// A launch under check.
#[derive(Debug)]
pub(crate) struct LaunchCheck<'a> {
    image: &'a Image,
}

impl<'a> LaunchCheck<'a> {
    pub(crate) fn new(image: &'a Image, _bindings: &'a [Binding; 31], _geometry: Geometry) -> Self {
        Self { image }
    }
    pub(crate) fn into_reports(self) -> Vec<Report> {
        let _ = self.image;
        Vec::new()
    }
}

/// A worker's view.
#[derive(Debug, Default)]
pub(crate) struct Checker {}

impl Checker {
    pub(crate) fn begin_launch(
        &mut self,
        _check: &LaunchCheck<'_>,
        _memory: usize,
        _layout: &ThreadgroupLayout,
        _context: usize,
    ) {
    }
    pub(crate) fn end_launch(&mut self) {}
    pub(crate) fn access(
        &mut self,
        _address: usize,
        _size: usize,
        _write: bool,
        _atomic: bool,
        _location: u32,
    ) -> Verdict {
        Verdict::Go
    }
}

/// Observes.
#[derive(Debug)]
pub(crate) struct Watch {
    _slot: &'static Slot,
    _checker: *mut Checker,
}

impl Watch {
    pub(crate) fn new(slot: &'static Slot, checker: *mut Checker) -> Self {
        Self {
            _slot: slot,
            _checker: checker,
        }
    }
    pub(crate) fn begin_group(&mut self, _number: u64, _group: &SmGroup) {}
    pub(crate) fn end_group(&mut self) {}
}

impl Observer for Watch {
    fn lane(&mut self, _: u32) {}
    fn collective(&mut self, _: u32, _: u32, _: u32) {}
    fn barrier(&mut self, _: u32) {}
    fn diverged(&mut self, _: u32, _: u32, _: u32) {}
    fn early_return(&mut self, _: u32, _: u32) {}
}
