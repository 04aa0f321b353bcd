//! What the checker remembers of device memory during one launch.
//!
//! Only memory that the launch may write is remembered, in pages made when they are first touched. A page has a mark for
//! every 1, 2, 4, 8 or 16 bytes: it starts with what its first access allows and is refined when a smaller or
//! unaligned access comes.

use super::order::{Clocks, Conflict, Mark, Trace};
use crate::soft::runtime::launch::{Access, Binding};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

const PAGE_SHIFT: usize = 12;
const PAGE: usize = 1 << PAGE_SHIFT;
/// Pages in a directory: two megabytes of memory.
const DIRECTORY: usize = 512;
/// Bytes of marks that one launch may have. Memory touched after that is not checked for races any more.
const BUDGET: usize = 4 << 30;
/// The coarsest granule is 16 bytes, a `float4`.
const COARSEST: u32 = 4;

/// The memory of one launch, shared by all its workers.
#[derive(Debug)]
pub(super) struct DeviceShadow {
    extents: Vec<Extent>,
    /// Bytes of marks that pages may still take.
    budget: AtomicUsize,
}

/// A stretch of memory that overlapping bindings cover.
#[derive(Debug)]
struct Extent {
    range: Range<usize>,
    writable: bool,
    directories: Box<[OnceLock<Box<Directory>>]>,
}

type Directory = [OnceLock<Box<Mutex<Page>>>; DIRECTORY];

#[derive(Debug)]
struct Page {
    /// log2 of the bytes that a mark stands for.
    shift: u32,
    marks: Vec<Mark>,
}

/// An access to check.
#[derive(Debug, Clone, Copy)]
pub(super) struct Touch {
    pub(super) address: usize,
    pub(super) size: usize,
    pub(super) write: bool,
    pub(super) trace: Trace,
}

impl DeviceShadow {
    pub(super) fn new(bindings: &[Binding]) -> Self {
        let mut bound: Vec<_> = bindings
            .iter()
            .filter(|binding| binding.is_bound() && binding.length() > 0)
            .collect();
        bound.sort_by_key(|binding| binding.start());
        let mut extents: Vec<Extent> = Vec::new();
        for binding in bound {
            let writable = binding.access() == Access::Write;
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
            let first = extent.range.start / PAGE / DIRECTORY;
            let last = (extent.range.end - 1) / PAGE / DIRECTORY;
            extent.directories = (first..=last).map(|_| OnceLock::new()).collect();
        }
        Self {
            extents,
            budget: AtomicUsize::new(BUDGET),
        }
    }

    /// Notes an access inside a binding, and says whether it conflicts with an earlier one.
    pub(super) fn touch(&self, touch: Touch, clocks: &Clocks) -> Option<Conflict> {
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
            let stop = end.min((address | (PAGE - 1)) + 1);
            let part = Touch {
                address,
                size: stop - address,
                ..touch
            };
            conflict = conflict.or(extent.touch_page(part, clocks, &self.budget));
            address = stop;
        }
        conflict
    }
}

impl Extent {
    fn touch_page(&self, touch: Touch, clocks: &Clocks, budget: &AtomicUsize) -> Option<Conflict> {
        let number = touch.address / PAGE;
        let first = self.range.start / PAGE / DIRECTORY;
        let directory = self
            .directories
            .get(number / DIRECTORY - first)?
            .get_or_init(|| Box::new([const { OnceLock::new() }; DIRECTORY]));
        let page = directory[number % DIRECTORY].get_or_init(|| {
            let shift = granularity(touch.address, touch.size);
            let mut page = Page {
                shift,
                marks: Vec::new(),
            };
            if take(budget, page.bytes(shift)) {
                page.marks.resize(PAGE >> shift, Mark::default());
            }
            Box::new(Mutex::new(page))
        });
        let mut page = page.lock().unwrap_or_else(PoisonError::into_inner);
        page.touch(touch, clocks, budget)
    }
}

/// The coarsest granule that an access covers wholly.
fn granularity(address: usize, size: usize) -> u32 {
    (address | size).trailing_zeros().min(COARSEST)
}

/// Takes bytes from the budget, if it has them.
fn take(budget: &AtomicUsize, bytes: usize) -> bool {
    budget
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(bytes)
        })
        .is_ok()
}

impl Page {
    /// Bytes that marks of this granularity take.
    fn bytes(&self, shift: u32) -> usize {
        (PAGE >> shift) * size_of::<Mark>()
    }

