//! Apple GPUs, through Apple's own Metal.
//!
//! The driver is thin: it turns what the front has already checked into Metal's calls and Metal's
//! answers into typed errors. Every entry runs in an autorelease pool, because callers are plain Rust
//! threads that have none. What can be decided without Metal (how long work is split, what an error
//! text says, where compiled pipelines are kept) stands in modules of its own, which are also built
//! and tested where there is no Mac.
//!
//! Needs macOS 14 or iOS 17, whose language has `bfloat` (MSL 3.1), and a GPU of the family Apple7 (M1, A14) or Mac2 or later.

#[cfg(target_vendor = "apple")]
mod archive;
#[cfg(target_vendor = "apple")]
mod buffer;
#[cfg(target_vendor = "apple")]
mod bytes;
mod cache;
#[cfg(target_vendor = "apple")]
mod device;
mod diagnostics;
#[cfg(target_vendor = "apple")]
mod flight;
mod lengths;
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
mod sets;
mod split;

#[cfg(target_vendor = "apple")]
pub use device::{all, system_default};
