//! The compiler's description of a kernel image for the runtime.

use serde::{Deserialize, Serialize};

/// Maximum threads per threadgroup; columns have this many lanes.
pub const MAX_LANES: usize = 1024;
/// Lanes in a SIMD-group.
pub const SIMD_WIDTH: usize = 32;
/// State of a lane that has returned.
pub const FINISHED: u32 = u32::MAX;

/// Flags of a SIMD-level site that is not in the source: a reconvergence point of diverged lanes.
pub const RECONVERGE: u32 = u32::MAX;

/// Flag of a SIMD-level site at which all lanes of the SIMD-group must participate: a simdgroup matrix function.
pub const WHOLE_SIMDGROUP: u32 = 1 << 16;

/// Offset in the context of the running lane's remaining loop iterations (`i64`), followed by the location of its last
/// loop (`i32`), in check mode.
pub const STEPS_OFFSET: usize = 4 * MAX_LANES;
/// Size of both in bytes.
pub const STEPS_BYTES: usize = 64;

/// A kernel split into regions at its synchronisation sites.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelPlan {
    /// Number of entries in the image's `sm_regions` table.
    pub regions: u32,
    /// `sites[k - 1]` describes synchronisation site `k`, after which region `k` runs.
    pub sites: Vec<Site>,
    /// `exits[k]` lists the states in which region `k` can leave a lane, in ascending order: site ids, then
    /// [`FINISHED`].
    #[serde(default)]
    pub exits: Vec<Vec<u32>>,
    /// Context size of a threadgroup in bytes.
    pub context_bytes: usize,
    /// Bytes of the threadgroup variables declared inside the kernel.
    pub arena_bytes: usize,
    /// Offsets of those variables.
    pub variables: Vec<ThreadgroupVariable>,
    /// Names of private variables that reports may be about; entry 0 is empty.
    #[serde(default)]
    pub privates: Vec<String>,
    /// Source locations of sites and accesses; entry 0 is "unknown".
    pub locations: Vec<Location>,
    /// The memory accessed at each location, if known; may be shorter than `locations`.
    #[serde(default)]
    pub origins: Vec<Option<Origin>>,
}

/// The memory that a pointer is derived from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// A buffer, by index.
    Buffer(u32),
    /// A `[[threadgroup(i)]]` argument, by index.
    Argument(u32),
    /// A threadgroup variable, by its number.
    Variable(u32),
}

/// A synchronisation point in the kernel's code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The threads that wait for each other.
    pub kind: SiteKind,
    /// `mem_flags` of a barrier, [`WHOLE_SIMDGROUP`] or [`RECONVERGE`].
    pub flags: u32,
    /// Index in the image's `sm_ops` table, for collectives.
    pub op: u32,
    /// Operand columns of a collective.
    pub args: Vec<Column>,
    /// Result column of a collective.
    pub result: Option<Column>,
    /// Index into [`KernelPlan::locations`].
    pub location: u32,
}

/// The threads that wait at a [`Site`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SiteKind {
    /// All threads of the threadgroup.
    Threadgroup,
    /// The lanes of a SIMD-group.
    Simdgroup,
    /// The lanes of a SIMD-group, which also exchange values.
    Collective,
}

/// A spilled per-lane value: one element per lane, contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Offset of lane 0 in the context.
    pub offset: usize,
    /// Bytes per lane.
    pub size: usize,
}

/// A variable declared `threadgroup` inside the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadgroupVariable {
    /// Number given by the rewriter.
    pub id: u32,
    /// Offset in the arena.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// A location in the user's source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// File name as in the line markers.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1, in the text that was compiled.
    pub column: u32,
    /// The location that this one was inlined at.
    pub inlined_at: Option<u32>,
}
