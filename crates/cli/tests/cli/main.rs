//! The built `bessemer` binary, used as a user would.
//!
//! Tests that compile MSL need clang and fail without it; `bessemer devices` prints install instructions.
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
mod program;
mod pull;
mod quantize;
mod readme;
mod run;
mod summary;
mod tune;
mod usage;
