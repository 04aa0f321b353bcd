//! Description of one dispatch for the runtime.
#![expect(
    unsafe_code,
    reason = "bindings are raw memory that the caller vouches for"
)]

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::fault::{FaultKind, LaunchFault};
use super::image::Image;
use super::memory::BUFFER_INDICES;
use crate::report::Report;
use crate::soft::check::commands::OverlapShadow;
use crate::soft::plan::MAX_LANES;

/// How a kernel may access a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BindingAccess {
    /// Reads only.
    #[default]
    Read,
    /// Writes, and may read.
    Write,
}

/// A buffer binding: the memory from the bound offset to the end of the accessible range.
#[derive(Debug, Clone, Copy)]
pub struct BufferBinding {
    pointer: *mut u8,
    length: usize,
    access: BindingAccess,
    bound: bool,
}

impl BufferBinding {
    /// No binding.
    pub const NONE: Self = Self {
        pointer: std::ptr::null_mut(),
        length: 0,
        access: BindingAccess::Read,
        bound: false,
    };

    /// Binds `length` bytes at `pointer`.
    ///
    /// # Safety
    /// The memory must be mapped, and writable if `access` allows writes, until the launch is over; nothing else may
    /// access it in a conflicting way meanwhile.
    pub unsafe fn new(pointer: *mut u8, length: usize, access: BindingAccess) -> Self {
        Self {
            pointer,
            length,
            access,
            bound: true,
        }
    }

    /// Address of the first byte.
    pub fn pointer(&self) -> *mut u8 {
        self.pointer
    }

    /// Length in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The permitted access.
    pub fn access(&self) -> BindingAccess {
        self.access
    }

    /// Returns whether anything is bound.
    pub fn is_bound(&self) -> bool {
        self.bound
    }

    pub(crate) fn start(&self) -> usize {
        self.pointer as usize
    }

    pub(crate) fn end(&self) -> usize {
        self.start().saturating_add(self.length)
    }
}

/// A copy of the bytes that `set_bytes` binds, aligned for any MSL type.
#[derive(Debug, Clone)]
pub struct InlineBytes {
    chunks: Box<[Chunk]>,
    length: usize,
}

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Chunk([u8; 64]);

impl InlineBytes {
    /// Copies `bytes`.
    pub fn new(bytes: &[u8]) -> Self {
        let chunks = bytes
            .chunks(size_of::<Chunk>())
            .map(|source| {
                let mut chunk = Chunk([0; 64]);
                chunk.0[..source.len()].copy_from_slice(source);
                chunk
            })
            .collect();
        Self {
            chunks,
            length: bytes.len(),
        }
    }

    /// A read-only binding of the copy, which must live until the launch is over.
    pub fn binding(&self) -> BufferBinding {
        // SAFETY: the memory is ours and bound for reading only.
        unsafe {
            BufferBinding::new(
                self.chunks.as_ptr().cast_mut().cast(),
                self.length,
                BindingAccess::Read,
            )
        }
    }
}

/// Execution mode of threadgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LaunchMode {
    /// As fast as possible.
    #[default]
    Fast,
    /// Lane by lane under the checker; needs an image compiled for it.
    Check,
    /// In an order determined by `seed`, one threadgroup at a time.
    Fuzz {
        /// Equal seeds give equal runs.
        seed: u64,
    },
}

/// One dispatch.
#[derive(Debug, Clone)]
pub struct KernelLaunch<'a> {
    /// The kernel.
    pub image: &'a Image,
    /// Buffers by index.
    pub buffers: [BufferBinding; BUFFER_INDICES],
    /// Bytes of threadgroup memory for each `[[threadgroup(i)]]` parameter.
    pub threadgroup_memory: [usize; BUFFER_INDICES],
    /// Threads in the grid; threadgroups at its edges are smaller if the size does not divide it.
    pub grid: [u32; 3],
    /// Threads per threadgroup.
    pub threadgroup: [u32; 3],
    /// Execution mode.
    pub mode: LaunchMode,
    /// Time limit.
    pub limit: Duration,
    /// Loop iterations allowed per thread between two synchronisations, in check mode.
    pub step_limit: u64,
    /// Memory that other commands of the segment may access too, and the number of this command, in check mode.
    pub(crate) overlaps: Option<(&'a OverlapShadow<'a>, usize)>,
    /// The launch's number in its submission, which is mixed into the seed in fuzz mode.
    pub sequence: u64,
}

// SAFETY: the creators of the bindings guarantee their memory, for any thread.
unsafe impl Send for KernelLaunch<'_> {}
// SAFETY: as above; a launch is only read.
unsafe impl Sync for KernelLaunch<'_> {}

impl<'a> KernelLaunch<'a> {
    /// Default time limit.
    pub const DEFAULT_LIMIT: Duration = Duration::from_secs(60);

    /// Creates a launch of `grid` threads without bindings.
    pub fn new(image: &'a Image, grid: [u32; 3], threadgroup: [u32; 3]) -> Self {
        Self {
            image,
            buffers: [BufferBinding::NONE; BUFFER_INDICES],
            threadgroup_memory: [0; BUFFER_INDICES],
            grid,
            threadgroup,
            mode: LaunchMode::Fast,
            limit: Self::DEFAULT_LIMIT,
            step_limit: u64::MAX,
            overlaps: None,
            sequence: 0,
        }
    }

