//! The builtin values that kernel parameters can have.

use serde::{Deserialize, Serialize};

/// A thread-position attribute, by Metal's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Builtin {
    /// `[[thread_position_in_grid]]`
    ThreadPositionInGrid,
    /// `[[threads_per_grid]]`
    ThreadsPerGrid,
    /// `[[thread_position_in_threadgroup]]`
    ThreadPositionInThreadgroup,
    /// `[[threads_per_threadgroup]]`
    ThreadsPerThreadgroup,
    /// `[[threadgroup_position_in_grid]]`
    ThreadgroupPositionInGrid,
    /// `[[threadgroups_per_grid]]`
    ThreadgroupsPerGrid,
    /// `[[thread_index_in_threadgroup]]`
    ThreadIndexInThreadgroup,
    /// `[[thread_index_in_simdgroup]]`
    ThreadIndexInSimdgroup,
    /// `[[simdgroup_index_in_threadgroup]]`
    SimdgroupIndexInThreadgroup,
    /// `[[simdgroups_per_threadgroup]]`
    SimdgroupsPerThreadgroup,
    /// `[[threads_per_simdgroup]]`
    ThreadsPerSimdgroup,
    /// `[[thread_execution_width]]`
    ThreadExecutionWidth,
    /// `[[thread_index_in_quadgroup]]`
    ThreadIndexInQuadgroup,
    /// `[[quadgroup_index_in_threadgroup]]`
    QuadgroupIndexInThreadgroup,
    /// `[[quadgroups_per_threadgroup]]`
    QuadgroupsPerThreadgroup,
    /// `[[dispatch_threads_per_threadgroup]]`
    DispatchThreadsPerThreadgroup,
    /// `[[dispatch_simdgroups_per_threadgroup]]`
    DispatchSimdgroupsPerThreadgroup,
    /// `[[dispatch_quadgroups_per_threadgroup]]`
    DispatchQuadgroupsPerThreadgroup,
    /// `[[grid_origin]]`
    GridOrigin,
    /// `[[grid_size]]`
    GridSize,
}

impl Builtin {
    /// All of them.
    pub const ALL: [Self; 20] = [
        Self::ThreadPositionInGrid,
        Self::ThreadsPerGrid,
        Self::ThreadPositionInThreadgroup,
        Self::ThreadsPerThreadgroup,
        Self::ThreadgroupPositionInGrid,
        Self::ThreadgroupsPerGrid,
        Self::ThreadIndexInThreadgroup,
        Self::ThreadIndexInSimdgroup,
        Self::SimdgroupIndexInThreadgroup,
        Self::SimdgroupsPerThreadgroup,
        Self::ThreadsPerSimdgroup,
        Self::ThreadExecutionWidth,
        Self::ThreadIndexInQuadgroup,
        Self::QuadgroupIndexInThreadgroup,
        Self::QuadgroupsPerThreadgroup,
        Self::DispatchThreadsPerThreadgroup,
        Self::DispatchSimdgroupsPerThreadgroup,
        Self::DispatchQuadgroupsPerThreadgroup,
        Self::GridOrigin,
        Self::GridSize,
    ];

    /// The attribute's name in MSL.
    pub fn name(self) -> &'static str {
        match self {
            Self::ThreadPositionInGrid => "thread_position_in_grid",
            Self::ThreadsPerGrid => "threads_per_grid",
            Self::ThreadPositionInThreadgroup => "thread_position_in_threadgroup",
            Self::ThreadsPerThreadgroup => "threads_per_threadgroup",
            Self::ThreadgroupPositionInGrid => "threadgroup_position_in_grid",
            Self::ThreadgroupsPerGrid => "threadgroups_per_grid",
            Self::ThreadIndexInThreadgroup => "thread_index_in_threadgroup",
            Self::ThreadIndexInSimdgroup => "thread_index_in_simdgroup",
            Self::SimdgroupIndexInThreadgroup => "simdgroup_index_in_threadgroup",
            Self::SimdgroupsPerThreadgroup => "simdgroups_per_threadgroup",
            Self::ThreadsPerSimdgroup => "threads_per_simdgroup",
            Self::ThreadExecutionWidth => "thread_execution_width",
            Self::ThreadIndexInQuadgroup => "thread_index_in_quadgroup",
            Self::QuadgroupIndexInThreadgroup => "quadgroup_index_in_threadgroup",
            Self::QuadgroupsPerThreadgroup => "quadgroups_per_threadgroup",
            Self::DispatchThreadsPerThreadgroup => "dispatch_threads_per_threadgroup",
            Self::DispatchSimdgroupsPerThreadgroup => "dispatch_simdgroups_per_threadgroup",
            Self::DispatchQuadgroupsPerThreadgroup => "dispatch_quadgroups_per_threadgroup",
            Self::GridOrigin => "grid_origin",
            Self::GridSize => "grid_size",
        }
    }

    /// Returns whether it has as many components as the grid has dimensions, the same for all such values of a
    /// kernel.
    pub(crate) fn has_dimensions(self) -> bool {
        matches!(
            self,
            Self::ThreadPositionInGrid
                | Self::ThreadsPerGrid
                | Self::ThreadPositionInThreadgroup
                | Self::ThreadsPerThreadgroup
                | Self::ThreadgroupPositionInGrid
                | Self::ThreadgroupsPerGrid
        )
    }

    /// Looks up a builtin by the name of its attribute.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|builtin| builtin.name() == name)
    }
}
