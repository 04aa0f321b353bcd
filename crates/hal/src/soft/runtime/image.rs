//! A loaded kernel.
#![expect(unsafe_code, reason = "function pointers from a loaded library")]

use std::any::Any;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::soft::group::{KernelCode, OpFn, RegionFn};
use crate::soft::plan::{KernelPlan, Location};

/// A kernel of a loaded library, specialized with its function constants.
pub struct Image {
    name: String,
    regions: Vec<RegionFn>,
    ops: Vec<OpFn>,
    plan: KernelPlan,
    buffers: Vec<(u32, String)>,
    threadgroup_arguments: Vec<(u32, String)>,
    variables: Vec<(u32, String)>,
    constants: Vec<String>,
    /// For each location, the first one that has the same position in the user's text.
    canonical: Vec<u32>,
    segments: Vec<Range<usize>>,
    /// Moving average of the nanoseconds per threadgroup; 0 while unknown.
    cost: AtomicU64,
    library: Option<Box<dyn Any + Send + Sync>>,
}

impl Image {
    /// Creates an image from the tables that the library exports.
    ///
    /// # Safety
    /// The functions must match `plan`, be initialised with all symbols bound, and stay loaded while the image
    /// exists (see [`Image::keeping`]).
    pub unsafe fn new(
        name: impl Into<String>,
        regions: Vec<RegionFn>,
        ops: Vec<OpFn>,
        plan: KernelPlan,
    ) -> Self {
        let segments = regions
            .first()
            .map(|&region| segments_around(region as usize))
            .unwrap_or_default();
        let mut image = Self {
            name: name.into(),
            regions,
            ops,
            plan,
            buffers: Vec::new(),
            threadgroup_arguments: Vec::new(),
            variables: Vec::new(),
            constants: Vec::new(),
            canonical: Vec::new(),
            segments,
            cost: AtomicU64::new(0),
            library: None,
        };
        image.canonical = image.canonical_in(|_| true);
        image
    }

    /// Keeps `library` alive as long as the image.
    #[must_use]
    pub fn keeping(mut self, library: impl Any + Send + Sync) -> Self {
        self.library = Some(Box::new(library));
        self
    }

    /// Sets the names of the kernel's buffer parameters by index, for messages.
    #[must_use]
    pub fn with_buffers(mut self, names: impl IntoIterator<Item = (u32, String)>) -> Self {
        self.buffers = names.into_iter().collect();
        self
    }

    /// Sets the names of the kernel's `[[threadgroup(i)]]` parameters by index, for messages.
    #[must_use]
    pub fn with_threadgroup_arguments(
        mut self,
        names: impl IntoIterator<Item = (u32, String)>,
    ) -> Self {
        self.threadgroup_arguments = names.into_iter().collect();
        self
    }

    /// Sets the names of the threadgroup variables by id, for messages.
    #[must_use]
    pub fn with_variables(mut self, names: impl IntoIterator<Item = (u32, String)>) -> Self {
        self.variables = names.into_iter().collect();
        self
    }

    /// Sets the names of the function constants that have a value; kernels can query them.
    #[must_use]
    pub fn with_constants(mut self, names: Vec<String>) -> Self {
        self.constants = names;
        self
    }

    /// Sets which files are the user's. Reports about code inlined from other files (the device's own headers) name
    /// the innermost location in the user's text instead.
    #[must_use]
    pub fn with_user_files(mut self, is_user: impl Fn(&str) -> bool) -> Self {
        self.canonical = self.canonical_in(is_user);
        self
    }

    /// The kernel's host name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The compiler's description of the kernel.
    pub fn plan(&self) -> &KernelPlan {
        &self.plan
    }

    /// The code for [`group::run`](crate::soft::group::run).
    pub fn kernel(&self) -> KernelCode<'_> {
        KernelCode {
            regions: &self.regions,
            ops: &self.ops,
            plan: &self.plan,
        }
    }

    pub(crate) fn buffer_name(&self, index: u32) -> Option<&str> {
        find(&self.buffers, index)
    }

    pub(crate) fn threadgroup_argument_name(&self, index: u32) -> Option<&str> {
        find(&self.threadgroup_arguments, index)
    }

    pub(crate) fn variable_name(&self, id: u32) -> Option<&str> {
        find(&self.variables, id)
    }

    pub(super) fn defines(&self, constant: &str) -> bool {
        self.constants.iter().any(|name| name == constant)
    }

    /// Returns the canonical index of a location: equal for all locations at the same position in the user's text.
    pub(crate) fn canonical_location(&self, location: u32) -> u32 {
        self.canonical.get(location as usize).copied().unwrap_or(0)
    }

    /// Returns the source location of a canonical index.
    pub(crate) fn location(&self, canonical_location: u32) -> Option<&Location> {
        self.plan
            .locations
            .get(canonical_location as usize)
            .filter(|location| location.line > 0)
    }

    /// Returns whether an address lies in the image's own code or constants.
    pub(crate) fn contains(&self, address: usize) -> bool {
        self.segments
            .iter()
            .any(|segment| segment.contains(&address))
    }

    pub(super) fn cost(&self) -> Option<u64> {
        Some(self.cost.load(Ordering::Relaxed)).filter(|&cost| cost > 0)
    }

    /// Updates the cost with a measurement, as an exponential moving average with weight 1/4.
    pub(super) fn learn_cost(&self, measured: u64) {
        let old = self.cost.load(Ordering::Relaxed);
        let new = if old == 0 {
            measured
        } else {
            old - old / 4 + measured / 4
        };
        self.cost.store(new.max(1), Ordering::Relaxed);
    }

    fn canonical_in(&self, is_user: impl Fn(&str) -> bool) -> Vec<u32> {
        let locations = &self.plan.locations;
        let mut first = HashMap::new();
        (0..locations.len())
            .map(|start| {
                let canonical_location = innermost(locations, start, &is_user);
                let location = &locations[canonical_location];
                *first
                    .entry((&location.file, location.line, location.column))
                    .or_insert(canonical_location as u32)
            })
            .collect()
    }
}

