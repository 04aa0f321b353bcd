//! What the benchmark and its workers say to each other.
//!
//! A worker is a process that reads one JSON request a line from its standard input and answers each
//! with one JSON line on its standard output. It makes a case's data itself, from the formula in
//! [`data`], so that all contestants work on the same numbers, and it measures the time itself, so
//! that no talk between processes is ever inside a measurement.
//!
//! | request | answer |
//! |---|---|
//! | `"info"` | `{"info": {"name", "version", "threads"}}` |
//! | `{"prepare": case}` | `{"ready": output}`, or `{"unsupported": "why"}` |
//! | `{"run": n}` | `{"nanoseconds": t}` for n calls |
//! | `"drop"` | `"dropped"`: the case's memory is free again |
//!
//! Anything else that happens is `{"error": "what"}`.
#![warn(missing_docs)]

pub mod case;
pub mod data;
pub mod op;
pub mod serve;

pub use case::{Case, DType, Fill, Input, Model, Output, Reply, Request, WorkerInfo};
pub use op::Op;
pub use serve::{Engine, Prepared, Work, serve};
