//! The interface between the safe front and a driver.
//!
//! The front validates once: lengths, offsets, alignment, device identity, limits, hazards. A driver
//! relies on all of it and contains no logic that could live in the front.

use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access::Access;
use crate::error::{Error, Result};
use crate::info::DeviceInfo;
use crate::library::{CompileOptions, FunctionConstants};
use crate::matrix::MatrixElement;
use crate::msl::{Diagnostic, Reflection};
use crate::pipeline::PipelineInfo;
use crate::size::Size;
use crate::storage::StorageMode;
use crate::submission::Completion;

/// A driver's device.
pub trait Device: Debug + Send + Sync + Any {
    /// Name, family, limits.
    fn info(&self) -> &DeviceInfo;

    /// Allocates `length` bytes; `length` is within the limits and may be 0.
    ///
    /// # Errors
    /// `OutOfMemory`, `Unsupported` for a storage mode the device does not have.
    fn allocate(
        &self,
        length: usize,
        mode: StorageMode,
        contents: Contents,
    ) -> Result<Arc<dyn Buffer>>;

    /// Makes a shared buffer of the caller's memory without copying it. The front has checked that the
    /// memory is page-aligned and a whole number of pages.
    ///
    /// # Errors
    /// `OutOfMemory`, `Unsupported`.
    fn adopt(&self, memory: HostMemory) -> Result<Arc<dyn Buffer>>;

    /// Compiles a library, or prepares it so that its kernels can be compiled on demand.
    ///
    /// # Errors
    /// `Compile`, `Toolchain`.
    fn compile(&self, source: &str, options: &CompileOptions) -> Result<Arc<dyn Library>>;

    /// Starts a list of commands and stores the result in `completion` exactly once, from any thread.
    /// Lists of one device execute in the order in which they were submitted.
    ///
    /// # Errors
    /// The list was not accepted; `completion` is then unchanged.
    fn submit(&self, list: CommandList, completion: Arc<Completion>) -> Result<()>;

    /// Starts a GPU capture into a file.
    ///
    /// # Errors
    /// `Unsupported` on devices without GPU capture.
    fn start_capture(&self, path: &Path) -> Result<()>;

    /// Ends the capture.
    fn stop_capture(&self);

    /// Returns whether untrusted kernels can do no harm: they run in a separate process, or not at all.
    fn contains_kernels(&self) -> bool {
        false
    }

    /// Keeps the memory of all buffers resident, even while the device is idle, until the returned value is
    /// dropped; `None` if that takes no effort or is not possible.
    fn keep_resident(&self) -> Option<Box<dyn Any + Send + Sync>> {
        None
    }

    /// Returns whether the driver supports [`Command::Product`].
    fn multiplies_matrices(&self) -> bool {
        false
    }

    /// Creates the library's objects for a matrix product, which are then passed with the command; `None` if it needs
    /// none. The front has checked the product as for the command.
    ///
    /// # Errors
    /// `Unsupported` if the library provides no objects; it gives no reason.
    fn prepare(&self, _product: &ProductCommand) -> Result<Option<ProductObjects>> {
        Ok(None)
    }
}

/// Initial contents of allocated memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Zeros.
    Zeroed,
    /// Any bytes: whatever is cheapest.
    Unspecified,
}

/// Objects of a driver's library for computing a matrix product.
pub type ProductObjects = Arc<dyn Any + Send + Sync>;

/// The error of a library that provides no objects for a matrix product.
pub(crate) fn refused_product(device: &str) -> Error {
    Error::Unsupported {
        what: "this matrix product: the library provides no objects for it".to_owned(),
        device: device.to_owned(),
    }
}

/// A driver's buffer.
pub trait Buffer: Debug + Send + Sync + Any {
    /// Host address of the bytes: the shared memory, or the host copy of a managed buffer.
    fn contents(&self) -> Option<NonNull<u8>>;
    /// Announces that the host has written `range` of a managed buffer.
    fn did_modify_range(&self, range: Range<usize>);
    /// Names the buffer for tools.
    fn set_label(&self, label: &str);
}

/// A driver's library.
pub trait Library: Debug + Send + Sync + Any {
    /// Names of the kernels.
    fn function_names(&self) -> Vec<String>;
    /// Reflection of the source, if the driver parses the source.
    fn reflection(&self) -> Option<&Reflection> {
        None
    }
    /// Returns whether any name is accepted as a kernel's, as on a device that does not read the source.
    fn accepts_any_name(&self) -> bool {
        false
    }
    /// Checks existing kernels without building them, beyond what compiling the library has checked, and returns
    /// warnings about them and about the rest of the source.
    ///
    /// # Errors
    /// `Compile`, `Toolchain`.
    fn lint(&self, _names: &[&str]) -> Result<Vec<Diagnostic>> {
        Ok(Vec::new())
    }
    /// Builds a pipeline for a kernel that exists.
    ///
    /// # Errors
    /// `Compile`, `Toolchain`, `Launch` when the kernel alone exceeds a limit.
    fn pipeline(&self, name: &str, constants: &FunctionConstants) -> Result<Arc<dyn Pipeline>>;
}

/// A driver's pipeline.
pub trait Pipeline: Debug + Send + Sync + Any {
    /// Limits and arguments.
    fn info(&self) -> &PipelineInfo;
}

