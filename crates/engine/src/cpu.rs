//! The CPU backend. `cpu/x.rs` implements op X of `ops/x.rs`.

pub(crate) mod axis_split;
mod divmod;
pub(crate) mod gemm;
pub(crate) mod grid;
mod huge_pages;
mod index;
pub(crate) mod map;
pub(crate) mod math;
pub mod pool;
pub(crate) mod program;
mod radix;
mod region;
pub(crate) mod replay;
pub(crate) mod row;
pub mod simd;
mod sort_key;

use crate::Result;
use crate::capabilities::{Capabilities, MatmulEpilogue};
use crate::dispatch::{Input, Output};
use crate::ops::Op;

/// What the CPU can fuse and cache.
pub(crate) const CAPABILITIES: Capabilities = Capabilities {
    max_fused_inputs: usize::MAX,
    matmul_epilogue: MatmulEpilogue::Unsupported,
    caches_scalars: true,
};

/// Declares `cpu/x.rs` for every op X, and the dispatch to them.
macro_rules! kernels {
    ($($(#[$doc:meta])* $module:ident::$name:ident $($boxed:ident)? $(=> $msl:ident)?,)*) => {
        $(pub(crate) mod $module;)*

        /// Runs the kernel of an op. The result has at least one element. On an error, a donated input keeps its value.
        pub(crate) fn run(op: &Op, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
            match op {
                // An alias shares the storage of another node, an argument has none; custom kernels run on Metal devices.
                Op::Alias(_) | Op::Argument(_) | Op::Custom(_) | Op::CustomOutput(_) => Ok(()),
                $(Op::$name(op) => $module::run(op, inputs, output),)*
            }
        }
    };
}

crate::for_each_op!(kernels);
