//! Shadow memory of device memory during one launch.
//!
//! Only memory that the launch may write is shadowed, in pages created on first access. A page has one cell per
//! granule of 1, 2, 4, 8 or 16 bytes: it starts with the largest that its first access allows, and is refined by
//! smaller or unaligned accesses.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::happens_before::{AccessRecord, Clocks, Conflict, ShadowCell};
use crate::soft::runtime::launch::{BindingAccess, BufferBinding};

const PAGE_SHIFT: usize = 12;
const PAGE_BYTES: usize = 1 << PAGE_SHIFT;
/// Pages per directory: two megabytes of memory.
const PAGES_PER_DIRECTORY: usize = 512;
/// Maximum size of the shadow cells of one launch in bytes. Memory accessed beyond that is not checked for races.
const SHADOW_BUDGET_BYTES: usize = 4 << 30;
/// log2 of the largest granule: 16 bytes, a `float4`.
const MAX_GRANULE_SHIFT: u32 = 4;

/// The shadow memory of one launch, shared by all its workers.
#[derive(Debug)]
pub(super) struct DeviceShadow {
    extents: Vec<Extent>,
    /// Bytes of shadow cells that pages may still allocate.
    budget: AtomicUsize,
}

/// A contiguous range that overlapping bindings cover.
#[derive(Debug)]
struct Extent {
    range: Range<usize>,
    writable: bool,
    directories: Box<[OnceLock<Box<PageDirectory>>]>,
}

type PageDirectory = [OnceLock<Box<Mutex<ShadowPage>>>; PAGES_PER_DIRECTORY];

#[derive(Debug)]
struct ShadowPage {
    /// log2 of the granule in bytes.
    shift: u32,
    cells: Vec<ShadowCell>,
}

/// An access to record.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceAccess {
    pub(super) address: usize,
    pub(super) size: usize,
    pub(super) write: bool,
    pub(super) record: AccessRecord,
}

impl DeviceShadow {
    pub(super) fn new(bindings: &[BufferBinding]) -> Self {
        let mut bound: Vec<_> = bindings
            .iter()
            .filter(|binding| binding.is_bound() && binding.length() > 0)
            .collect();
        bound.sort_by_key(|binding| binding.start());
        let mut extents: Vec<Extent> = Vec::new();
        for binding in bound {
            let writable = binding.access() == BindingAccess::Write;
            match extents.last_mut() {
                Some(last) if binding.start() < last.range.end => {
                    last.range.end = last.range.end.max(binding.end());
                    last.writable |= writable;
                }
                _ => extents.push(Extent {
                    range: binding.start()..binding.end(),
                    writable,
                    directories: Box::default(),
                }),
            }
        }
        for extent in extents.iter_mut().filter(|extent| extent.writable) {
            let first = extent.range.start / PAGE_BYTES / PAGES_PER_DIRECTORY;
            let last = (extent.range.end - 1) / PAGE_BYTES / PAGES_PER_DIRECTORY;
            extent.directories = (first..=last).map(|_| OnceLock::new()).collect();
        }
        Self {
            extents,
            budget: AtomicUsize::new(SHADOW_BUDGET_BYTES),
        }
    }

    /// Records an access inside a binding, and returns an earlier access that it conflicts with.
    pub(super) fn touch(&self, touch: DeviceAccess, clocks: &Clocks) -> Option<Conflict> {
        let extent = self
            .extents
            .iter()
            .find(|extent| extent.range.contains(&touch.address))?;
        if !extent.writable {
            return None;
        }
        let end = touch.address + touch.size;
        let mut address = touch.address;
        let mut conflict = None;
        while address < end {
            let stop = end.min((address | (PAGE_BYTES - 1)) + 1);
            let access = DeviceAccess {
                address,
                size: stop - address,
                ..touch
            };
            conflict = conflict.or(extent.touch_page(access, clocks, &self.budget));
            address = stop;
        }
        conflict
    }
}

impl Extent {
    fn touch_page(
        &self,
        touch: DeviceAccess,
        clocks: &Clocks,
        budget: &AtomicUsize,
    ) -> Option<Conflict> {
        let number = touch.address / PAGE_BYTES;
        let first = self.range.start / PAGE_BYTES / PAGES_PER_DIRECTORY;
        let directory = self
            .directories
            .get(number / PAGES_PER_DIRECTORY - first)?
            .get_or_init(|| Box::new([const { OnceLock::new() }; PAGES_PER_DIRECTORY]));
        let page = directory[number % PAGES_PER_DIRECTORY].get_or_init(|| {
            let shift = granularity(touch.address, touch.size);
            let mut page = ShadowPage {
                shift,
                cells: Vec::new(),
            };
            if reserve(budget, page.bytes(shift)) {
                page.cells
                    .resize(PAGE_BYTES >> shift, ShadowCell::default());
            }
            Box::new(Mutex::new(page))
        });
        let mut page = page.lock().unwrap_or_else(PoisonError::into_inner);
        page.touch(touch, clocks, budget)
    }
}

/// Returns log2 of the largest granule that an access covers completely.
fn granularity(address: usize, size: usize) -> u32 {
    (address | size).trailing_zeros().min(MAX_GRANULE_SHIFT)
}

/// Reserves bytes of the budget; false if they are not available.
fn reserve(budget: &AtomicUsize, bytes: usize) -> bool {
    budget
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(bytes)
        })
        .is_ok()
}

