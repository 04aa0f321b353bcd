//! Apple GPUs, through Apple's own Metal.
//!
//! The driver is thin: it maps commands that the front has already validated to Metal's calls, and Metal's
//! failures to typed errors. Every entry point runs in an autorelease pool, because callers are plain Rust
//! threads that have none. Logic that does not need Metal (splitting command buffers, parsing error texts,
//! caching compiled pipelines) is in separate modules, which are also built and tested on other systems.
//!
//! Needs macOS 14 or iOS 17, whose language has `bfloat` (MSL 3.1), and a GPU of the family Apple7 (M1, A14) or Mac2 or later.

#[cfg(target_vendor = "apple")]
mod archive;
#[cfg(target_vendor = "apple")]
mod buffer;
mod cache;
mod command_split;
#[cfg(target_vendor = "apple")]
mod device;
mod diagnostics;
#[cfg(target_vendor = "apple")]
mod in_flight;
#[cfg(target_vendor = "apple")]
mod library;
#[cfg(target_vendor = "apple")]
mod matrix;
#[cfg(target_vendor = "apple")]
mod pipeline;
#[cfg(target_vendor = "apple")]
mod queue;
#[cfg(target_vendor = "apple")]
mod recorder;
#[cfg(target_vendor = "apple")]
mod residency;
mod residency_sets;
mod threadgroup_lengths;
#[cfg(target_vendor = "apple")]
mod unaligned_copy;

#[cfg(target_vendor = "apple")]
pub use device::{all, system_default};
