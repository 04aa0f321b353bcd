//! What the compiler tells the runtime about one kernel image.

use serde::{Deserialize, Serialize};

/// Threads a threadgroup may have at most; columns have this many lanes.
pub const MAX_LANES: usize = 1024;
/// Lanes in a SIMD-group.
pub const SIMD_WIDTH: usize = 32;
/// The state of a lane that has returned.
pub const FINISHED: u32 = u32::MAX;

/// The flags of a SIMD-level site that is not in the source: lanes only meet there after they have parted.
pub const RECONVERGE: u32 = u32::MAX;

/// A flag of a SIMD-level site at which all lanes of the SIMD-group must take part: a function of simdgroup matrices.
pub const WHOLE_SIMDGROUP: u32 = 1 << 16;

/// Offset in the context of the steps that the running lane has left (`i64`), and of the location of the last loop that
/// it went through (`i32`), in check mode.
pub const STEPS_OFFSET: usize = 4 * MAX_LANES;
/// Bytes of both.
pub const STEPS_BYTES: usize = 64;

/// A kernel as regions between synchronisation points.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelPlan {
    /// Number of entries in the image's `sm_regions` table.
    pub regions: u32,
    /// `sites[k - 1]` describes synchronisation site `k`, after which region `k` runs.
    pub sites: Vec<Site>,
    /// `exits[k]` lists the states in which region `k` can leave a lane, in ascending order: ids of sites, then
    /// [`FINISHED`].
    #[serde(default)]
    pub exits: Vec<Vec<u32>>,
    /// Bytes of context a threadgroup needs.
    pub context_bytes: usize,
    /// Bytes of threadgroup memory declared inside the kernel.
    pub arena_bytes: usize,
    /// Where those variables lie.
    pub variables: Vec<ThreadgroupVariable>,
    /// Names of private variables that reports may be about; entry 0 is empty.
    #[serde(default)]
    pub privates: Vec<String>,
    /// Source places that sites and accesses refer to; entry 0 is "unknown".
    pub locations: Vec<Location>,
    /// What the accesses at each location are made to, as far as that is known; may be shorter than `locations`.
    #[serde(default)]
    pub origins: Vec<Option<Origin>>,
}

/// The memory that a pointer was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// A buffer, by index.
    Buffer(u32),
    /// A `[[threadgroup(i)]]` argument, by index.
    Argument(u32),
    /// A threadgroup variable, by its number.
    Variable(u32),
}

/// One synchronisation point in the kernel's code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// Who waits for whom.
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

/// Who waits at a [`Site`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SiteKind {
    /// All threads of the threadgroup.
    Threadgroup,
    /// The lanes of a SIMD-group.
    Simdgroup,
    /// The lanes of a SIMD-group, which also exchange values.
    Collective,
}

/// Per-lane values of one size, lane after lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Offset of lane 0 in the context.
    pub offset: usize,
    /// Bytes a lane.
    pub size: usize,
}

/// A variable declared `threadgroup` inside the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadgroupVariable {
    /// Number given by the rewriter.
    pub id: u32,
    /// Offset in the arena.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// A place in the user's source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// File name as in the line markers.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1, in the text that was compiled.
    pub column: u32,
    /// The place that this one was inlined into.
    pub inlined_at: Option<u32>,
}