/// The caller's memory behind a buffer, kept alive by `owner`.
#[derive(Debug)]
pub struct HostMemory {
    /// First byte.
    pub pointer: NonNull<u8>,
    /// Bytes.
    pub length: usize,
    /// Dropped when neither the buffer nor any submission uses the memory any more.
    pub owner: Owner,
}

// SAFETY: the pointer is only a description of memory that `owner` (which is Send + Sync) keeps alive;
// the caller that made the `HostMemory` allowed the device to use it from any thread.
#[expect(unsafe_code, reason = "a raw pointer travels with its owner")]
unsafe impl Send for HostMemory {}
// SAFETY: as above; a shared reference gives nothing but the address.
#[expect(unsafe_code, reason = "a raw pointer travels with its owner")]
unsafe impl Sync for HostMemory {}

/// Keeps adopted memory alive.
pub struct Owner(pub Box<dyn Any + Send + Sync>);

impl Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Owner")
    }
}

/// Commands in the order in which they take effect.
#[derive(Debug, Default)]
pub struct CommandList {
    /// Name for tools.
    pub label: Option<Cow<'static, str>>,
    /// The commands. Between two [`Command::Barrier`]s they are independent and may run concurrently.
    pub commands: Vec<Command>,
}

/// One recorded command.
#[derive(Debug)]
#[non_exhaustive]
pub enum Command {
    /// A kernel launch, shared with every other list that it was recorded into.
    Dispatch(Arc<DispatchCommand>),
    /// A matrix product by the device's own library. The front has checked shapes, ranges and that the result
    /// overlaps no factor; no matrix is empty.
    Product(ProductCommand),
    /// A copy between buffers that do not overlap.
    Copy {
        /// From.
        source: Region,
        /// To; as long as `source`.
        target: Region,
    },
    /// Sets every byte of a region.
    Fill {
        /// The region.
        target: Region,
        /// The byte.
        value: u8,
    },
    /// Copies the device's writes of a managed buffer to its host copy.
    Synchronize {
        /// The buffer.
        buffer: Arc<dyn Buffer>,
    },
    /// Commands after it see all writes of commands before it.
    Barrier,
    /// Opens a group of commands for tools.
    PushGroup(String),
    /// Closes it.
    PopGroup,
}

/// A range of a buffer.
#[derive(Debug, Clone)]
pub struct Region {
    /// The buffer.
    pub buffer: Arc<dyn Buffer>,
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub length: usize,
}

/// A kernel launch.
#[derive(Debug, Clone)]
pub struct DispatchCommand {
    /// The kernel.
    pub pipeline: Arc<dyn Pipeline>,
    /// Arguments, each index once.
    pub bindings: Vec<Binding>,
    /// Bytes of host-sized threadgroup memory by index.
    pub threadgroup_memory: Vec<(u32, usize)>,
    /// Threads in the grid; need not be a multiple of `threadgroup`.
    pub grid: Size,
    /// Threads in a threadgroup.
    pub threadgroup: Size,
    /// Cost in bytes that could be moved in the same time; 0 if the caller does not know.
    pub work: u64,
    /// Name for tools.
    pub label: Option<Cow<'static, str>>,
}

/// `result = alpha · left · right + beta · result`, with optionally transposed factors.
#[derive(Debug)]
pub struct ProductCommand {
    /// Element type of all three matrices.
    pub element: MatrixElement,
    /// The first factor, as stored.
    pub left: Matrix,
    /// Whether to multiply by its transpose.
    pub transpose_left: bool,
    /// The second factor, as stored.
    pub right: Matrix,
    /// Whether to multiply by its transpose.
    pub transpose_right: bool,
    /// The result.
    pub result: Matrix,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of the previous contents of the result, which are not read if it is 0.
    pub beta: f64,
    /// The objects from [`Device::prepare`].
    pub objects: Option<ProductObjects>,
}

impl ProductCommand {
    /// Length of the inner dimension.
    pub fn depth(&self) -> usize {
        if self.transpose_left {
            self.left.rows
        } else {
            self.left.columns
        }
    }
}

/// A matrix in a buffer.
#[derive(Debug)]
pub struct Matrix {
    /// From the first element to the last.
    pub region: Region,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Bytes from one row to the next, a multiple of the element size.
    pub row_bytes: usize,
}

/// One argument of a launch.
#[derive(Debug, Clone)]
pub struct Binding {
    /// Buffer index in the kernel.
    pub index: u32,
    /// The bound resource.
    pub resource: Resource,
}

/// A bound resource.
#[derive(Debug, Clone)]
pub enum Resource {
    /// A range of a buffer.
    Buffer {
        /// The range.
        region: Region,
        /// The kernel's access.
        access: Access,
    },
    /// Up to 4 KB passed with the command.
    Bytes(Arc<[u8]>),
}

/// Downcasts one of these traits to the driver's own type.
///
/// The front checks that all objects of a command belong to the same device, so a mismatch cannot be reached.
// Not public API: it panics on objects of another driver.
#[doc(hidden)]
pub fn own<T: Any>(object: &dyn Any) -> &T {
    object
        .downcast_ref()
        .expect("the front checked that the object belongs to this driver")
}
