//! Descriptions of traces, for people to read and tests to count.

use std::fmt;

use super::{AllocationOwner, Executable, Trace};
use crate::{DType, Plan, Shape};

/// A trace of a compiled function: see [`Compiled::explain`](crate::Compiled::explain).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceReport {
    /// The dtype and shape of each argument.
    pub arguments: Vec<(DType, Shape)>,
    /// The schedule that a call replays.
    pub plan: Plan,
    /// Kernel launches of a call; on the CPU, its kernels.
    pub launches: usize,
    /// Bytes of the memory for intermediate values, which calls use again and again. Calls at the same time have their own
    /// on the CPU.
    pub scratch_bytes: usize,
    /// Arguments whose memory is overwritten.
    pub updated_in_place: Vec<usize>,
    /// Why calls are evaluated instead of replayed, if they are.
    pub not_replayed: Option<String>,
}

impl TraceReport {
    pub(super) fn of(trace: &Trace) -> Self {
        let arguments = trace.signature.arguments.iter();
        let arguments = arguments.map(|a| (a.dtype, *a.layout.shape())).collect();
        let plan = trace.plan.clone();
        match &trace.replay {
            Ok(replay) => Self {
                arguments,
                plan,
                launches: replay.launches(),
                scratch_bytes: replay.scratch_bytes(),
                updated_in_place: updated_in_place(replay.executable()),
                not_replayed: None,
            },
            Err(obstacle) => Self {
                arguments,
                plan,
                launches: 0,
                scratch_bytes: 0,
                updated_in_place: Vec::new(),
                not_replayed: Some(obstacle.0.clone()),
            },
        }
    }
}

fn updated_in_place(executable: &Executable) -> Vec<usize> {
    let overwritten = executable.allocations.iter();
    let overwritten = overwritten.filter(|a| a.first_overwrite.is_some());
    overwritten
        .filter_map(|allocation| match allocation.owner {
            AllocationOwner::Argument(i) => Some(i),
            _ => None,
        })
        .collect()
}

impl fmt::Display for TraceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("trace of")?;
        for (i, (dtype, shape)) in self.arguments.iter().enumerate() {
            let separator = if i == 0 { "" } else { "," };
            write!(f, "{separator} {dtype} {shape}")?;
        }
        if let Some(reason) = &self.not_replayed {
            write!(f, ", evaluated in each call: {reason}")?;
        } else {
            write!(
                f,
                ", {} launches, {} B scratch",
                self.launches, self.scratch_bytes
            )?;
        }
        if !self.updated_in_place.is_empty() {
            write!(
                f,
                ", updates arguments {:?} in place",
                self.updated_in_place
            )?;
        }
        write!(f, "\n{}", self.plan)
    }
}
