//! The protocol between the benchmark and its workers.
//!
//! A worker is a process that reads one JSON request per line from standard input and replies with one JSON line on
//! standard output. It generates a case's data itself, from the formula in [`data`], so that all contestants compute on
//! the same values, and it measures the time itself, so that no communication is inside a measurement.
//!
//! | request | reply |
//! |---|---|
//! | `"info"` | `{"info": {"name", "version", "threads"}}` |
//! | `{"prepare": case}` | `{"ready": output}`, or `{"unsupported": "why"}` |
//! | `{"run": n}` | `{"nanoseconds": t}` for n calls |
//! | `"drop"` | `"dropped"`: the case's memory is freed |
//!
//! Any failure is `{"error": "reason"}`.
#![warn(missing_docs)]

pub mod case;
pub mod data;
pub mod op;
pub mod serve;

pub use case::{Case, DType, Fill, Input, Model, Output, Reply, Request, WorkerInfo};
pub use op::Op;
pub use serve::{Engine, Prepared, Work, serve};
