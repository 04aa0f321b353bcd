//! Checks of SIMD-group functions: participation of the lanes.

use super::{Checker, Verdict};
use crate::report::ReportKind;
use crate::soft::plan::{SIMD_WIDTH, WHOLE_SIMDGROUP};

/// The SIMD-group function being performed.
#[derive(Debug, Default)]
pub(super) struct SimdFunction {
    simdgroup: u32,
    /// 0 if the divergence was already reported: inactive lanes are its consequence.
    site: u32,
    /// SIMD-group and site of the last such report.
    pub(super) reported: Option<(u32, u32)>,
}

impl Checker {
    /// The lanes in `mask` are about to perform the SIMD-group function at `site`.
    pub(super) fn simd_function(&mut self, simdgroup: u32, site: u32, mask: u32) {
        let reported = self.function.reported.take() == Some((simdgroup, site));
        self.function.simdgroup = simdgroup;
        self.function.site = if reported { 0 } else { site };
        let info = &self.launch().image.plan().sites[site as usize - 1];
        if info.flags & WHOLE_SIMDGROUP == 0 || mask == u32::MAX || reported {
            return;
        }
        self.lane = first_lane(simdgroup) + mask.trailing_zeros();
        self.report(ReportKind::DivergentSimd, info.location, None, || {
            format!(
                "{} of the SIMD-group's {SIMD_WIDTH} threads take part (mask {mask:#010x}) in a simdgroup matrix \
                 function, which needs all of them",
                mask.count_ones()
            )
        });
    }

    /// A lane of the running SIMD-group function reads from a lane that does not participate.
    pub(crate) fn inactive_lane(&mut self, reader: u32, source: u32) -> Verdict {
        let SimdFunction {
            simdgroup, site, ..
        } = self.function;
        if self.launch.is_null() || self.group.is_null() || site == 0 {
            return Verdict::Proceed;
        }
        self.lane = first_lane(simdgroup) + reader;
        let location = self.location_of_site(site);
        let threads = self.group().nthreads.saturating_sub(first_lane(simdgroup));
        self.report(ReportKind::InactiveLane, location, None, || {
            let why = if source >= threads {
                format!("which does not exist: the SIMD-group has {threads} threads")
            } else {
                "which is not active: it took another branch or has returned".to_owned()
            };
            format!("lane {reader} reads the value of lane {source}, {why}")
        });
        Verdict::Proceed
    }
}

fn first_lane(simdgroup: u32) -> u32 {
    simdgroup * SIMD_WIDTH as u32
}