    pub(super) fn invalid(&self, detail: String) -> LaunchFault {
        LaunchFault {
            detail,
            ..LaunchFault::new(FaultKind::Invalid, self.image.name())
        }
    }

    /// Returns the division of the grid into threadgroups.
    pub(super) fn geometry(&self) -> Result<Geometry, LaunchFault> {
        let lanes = self
            .threadgroup
            .iter()
            .try_fold(1_u32, |product, &size| product.checked_mul(size));
        match lanes {
            Some(lanes) if lanes > 0 && lanes as usize <= MAX_LANES => {}
            _ => {
                return Err(self.invalid(format!(
                    "a threadgroup of {:?} threads does not have between 1 and {MAX_LANES} threads",
                    self.threadgroup
                )));
            }
        }
        if self.image.plan().regions == 0 {
            return Err(self.invalid("the image has no code".into()));
        }
        let groups: [u32; 3] =
            std::array::from_fn(|axis| self.grid[axis].div_ceil(self.threadgroup[axis]));
        let total = groups
            .iter()
            .try_fold(1_u64, |product, &count| {
                product.checked_mul(u64::from(count))
            })
            .ok_or_else(|| self.invalid(format!("{groups:?} threadgroups are too many")))?;
        Ok(Geometry {
            grid: self.grid,
            threadgroup: self.threadgroup,
            groups,
            total,
        })
    }

    /// Describes an address relative to the nearest buffer; empty if none is near.
    pub(super) fn nearest_buffer(&self, address: usize) -> String {
        /// Maximum distance in bytes at which the nearest buffer is worth naming.
        const MAX_DISTANCE_BYTES: usize = 1 << 24;
        let mut best: Option<(usize, String)> = None;
        for (index, binding) in self.buffers.iter().enumerate() {
            if !binding.is_bound() {
                continue;
            }
            let (distance, text) = if address >= binding.end() {
                let past = address - binding.end();
                (past, format!("{past} bytes past the end of buffer {index}"))
            } else if address < binding.start() {
                let before = binding.start() - address;
                (
                    before,
                    format!("{before} bytes before the start of buffer {index}"),
                )
            } else {
                let inside = address - binding.start();
                (0, format!("at offset {inside} of buffer {index}"))
            };
            if distance < MAX_DISTANCE_BYTES
                && best.as_ref().is_none_or(|(nearest, _)| distance < *nearest)
            {
                best = Some((distance, text));
            }
        }
        best.map(|(_, text)| text).unwrap_or_default()
    }
}

/// Result of a finished launch.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LaunchOutput {
    /// The checker's findings; empty in other modes.
    pub reports: Vec<Report>,
    /// Execution time.
    pub time: Duration,
}

/// The division of a grid into threadgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) grid: [u32; 3],
    pub(crate) threadgroup: [u32; 3],
    pub(crate) groups: [u32; 3],
    pub(crate) total: u64,
}

impl Geometry {
    /// Returns the position of the threadgroup with this number; x varies fastest.
    pub(crate) fn position(&self, number: u64) -> [u32; 3] {
        let [columns, rows, _] = self.groups.map(u64::from);
        if self.total <= u64::from(u32::MAX) && self.groups[1] == 1 && self.groups[2] == 1 {
            return [number as u32, 0, 0];
        }
        let row = number / columns;
        [
            (number % columns) as u32,
            (row % rows) as u32,
            (row / rows) as u32,
        ]
    }

    /// Returns the size of the threadgroup at `position`.
    pub(crate) fn size_at(&self, position: [u32; 3]) -> [u32; 3] {
        std::array::from_fn(|axis| {
            let start = u64::from(position[axis]) * u64::from(self.threadgroup[axis]);
            let remaining = u64::from(self.grid[axis]) - start;
            remaining.min(u64::from(self.threadgroup[axis])) as u32
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edge_groups_are_smaller() {
        let geometry = Geometry {
            grid: [10, 5, 3],
            threadgroup: [4, 2, 3],
            groups: [3, 3, 1],
            total: 9,
        };
        assert_eq!(geometry.position(0), [0, 0, 0]);
        assert_eq!(geometry.position(5), [2, 1, 0]);
        assert_eq!(geometry.size_at([0, 0, 0]), [4, 2, 3]);
        assert_eq!(geometry.size_at([2, 2, 0]), [2, 1, 3]);
        let threads: u32 = (0..9)
            .map(|n| {
                geometry
                    .size_at(geometry.position(n))
                    .iter()
                    .product::<u32>()
            })
            .sum();
        assert_eq!(threads, 150);
    }

    #[test]
    fn the_last_threads_of_the_largest_grid_have_a_threadgroup() {
        let geometry = Geometry {
            grid: [u32::MAX, 1, 1],
            threadgroup: [1024, 1, 1],
            groups: [u32::MAX.div_ceil(1024), 1, 1],
            total: u64::from(u32::MAX.div_ceil(1024)),
        };
        assert_eq!(
            geometry.size_at(geometry.position(geometry.total - 1)),
            [1023, 1, 1]
        );
    }

    #[test]
    fn bytes_are_copied_and_aligned() {
        for length in [0, 1, 63, 64, 65, 4096] {
            let source: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let bytes = InlineBytes::new(&source);
            let binding = bytes.binding();
            assert_eq!(binding.length(), length);
            assert_eq!(binding.start() % 64, 0);
            // SAFETY: the binding covers the copy.
            let copy = unsafe { std::slice::from_raw_parts(binding.pointer(), length) };
            assert_eq!(copy, source);
        }
    }
}
