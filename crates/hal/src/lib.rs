//! Bessemer's device layer: a safe API in Metal's own terms.
//!
//! [`Device`], [`Buffer`], [`Library`], [`Function`], [`Pipeline`] and [`Commands`] mean what they mean in Metal, and
//! have three drivers:
//!
//! - `apple`: the GPUs of macOS and iOS, through Apple's Metal;
//! - `soft`: the software Metal device, which compiles unmodified MSL with clang and runs it on the CPU,
//!   at full speed or with every access checked;
//! - [`noop`]: records commands and runs nothing, for tests.
//!
//! # The layer's rules
//!
//! - The front (the types above) validates everything once, before a driver sees it: lengths, offsets,
//!   alignment, storage modes, device identity, limits, hazards. Drivers contain no logic that could live here.
//! - Nothing here knows dtypes, tensors, ops or model files.
//! - A failure is a typed [`Error`]; the device is usable afterwards.
//! - Everything is `Send + Sync`; many threads may record and submit concurrently.

#[macro_use]
mod trace;

mod access;
#[cfg(any(target_vendor = "apple", test))]
pub mod apple;
mod buffer;
mod chip;
mod commands;
mod device;
pub mod driver;
pub mod env;
mod error;
mod hazard;
mod info;
mod language;
mod launch;
mod library;
mod matrix;
pub mod msl;
pub mod noop;
mod pipeline;
mod report;
mod size;
#[cfg(target_os = "linux")]
pub mod soft;
mod storage;
mod submission;
mod system;

pub use access::Access;
pub use buffer::{Buffer, BufferSlice, HostSlice, HostSliceMut};
pub use chip::Chip;
pub use commands::{Commands, Dispatch};
pub use device::{Capture, Device, NO_COPY_ALIGNMENT_BYTES, Residency};
pub use error::{Error, Fault, Result};
pub use info::{DeviceInfo, DeviceKind, Family, Limits};
pub use language::LanguageVersion;
pub use launch::{Launch, LaunchBuilder};
pub use library::{CompileOptions, ConstantValue, Function, FunctionConstants, Library, MathMode};
pub use matrix::{Matrix, MatrixElement, MatrixProduct, PreparedProduct};
pub use pipeline::{Argument, ArgumentKind, Pipeline, PipelineInfo};
pub use report::{
    Baseline, BaselineDiff, BaselineEntry, BaselineError, Report, ReportKind, suppression_warnings,
};
pub use size::Size;
pub use storage::StorageMode;
pub use submission::{Completed, Completion, LogLine, Submission};
