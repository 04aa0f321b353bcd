//! MSL conformance: every builtin and attribute, in small kernels with known results.
//!
//! `BESSEMER_TEST_DEVICE` selects the device: `software` (the default: every kernel runs in fast and in
//! check mode, and a report is a failure), `fast`, `check`, `fuzz` or `isolated` for one mode of the
//! software device, `apple` for the system's GPU. The expectations hold on all of them; results are exact if the
//! language requires it, and within [`tolerance`] otherwise.

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
