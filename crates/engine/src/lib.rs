//! Lazy tensors and language models on Metal: Apple GPUs, a software Metal device for Linux, and a vectorised CPU backend.
//!
//! ```
//! use bessemer::{DType, Tensor};
//!
//! let x = Tensor::linspace(-1.0, 1.0, 5, DType::F32);
//! let y = (&x * 2.0 + 1.0).relu();              // nothing is computed yet
//! assert_eq!(y.to_vec::<f32>()?, [0.0, 0.0, 1.0, 2.0, 3.0]);
//! # Ok::<(), bessemer::Error>(())
//! ```
//!
//! A [`Tensor`] is a cheap, shareable handle. Methods and operators record a graph. Reading a value evaluates it: elementwise
//! ops are fused into one pass over memory, common subexpressions are computed once, and the memory of dead inputs is donated
//! to results ([`explain`] shows the schedule). Views never copy. An invalid call returns a tensor that carries a typed
//! [`Error`] until it is read; nothing here panics.
//!
//! # Modules
//!
//! | where | contents |
//! |---|---|
//! | `tensor/` | the handle: creation, views, operators, reading, printing |
//! | `ops/x.rs` | the definition of op X: parameters, shape and dtype rules, formula |
//! | `cpu/x.rs` | op X on the CPU |
//! | `metal/x.rs`, `metal/msl/x.metal` | op X on Metal: arguments and grid, kernels |
//! | `graph/` | scheduling: common subexpressions, fusion, order, memory |
//! | `compile/` ([`compile`](compile())) | functions traced once and replayed |
//! | `device.rs`, `dispatch.rs` | devices, and the dispatch of ops to their backends |
//! | [`dispatch_table`] | the backend of each op, by size, as measured |
//! | [`custom`] | kernels of users on tensors, in Metal Shading Language |
//! | [`external`] | tensors in memory that the caller owns |
//! | [`decoder`] | transformers on a Metal device |
//! | [`program`] | kernels in a typed instruction set: formats, verifier, reference interpreter |
//! | [`quant`] | quantised weights: block formats, matrices |
//! | [`random`] | splittable keys and the random numbers derived from them |
//! | `file/` ([`npy`], [`npz`], [`safetensors`], [`zip`]) | tensors in files |
//! | `storage.rs`, [`memory`] | allocations, their cache and their limits |
//! | `cpu/simd.rs` ([`simd`]), `cpu/pool.rs` ([`pool`]) | instruction sets and threads |
//!
//! Rules of this layer: an op is defined in one file and dispatched in one `match`; a kernel receives inputs that the op's rule
//! has validated; unsafe code is confined to the files that `docs/unsafe.md` lists; results are bit-identical for every number of
//! threads.

#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../../../README.md")]
mod readme {}

#[cfg(doctest)]
#[doc = include_str!("../../../docs/compile.md")]
mod compile_page {}

#[macro_use]
mod trace;

mod cache_line;
mod capabilities;
mod compile;
mod cpu;
pub mod custom;
pub mod decoder;
mod device;
mod dispatch;
pub mod dispatch_table;
mod dtype;
pub mod env;
mod error;
pub mod external;
mod file;
mod functions;
mod graph;
mod kernel;
mod layout;
pub mod memory;
mod metal;
mod ops;
pub mod program;
pub mod quant;
pub mod random;
mod scalar;
mod shape;
mod storage;
mod tensor;
mod try_vec;

/// Not public API: kernels on slices for the crates above, which panic when lengths do not match.
#[doc(hidden)]
pub mod slice_kernel {
    pub use crate::kernel::{
        Attend, KvCache, Rotation, activate, add, layer_norm, rms_norm, soft_cap,
    };
}

pub use compile::{Compiled, IntoOutputs, TraceReport, compile};
pub use cpu::{pool, simd};
pub use device::Device;
pub use dtype::{DType, Element, Kind};
pub use error::{Error, Result};
pub use file::{Mapping, npy, npz, safetensors, zip};
pub use graph::{Plan, PlannedStep, async_eval, eval, explain, synchronize};
pub use kernel::{Activation, CacheType};
pub use layout::Layout;
pub use metal::{Fallback, MatrixLibrary};
pub use ops::attention::AttentionOptions;
pub use ops::conv::ConvOptions;
pub use ops::packed_matmul::PackedMatrix;
pub use ops::pooling::PoolOptions;
pub use ops::rope::{Positions, RopeOptions, RopeScaling, RopeStyle, RopeTable};
pub use scalar::Scalar;
pub use shape::{Axes, IntoShape, MAX_RANK, Shape};
pub use tensor::{Operand, Tensor};
