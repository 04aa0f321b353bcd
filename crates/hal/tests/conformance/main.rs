//! What MSL and Metal mean: every builtin and attribute, in small kernels whose results are known.
//!
//! `BESSEMER_TEST_DEVICE` chooses the device: `software` (the default: every kernel runs in fast and in
//! check mode, and a report is a failure), `fast`, `check`, `fuzz` or `isolated` for one mode of the
//! software device, `apple` for the system's GPU. Only facts that hold on every one of them are stated;
//! results are exact where the language makes them exact, and within [`tolerance`] otherwise.

mod argument;
mod atomic;
mod cast;
mod harness;
mod integer;
mod log;
mod math;
mod matrix;
mod memory;
mod overload;
mod position;
mod precision;
mod quad;
mod refuse;
mod relational;
mod simd;
mod simdgroup_matrix;
mod specialise;
mod storage;
mod subnormal;
mod template;
mod tolerance;
mod vector;
