//! The grid of a call.

use bessemer_hal::{Pipeline, Size};

use crate::{Error, Result};

/// The sizes that a call was given.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GridRequest {
    pub(super) threads: Option<Size>,
    pub(super) threadgroups: Option<Size>,
    /// Threads of a threadgroup.
    pub(super) group: Option<Size>,
}

/// The grid of a launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchGrid {
    /// Threads, or threadgroups.
    pub(crate) size: Size,
    /// Threads of a threadgroup.
    pub(crate) group: Size,
    /// Whether the size counts threadgroups.
    pub(crate) counts_threadgroups: bool,
}

impl GridRequest {
    /// The grid, whether it counts threadgroups.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless exactly one size is given.
    pub(super) fn size(&self, op: &'static str) -> Result<(Size, bool)> {
        let invalid = |reason: &str| Error::Invalid {
            op,
            reason: reason.to_owned(),
        };
        match (self.threads, self.threadgroups) {
            (Some(size), None) => Ok((size, false)),
            (None, Some(size)) => Ok((size, true)),
            (Some(_), Some(_)) => Err(invalid(
                "the grid is given in threads and in threadgroups; give one of them",
            )),
            (None, None) => Err(invalid(
                "the call has no grid; give it with `threads` or `threadgroups`",
            )),
        }
    }

    /// The grid of a kernel's launch, checked against the limits of the kernel and its device.
    ///
    /// # Errors
    /// [`Error::Device`] with [`bessemer_hal::Error::Launch`] for what exceeds a limit.
    pub(super) fn resolve(
        &self,
        op: &'static str,
        pipeline: &Pipeline,
        threadgroup: &[(u32, usize)],
    ) -> Result<LaunchGrid> {
        let (size, counts_threadgroups) = self.size(op)?;
        let group = self.group.unwrap_or_else(|| {
            if size.height <= 1 && size.depth <= 1 {
                pipeline.optimal_thread_group_size()
            } else {
                pipeline.optimal_thread_group_size_2d()
            }
        });
        let check = || {
            let mut launch = pipeline.launch();
            for &(index, bytes) in threadgroup {
                launch = launch.threadgroup_memory(index, bytes);
            }
            let threads = if counts_threadgroups {
                launch.grid_of(size, group)?
            } else {
                size
            };
            launch.check_grid(threads, group)
        };
        check().map_err(|e| Error::device(op, e))?;
        Ok(LaunchGrid {
            size,
            group,
            counts_threadgroups,
        })
    }
}
