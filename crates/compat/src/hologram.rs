//! The API of hologram: an executor with typed buffers in classes, ops on them, and programs.
//!
//! ```
//! use bessemer::program::Program;
//! use bessemer_compat::hologram::Executor;
//!
//! let mut executor = Executor::new_auto()?;
//! let a = executor.allocate::<f32>(1000)?;
//! let b = executor.allocate::<f32>(1000)?;
//! executor.write(&a, &[1.5; 1000])?;
//! let double: Program = "
//!     setcc.u64.ge p0, %global, r4    ; r4: the number of elements
//!     bra.p0 @end
//!     mov_imm.u32 r5, 2
//!     shl.u64 r0, %global, r5
//!     ldg.f32 r6, [r1 + r0]           ; r1: the input
//!     add.f32 r6, r6, r6
//!     stg.f32 [r2 + r0], r6           ; r2: the output
//! end:
//! "
//! .parse()?;
//! executor.execute_isa_program(&double, &[&a], &b, 1000)?;
//! assert_eq!(executor.read(&b)?, [3.0; 1000]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod executor;
mod memory;
mod metal;
pub mod ops;
mod shaders;

pub use bessemer::program::{
    BlockDim, ExecutionParams, GridDim, LaunchConfig, Program, ProgramError, Register, SharedMemory,
};
pub use executor::{ClassBuffer, Executor};
pub use memory::MetalMemoryManager;
pub use metal::{MetalExecutor, MetalProgram};

pub use crate::backend::{
    Backend, BackendError, BackendError as Error, BufferHandle, CpuBackend, MetalBackend,
    PoolHandle,
};

/// Number of buffer classes of an executor.
pub const CLASSES: usize = 96;

/// Size of a boundary buffer in bytes: 48 pages of 256 bytes.
pub const BOUNDARY_BYTES: usize = 48 * 256;

/// Backend of an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendType {
    /// The CPU.
    Cpu,
    /// The system's Metal GPU.
    Metal,
    /// The software Metal device.
    Software,
    /// CUDA: unsupported, always an error.
    Cuda,
}
