//! The built `bessemer` binary, used as a user would.
//!
//! Everything that compiles MSL needs clang; without it these tests fail, and `bessemer devices` says
//! what to install.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod check;
mod devices;
mod formats;
mod harness;
mod inspect;
mod interrupt;
mod kernel_tests;
mod kernels;
mod language;
mod memory;
mod pull;
mod quantize;
mod readme;
mod run;
mod summary;
mod tune;
mod usage;
