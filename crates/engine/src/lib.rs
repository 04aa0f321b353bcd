//! Lazy tensors: one op set, run by vectorised native code on any CPU.
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
//! A [`Tensor`] is a cheap, shareable handle. Methods and operators record; reading computes, and joins
//! elementwise ops into one pass over memory, computes equal expressions once, and reuses the memory of
//! values that nobody needs any more ([`explain`] shows the plan). Views never copy. A call that makes no
//! sense gives a tensor that carries a typed [`Error`] to whoever reads it; nothing here panics.
//!
//! # The map
//!
//! | where | what |
//! |---|---|
//! | `tensor/` | the handle: creation, views, operators, reading, printing |
//! | `ops/x.rs` | what op X means: parameters, shapes, types, formula |
//! | `cpu/x.rs` | how op X runs on the CPU |
//! | `graph/` | from tensors asked for to kernels run: sharing, joining, order, memory |
//! | `dispatch.rs` | the one place where an op meets a device |
//! | [`kernel`] | kernels on plain slices, and caches of keys and values |
//! | [`decoder`] | language models on a Metal device |
//! | [`quant`] | weights of a few bits: block formats, quantised matrices |
//! | [`random`] | keys, from which random numbers are made |
//! | `file/` ([`npz`], [`safetensors`]) | tensors in files |
//! | `storage.rs`, [`memory`] | bytes, their cache and their limits |
//! | `cpu/simd.rs` ([`simd`]), `cpu/pool.rs` ([`pool`]) | instruction sets and threads |
//!
//! Rules of the layer: an op is defined in one file and dispatched in one `match`; kernels get inputs that
//! its rule has checked; unsafe code lives in the few files that `docs/unsafe.md` lists; results have the
//! same bits for every number of threads.

#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../../../README.md")]
mod readme {}

pub mod backends;
mod cpu;
pub mod decoder;
mod device;
mod dispatch;
mod dispatch_table;
mod dtype;
mod env;
mod error;
mod file;
mod graph;
pub mod kernel;
#[cfg(test)]
mod kernels;
mod layout;
pub mod memory;
mod metal;
mod ops;
pub mod quant;
pub mod random;
mod scalar;
mod shape;
mod storage;
mod tensor;

pub use cpu::{pool, simd};
pub use device::Device;
pub use dtype::{DType, Element, Kind};
pub use error::{Error, Result};
pub use file::{npz, safetensors};
pub use graph::{Plan, PlannedStep, async_eval, eval, explain, synchronize};
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
