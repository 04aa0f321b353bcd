//! Kernels split at their barriers compute the same results as concurrent threads that wait for each other.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "loads compiled kernels and runs them")]

#[path = "ir/harness.rs"]
mod harness;

#[path = "ir/check.rs"]
mod check;
#[path = "ir/launch.rs"]
mod launch;
#[path = "ir/random.rs"]
mod random;
#[path = "ir/run.rs"]
mod run;
