//! Every op against plain loops, and what it does at the edges.

#[path = "ops/reduce.rs"]
mod reduce;
