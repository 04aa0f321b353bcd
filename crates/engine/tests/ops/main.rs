//! Ops against slow references and hand-computed values, for each op × dtype × layout, and their errors.
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

/// Declares `tests/ops/x.rs` for every op X with a kernel.
macro_rules! modules {
    ($($(#[$doc:meta])* $module:ident::$name:ident $($boxed:ident)? $(=> $msl:ident)?,)*) => {
        $(mod $module;)*
    };
}

bessemer::for_each_op!(modules);

// Formulas of other ops.
mod batch_norm;
mod dot;
mod einsum;
mod embedding;
mod logsumexp;
mod matvec;
mod mse;
mod norm;
mod outer;
mod repeat;
mod swiglu;
mod upsample_nearest;
mod var;

// Cases and checks shared by several ops.
mod axis;
mod block;
mod data;
mod formula;
mod in_place;
mod order;
