//! The software device's runtime: what happens between "dispatch" and "done".
//!
//! A [`Launch`] is one dispatch of one [`Image`]. A [`Pool`] runs it: the calling thread and the pool's workers take
//! threadgroups from a counter, and each threadgroup is run by [`group`](super::group) inside a frame that kernel
//! code can be thrown out of (`signal.rs`): a wild pointer, a division by zero, a stack overflow or an endless loop
//! ends the launch with a [`Fault`], not the process. [`Isolation`] does the same in a forked child, for code that may
//! overwrite anything.
//!
//! Rules that keep this sound:
//! - between entering and leaving kernel code, frames hold no locks and own nothing, except inside a service
//!   (`services.rs`), which is never interrupted;
//! - images are loaded with all symbols bound (`RTLD_NOW`): lazy binding would run the dynamic linker, which does
//!   hold locks, in interruptible code.

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
pub(crate) mod stand_in;
#[cfg(test)]
mod tests;
mod watchdog;
mod worker;

pub use fault::{Fault, FaultKind, Whereabouts};
pub use image::Image;
pub use isolated::{Isolation, Sole};
pub use launch::{Access, Binding, Bytes, Done, Launch, Mode};
pub use log::{Log, LogLine};
pub use memory::Block;
pub use pool::Pool;
pub use services::{ConstantTable, ConstantType};
pub(crate) use worker::ThreadgroupLayout;
