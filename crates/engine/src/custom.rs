//! Custom kernels on tensors, written in Metal Shading Language or as programs.
//!
//! A [`ProgramKernel`] is a [`Program`](crate::program::Program) in the typed instruction set, for every device. A [`MetalKernel`] is a kernel's text with the names of its arguments. [`MetalKernel::call`] makes a [`KernelCall`] with
//! tensors, scalars and a grid, and [`KernelCall::run`] records it: the results are lazy tensors like those of any op, with
//! the same barriers, pooled memory and error reporting.
//!
//! ```
//! use bessemer::custom::MetalKernel;
//! use bessemer::{DType, Device, Tensor};
//!
//! # #[cfg(target_os = "linux")] {
//! let axpy = MetalKernel::body("axpy", "out[i] = a * x[i] + y[i];")
//!     .input("x")
//!     .input("y")
//!     .output("out")
//!     .scalar("a", DType::F32)
//!     .index("i")
//!     .build()?;
//!
//! let device = Device::metal().or_else(|_| Device::software())?;
//! let x = Tensor::linspace(0.0, 3.0, 4, DType::F32).to(&device);
//! let call = axpy.call(&[&x, &(&x * 10.0)]).scalar("a", 2.0).threads(4);
//! // SAFETY: there are four threads, and each accesses the element with its index, which all three tensors have.
//! let call = unsafe { call.trust() };
//! assert_eq!(call.run()?.to_vec::<f32>()?, [0.0, 12.0, 24.0, 36.0]);
//! # }
//! # Ok::<(), bessemer::Error>(())
//! ```
//!
//! # Two forms
//!
//! [`MetalKernel::body`] takes the body of a kernel and generates the signature around it. The page `docs/custom-kernels.md`
//! teaches it with three kernels. Besides the declared arguments, a body can name
//!
//! | name | value |
//! |---|---|
//! | `x_shape` | `constant uint*`: the length of each axis of tensor `x` |
//! | `x_ndim`, `x_size` | `uint`: number of axes, number of elements |
//! | `x_strides` | `constant long*`: the stride of each axis in elements; `x` may have any layout then |
//! | `x_t` | the element type of `x` |
//! | `thread_position_in_grid`, … | Metal's position attributes, `uint3` for those with dimensions, otherwise `uint` |
//!
//! and gets an argument only for those that it names. [`MetalKernel::source`] takes a whole `.metal` source and the name of a
//! kernel in it; arguments are bound by the names in its signature.
//!
//! Inputs are row-major and contiguous; others are copied first, unless the body names their strides.
//!
//! # Safety
//!
//! A kernel can write anywhere. A call runs on a device that contains kernels, which is the software device in isolated mode,
//! or after an unsafe promise that it stays inside its arguments ([`KernelCall::trust`]). [`KernelCall::check`] runs any call
//! on the software device in check mode, and reports races and accesses out of bounds by the line of the kernel.
//!
//! # Errors
//!
//! Wrong numbers of arguments, names, dtypes, values, grids beyond the limits and text that does not compile are errors of
//! [`KernelCall::run`], before anything is recorded. Faults while the kernel runs are errors of reading its results, and the
//! device stays usable.

mod call;
mod check;
mod definition;
mod grid;
mod launch;
mod program;
mod signature;
mod whole_source;

pub use bessemer_hal::{Report, ReportKind, Size};
pub use call::{KernelCall, Timing};
pub use definition::{MetalKernel, MetalKernelBuilder};
pub(crate) use launch::{BoundTensor, CustomLaunch, CustomOp, CustomOutput};
pub(crate) use program::ProgramLaunch;
pub use program::{ProgramCall, ProgramKernel};

#[cfg(all(doctest, target_os = "linux"))]
#[doc = include_str!("../../../docs/custom-kernels.md")]
mod page {}