    fn touch(&mut self, touch: Touch, clocks: &Clocks, budget: &AtomicUsize) -> Option<Conflict> {
        if self.marks.is_empty() {
            return None;
        }
        let needed = granularity(touch.address, touch.size);
        if needed < self.shift {
            if !take(budget, self.bytes(needed) - self.bytes(self.shift)) {
                self.marks = Vec::new();
                return None;
            }
            self.refine(needed);
        }
        let offset = touch.address % PAGE;
        let marks = &mut self.marks[offset >> self.shift..(offset + touch.size) >> self.shift];
        let mut conflict = None;
        for mark in marks {
            let found = if touch.write {
                mark.write(touch.trace, clocks)
            } else {
                mark.read(touch.trace, clocks)
            };
            conflict = conflict.or(found);
        }
        conflict
    }

    fn refine(&mut self, shift: u32) {
        let copies = 1 << (self.shift - shift);
        self.marks = self
            .marks
            .iter()
            .flat_map(|&mark| std::iter::repeat_n(mark, copies))
            .collect();
        self.shift = shift;
    }
}

#[cfg(test)]
mod tests {
    #![expect(unsafe_code, reason = "bindings are unsafe to make")]
    use super::*;

    fn shadow(ranges: &[(usize, usize, Access)]) -> DeviceShadow {
        let bindings: Vec<_> = ranges
            .iter()
            .map(|&(start, length, access)| {
                let pointer = std::ptr::without_provenance_mut(start);
                // SAFETY: never dereferenced.
                unsafe { Binding::new(pointer, length, access) }
            })
            .collect();
        DeviceShadow::new(&bindings)
    }

    fn touch(address: usize, size: usize, write: bool, group: u32) -> Touch {
        Touch {
            address,
            size,
            write,
            trace: Trace::new(group, 0, 0, false, 1),
        }
    }

    #[test]
    fn neighbouring_halves_do_not_race() {
        let shadow = shadow(&[(0x10000, 4096, Access::Write)]);
        let clocks = Clocks::new();
        assert_eq!(shadow.touch(touch(0x10000, 16, false, 0), &clocks), None);
        assert_eq!(shadow.touch(touch(0x10010, 2, true, 1), &clocks), None);
        assert_eq!(shadow.touch(touch(0x10012, 2, true, 2), &clocks), None);
        assert!(shadow.touch(touch(0x10010, 4, false, 1), &clocks).is_some());
        assert!(shadow.touch(touch(0x1000f, 1, true, 1), &clocks).is_some());
    }

    #[test]
    fn accesses_across_pages_touch_both() {
        let shadow = shadow(&[(0x10800, 0x2000, Access::Write)]);
        let clocks = Clocks::new();
        assert_eq!(shadow.touch(touch(0x10ffe, 4, true, 0), &clocks), None);
        assert!(shadow.touch(touch(0x10ffe, 1, true, 1), &clocks).is_some());
        assert!(shadow.touch(touch(0x11001, 1, true, 1), &clocks).is_some());
        assert_eq!(shadow.touch(touch(0x11002, 1, true, 1), &clocks), None);
    }

    #[test]
    fn overlapping_bindings_share_their_marks() {
        let shadow = shadow(&[
            (0x10000, 0x100, Access::Read),
            (0x10080, 0x100, Access::Write),
            (0x20000, 0x100, Access::Read),
        ]);
        let clocks = Clocks::new();
        shadow.touch(touch(0x10000, 4, false, 0), &clocks);
        assert!(shadow.touch(touch(0x10000, 4, true, 1), &clocks).is_some());
        shadow.touch(touch(0x20000, 4, true, 0), &clocks);
        assert_eq!(shadow.touch(touch(0x20000, 4, false, 1), &clocks), None);
    }

    #[test]
    fn memory_beyond_the_budget_is_not_remembered() {
        let shadow = shadow(&[(0x10000, 0x4000, Access::Write)]);
        let clocks = Clocks::new();
        let page = (PAGE >> 2) * size_of::<Mark>();
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
    fn ends_of_large_buffers_are_remembered_without_their_middle() {
        let start = 0x7000_0000_0123;
        let shadow = shadow(&[(start, 1 << 36, Access::Write)]);
        let clocks = Clocks::new();
        for address in [start, start + (1 << 36) - 1] {
            assert_eq!(shadow.touch(touch(address, 1, true, 0), &clocks), None);
            assert!(shadow.touch(touch(address, 1, true, 1), &clocks).is_some());
        }
    }
}
