//! The contract between the safe front and a driver.
//!
//! The front validates once: lengths, offsets, alignment, device identity, limits, hazards. A driver
//! may rely on all of it and holds no logic that could live in the front.

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
use std::any::Any;
use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Range;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

/// A device as its driver implements it.
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

    /// Compiles a library, or does what must be done before its kernels can be compiled on demand.
    ///
    /// # Errors
    /// `Compile`, `Toolchain`.
    fn compile(&self, source: &str, options: &CompileOptions) -> Result<Arc<dyn Library>>;

    /// Starts a list of commands; the result goes to `completion`, exactly once, from any thread.
    /// Lists of one device execute in the order in which they were submitted.
    ///
    /// # Errors
    /// The list was not accepted; `completion` is then left alone.
    fn submit(&self, list: CommandList, completion: Arc<Completion>) -> Result<()>;

    /// Starts a GPU capture into a file.
    ///
    /// # Errors
    /// `Unsupported` where there is no such tool.
    fn start_capture(&self, path: &Path) -> Result<()>;

    /// Ends the capture.
    fn stop_capture(&self);

    /// Whether kernels of unknown origin can do no harm here: they run in a process of their own, or not at all.
    fn contains_kernels(&self) -> bool {
        false
    }

    /// Keeps the memory of all buffers ready for the device, also while it has no work, until the returned value is
    /// dropped; `None` where that takes no effort or is not possible.
    fn keep_resident(&self) -> Option<Box<dyn Any + Send + Sync>> {
        None
    }

    /// Whether the driver takes [`Command::Product`].
    fn multiplies_matrices(&self) -> bool {
        false
    }

    /// Makes what the library needs to compute a product, which then comes with the command; `None` where it needs
    /// nothing. The front has checked the product as for the command.
    ///
    /// # Errors
    /// `Unsupported` where the library has none of it: nothing then says why.
    fn prepare(&self, _product: &ProductCommand) -> Result<Option<ProductObjects>> {
        Ok(None)
    }
}

/// What fresh memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Zeros.
    Zeroed,
    /// Whatever is cheapest.
    Unspecified,
}

/// What the library of a driver computes a product with.
pub type ProductObjects = Arc<dyn Any + Send + Sync>;

/// The error of a library that has nothing to compute a product with.
pub(crate) fn refused_product(device: &str) -> Error {
    Error::Unsupported {
        what: "this product by the library: it gives no objects for it".to_owned(),
        device: device.to_owned(),
    }
}

/// A driver's buffer.
pub trait Buffer: Debug + Send + Sync + Any {
    /// Where the host sees the bytes: the shared memory, or the host copy of a managed buffer.
    fn contents(&self) -> Option<NonNull<u8>>;
    /// The host has written `range` of a managed buffer.
    fn did_modify_range(&self, range: Range<usize>);
    /// Names the buffer for tools.
    fn set_label(&self, label: &str);
}

/// A driver's library.
pub trait Library: Debug + Send + Sync + Any {
    /// Names of the kernels.
    fn function_names(&self) -> Vec<String>;
    /// All that the source says about its kernels, where the driver reads it from the source.
    fn reflection(&self) -> Option<&Reflection> {
        None
    }
    /// Whether the library takes any name for a kernel, as a device that reads no source does.
    fn accepts_any_name(&self) -> bool {
        false
    }
    /// Checks kernels that exist, without building them, as far as making the library has not done so, and returns
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

/// Memory of the caller's that a buffer stands on, kept alive by `owner`.
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
// whoever made the `HostMemory` gave the device the right to use it from any thread.
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
    /// A product of matrices by the device's own library. The front has checked shapes, ranges and that the result
    /// overlaps no factor; all matrices have elements.
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
        /// Where.
        target: Region,
        /// The byte.
        value: u8,
    },
    /// Brings the device's writes of a managed buffer to its host copy.
    Synchronize {
        /// The buffer.
        buffer: Arc<dyn Buffer>,
    },
    /// What follows sees all that came before.
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
#[derive(Debug)]
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
    /// What it costs, as bytes that could be moved meanwhile; 0 where the caller does not say.
    pub work: u64,
    /// Name for tools.
    pub label: Option<Cow<'static, str>>,
}

/// `result = alpha · left · right + beta · result`; a factor is transposed where it says so.
#[derive(Debug)]
pub struct ProductCommand {
    /// What the elements are.
    pub element: MatrixElement,
    /// The first factor, as it lies in memory.
    pub left: Matrix,
    /// Whether its transpose is meant.
    pub turn_left: bool,
    /// The second factor, as it lies in memory.
    pub right: Matrix,
    /// Whether its transpose is meant.
    pub turn_right: bool,
    /// The result.
    pub result: Matrix,
    /// Multiplies the product.
    pub alpha: f64,
    /// Multiplies what the result holds; with 0 that is not read.
    pub beta: f64,
    /// What [`Device::prepare`] made for it.
    pub objects: Option<ProductObjects>,
}

impl ProductCommand {
    /// Elements that make a sum.
    pub fn depth(&self) -> usize {
        if self.turn_left {
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
    /// Bytes from a row to the next, a multiple of the element's.
    pub row_bytes: usize,
}

/// One argument of a launch.
#[derive(Debug)]
pub struct Binding {
    /// Buffer index in the kernel.
    pub index: u32,
    /// What is bound there.
    pub resource: Resource,
}

/// What can be bound.
#[derive(Debug)]
pub enum Resource {
    /// A range of a buffer.
    Buffer {
        /// The range.
        region: Region,
        /// What the kernel does with it.
        access: Access,
    },
    /// Up to 4 KB passed with the command.
    Bytes(Box<[u8]>),
}

/// Recovers the driver's own type behind one of these traits.
///
/// The front compares device identities before it lets objects meet, so a mismatch cannot be reached.
// Not public API: it panics on objects of another driver.
#[doc(hidden)]
pub fn own<T: Any>(object: &dyn Any) -> &T {
    object
        .downcast_ref()
        .expect("the front checked that the object belongs to this driver")
}
