//! The software device's runtime: executes a dispatch.
//!
//! A [`KernelLaunch`] is one dispatch of one [`Image`]. A [`Pool`] runs it: the calling thread and the pool's workers
//! take threadgroups from a shared counter, and [`group`](super::group) executes each of them inside a recovery
//! frame (`signal.rs`): a wild pointer, a division by zero, a stack overflow or an endless loop ends the launch
//! with a [`LaunchFault`], not the process. [`Isolation`] does the same in a forked child, for code that may overwrite
//! anything.
//!
//! Soundness rules:
//! - between entering and leaving kernel code, frames hold no locks and own nothing, except inside a service
//!   (`services.rs`), which is never interrupted;
//! - images are loaded with all symbols bound (`RTLD_NOW`): lazy binding would run the dynamic linker, which takes
//!   locks, in interruptible code.

pub mod fault;
pub mod fuzz;
pub mod image;
pub mod isolated;
pub mod launch;
pub mod log;
mod math;
pub mod memory;
pub mod pool;
mod recovery;
pub mod services;
pub(crate) mod signal;
#[cfg(test)]
pub(crate) mod test_kernel;
#[cfg(test)]
mod tests;
mod watchdog;
mod worker;

pub use fault::{FaultKind, LaunchFault, ThreadLocation};
pub use image::Image;
pub use isolated::{ChildRunner, Isolation};
pub use launch::{
    BindingAccess, BufferBinding, InlineBytes, KernelLaunch, LaunchMode, LaunchOutput,
};
pub use log::{KernelLogLine, Log};
pub use memory::MappedMemory;
pub use pool::Pool;
pub use services::{ConstantTable, ConstantType};
pub(crate) use worker::ThreadgroupLayout;