impl ShadowPage {
    /// Size of the cells at this granularity in bytes.
    fn bytes(&self, shift: u32) -> usize {
        (PAGE_BYTES >> shift) * size_of::<ShadowCell>()
    }

    fn touch(
        &mut self,
        touch: DeviceAccess,
        clocks: &Clocks,
        budget: &AtomicUsize,
    ) -> Option<Conflict> {
        if self.cells.is_empty() {
            return None;
        }
        let needed = granularity(touch.address, touch.size);
        if needed < self.shift {
            if !reserve(budget, self.bytes(needed) - self.bytes(self.shift)) {
                self.cells = Vec::new();
                return None;
            }
            self.refine(needed);
        }
        let offset = touch.address % PAGE_BYTES;
        let cells = &mut self.cells[offset >> self.shift..(offset + touch.size) >> self.shift];
        let mut conflict = None;
        for cell in cells {
            let found = if touch.write {
                cell.write(touch.record, clocks)
            } else {
                cell.read(touch.record, clocks)
            };
            conflict = conflict.or(found);
        }
        conflict
    }

    fn refine(&mut self, shift: u32) {
        let copies = 1 << (self.shift - shift);
        self.cells = self
            .cells
            .iter()
            .flat_map(|&cell| std::iter::repeat_n(cell, copies))
            .collect();
        self.shift = shift;
    }
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "creates bindings")]
    use super::*;

    fn shadow(ranges: &[(usize, usize, BindingAccess)]) -> DeviceShadow {
        let bindings: Vec<_> = ranges
            .iter()
            .map(|&(start, length, access)| {
                let pointer = std::ptr::without_provenance_mut(start);
                // SAFETY: never dereferenced.
                unsafe { BufferBinding::new(pointer, length, access) }
            })
            .collect();
        DeviceShadow::new(&bindings)
    }

    fn touch(address: usize, size: usize, write: bool, group: u32) -> DeviceAccess {
        DeviceAccess {
            address,
            size,
            write,
            record: AccessRecord::new(group, 0, 0, false, 1),
        }
    }

    #[test]
    fn accesses_to_neighbouring_bytes_do_not_race() {
        let shadow = shadow(&[(0x10000, 4096, BindingAccess::Write)]);
        let clocks = Clocks::new();
        assert_eq!(shadow.touch(touch(0x10000, 16, false, 0), &clocks), None);
        assert_eq!(shadow.touch(touch(0x10010, 2, true, 1), &clocks), None);
        assert_eq!(shadow.touch(touch(0x10012, 2, true, 2), &clocks), None);
        assert!(shadow.touch(touch(0x10010, 4, false, 1), &clocks).is_some());
        assert!(shadow.touch(touch(0x1000f, 1, true, 1), &clocks).is_some());
    }

    #[test]
    fn accesses_across_pages_are_recorded_in_both() {
        let shadow = shadow(&[(0x10800, 0x2000, BindingAccess::Write)]);
        let clocks = Clocks::new();
        assert_eq!(shadow.touch(touch(0x10ffe, 4, true, 0), &clocks), None);
        assert!(shadow.touch(touch(0x10ffe, 1, true, 1), &clocks).is_some());
        assert!(shadow.touch(touch(0x11001, 1, true, 1), &clocks).is_some());
        assert_eq!(shadow.touch(touch(0x11002, 1, true, 1), &clocks), None);
    }

    #[test]
    fn overlapping_bindings_share_shadow_memory() {
        let shadow = shadow(&[
            (0x10000, 0x100, BindingAccess::Read),
            (0x10080, 0x100, BindingAccess::Write),
            (0x20000, 0x100, BindingAccess::Read),
        ]);
        let clocks = Clocks::new();
        shadow.touch(touch(0x10000, 4, false, 0), &clocks);
        assert!(shadow.touch(touch(0x10000, 4, true, 1), &clocks).is_some());
        shadow.touch(touch(0x20000, 4, true, 0), &clocks);
        assert_eq!(shadow.touch(touch(0x20000, 4, false, 1), &clocks), None);
    }

    #[test]
    fn accesses_beyond_the_shadow_budget_are_not_recorded() {
        let shadow = shadow(&[(0x10000, 0x4000, BindingAccess::Write)]);
        let clocks = Clocks::new();
        let page = (PAGE_BYTES >> 2) * size_of::<ShadowCell>();
        shadow.budget.store(page, Ordering::Relaxed);
        for (address, races) in [(0x10000, true), (0x11000, false), (0x10004, true)] {
            shadow.touch(touch(address, 4, true, 0), &clocks);
            let conflict = shadow.touch(touch(address, 4, true, 1), &clocks);
            assert_eq!(conflict.is_some(), races, "{address:#x}");
        }
        assert_eq!(shadow.touch(touch(0x10001, 1, true, 2), &clocks), None);
        assert_eq!(shadow.touch(touch(0x10000, 4, true, 3), &clocks), None);
    }

    #[test]
    fn large_buffers_are_shadowed_sparsely() {
        let start = 0x7000_0000_0123;
        let shadow = shadow(&[(start, 1 << 36, BindingAccess::Write)]);
        let clocks = Clocks::new();
        for address in [start, start + (1 << 36) - 1] {
            assert_eq!(shadow.touch(touch(address, 1, true, 0), &clocks), None);
            assert!(shadow.touch(touch(address, 1, true, 1), &clocks).is_some());
        }
    }
}