/// Follows the inlining chain outwards to the first location in the user's text.
fn innermost(locations: &[Location], start: usize, is_user: &impl Fn(&str) -> bool) -> usize {
    let mut index = start;
    // A chain longer than the table would be a cycle.
    for _ in 0..locations.len() {
        let location = &locations[index];
        if location.line > 0 && is_user(&location.file) {
            return index;
        }
        match location.inlined_at {
            Some(outer) if (outer as usize) < locations.len() => index = outer as usize,
            _ => break,
        }
    }
    start
}

fn find(names: &[(u32, String)], index: u32) -> Option<&str> {
    names
        .iter()
        .find(|(other, _)| *other == index)
        .map(|(_, name)| name.as_str())
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("name", &self.name)
            .field("regions", &self.regions.len())
            .finish_non_exhaustive()
    }
}

/// Returns the loaded segments of the library that contains `address`.
fn segments_around(address: usize) -> Vec<Range<usize>> {
    struct Search {
        address: usize,
        found: Vec<Range<usize>>,
    }
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: `data` is the search below, `info` the dynamic linker's argument with its program headers.
        let (search, base, headers) = unsafe {
            let info = &*info;
            let headers = if info.dlpi_phdr.is_null() {
                &[]
            } else {
                std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum))
            };
            (
                &mut *data.cast::<Search>(),
                info.dlpi_addr as usize,
                headers,
            )
        };
        let segments: Vec<_> = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
            .map(|header| {
                let start = base.wrapping_add(header.p_vaddr as usize);
                start..start.wrapping_add(header.p_memsz as usize)
            })
            .collect();
        if segments
            .iter()
            .any(|segment| segment.contains(&search.address))
        {
            search.found = segments;
            return 1;
        }
        0
    }
    let mut search = Search {
        address,
        found: Vec::new(),
    };
    // SAFETY: the callback matches and the search outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soft::group::SmGroup;

    unsafe extern "C" fn empty_region(
        _: *const SmGroup,
        _: *mut u8,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
        _: u32,
    ) {
    }

    fn location(file: &str, line: u32, inlined_at: Option<u32>) -> Location {
        Location {
            file: file.into(),
            line,
            column: 1,
            inlined_at,
        }
    }

    #[test]
    fn locations_resolve_to_the_innermost_user_text() {
        let plan = KernelPlan {
            locations: vec![
                Location::default(),
                location("user.metal", 7, None),
                location("shim.h", 90, Some(1)),
                location("shim.h", 3, Some(2)),
                location("user.metal", 4, Some(1)),
                location("shim.h", 5, Some(4)),
                location("user.metal", 7, None),
            ],
            ..KernelPlan::default()
        };
        // SAFETY: never run.
        let image = unsafe { Image::new("k", vec![empty_region], vec![], plan) }
            .with_user_files(|file| !file.starts_with("shim"));
        let canonical: Vec<u32> = (0..7)
            .map(|index| image.canonical_location(index))
            .collect();
        assert_eq!(canonical, [0, 1, 1, 1, 4, 4, 1]);
        assert_eq!(image.canonical_location(99), 0);
        assert!(image.location(0).is_none());
        assert_eq!(image.location(1).map(|l| l.line), Some(7));
    }

    #[test]
    fn segments_cover_code_and_constants_of_the_library() {
        static CONSTANT: u32 = 5;
        // SAFETY: never run.
        let image = unsafe { Image::new("k", vec![empty_region], vec![], KernelPlan::default()) };
        assert!(image.contains(empty_region as *const () as usize));
        assert!(image.contains(&raw const CONSTANT as usize));
        let local = 5;
        assert!(!image.contains(&raw const local as usize));
    }
}
