//! Kernels cut at their barriers compute what threads that wait for each other would compute.

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
