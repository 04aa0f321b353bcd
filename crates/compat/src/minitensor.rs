//! The API of minitensor-engine: buffers, pointers and ops on them.
//!
//! ```
//! use std::sync::Arc;
//!
//! use bessemer_compat::minitensor::{MTLResourceOptions, MetalBackend, MetalOps};
//!
//! # #[cfg(target_os = "linux")] {
//! let backend = Arc::new(MetalBackend::software()?);
//! let ops = MetalOps::new(backend.clone())?;
//! let shared = MTLResourceOptions::StorageModeShared;
//! let a = backend.create_buffer_with_data(&[1.0_f32, 2.0], shared)?;
//! let b = backend.create_buffer_with_data(&[5.0_f32, 6.0], shared)?;
//! let c = backend.create_buffer(8, shared)?;
//! ops.add(&a, &b, &c, 2)?;
//! let mut result = [0.0_f32; 2];
//! backend.copy_buffer_to_host(&c, &mut result)?;
//! assert_eq!(result, [6.0, 8.0]);
//! # }
//! # Ok::<(), bessemer::Error>(())
//! ```

mod ops;

pub use ops::MetalOps;

pub use crate::backend::{Backend, CpuBackend, MTLResourceOptions, MetalBackend, MetalDevice};
