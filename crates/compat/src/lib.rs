//! Compatibility APIs: the Metal backends that four other projects document, under the names that they document.
//!
//! New programs should use [`bessemer::Tensor`]. This crate is for programs written against one of these APIs: memory
//! by pointer or handle, buffers, pools, and ops on them. Each API is thin, and all share the devices, command streams
//! and memory pools of the engine's tensors.
//!
//! | module | project | API |
//! |---|---|---|
//! | [`minitensor`] | minitensor-engine | `MetalBackend`, `MetalOps`: device buffers and pointers into shared memory |
//! | [`torchless`] | torchless | `init_backend`, `KernelBackend`: the ops of a transformer; `MetalTensor`, `MetalKVCache`, `MetalMemoryPool` |
//! | [`numrs`] | numrs | array functions, on the backend that measured fastest |
//! | [`hologram`] | hologram | `Executor`: typed buffers in classes, programs; buffers and pools by handle |
//!
//! [`backend`] holds the types that several of them share. The fifth document, of pydotcompute, describes a Python
//! package, which is not built yet. `docs/systems.md` in the repository lists every feature of the documents and the
//! test that covers it.

pub mod backend;
pub mod hologram;
#[cfg(test)]
mod kernels;
pub mod minitensor;
pub mod numrs;
pub mod torchless;

/// The code of the page about hologram.
#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../../../docs/hologram.md")]
mod hologram_page {}
