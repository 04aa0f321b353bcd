//! Loads a compiled kernel into the process.
//!
//! Function constants are variables that an image initialises on load, so each specialization is a separate load of
//! the same image, from a memory file: no recompilation, and no file on disk that could disappear.
#![expect(unsafe_code, reason = "loads machine code and calls into it")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::compile::{CompiledKernel, HEADER_PREFIX};
use super::group::{OpFn, RegionFn};
use super::plan::SiteKind;
use super::runtime::isolated::loader_lock;
use super::runtime::services::{self, ConstantMismatch, Table};
use super::runtime::signal;
use super::runtime::{
    ConstantTable, FaultKind, Image, Isolation, LaunchFault, LaunchOutput, Log, MappedMemory,
};
use crate::error::{Error, Result};
use crate::msl::{ArgumentKind, Kernel};

/// Flag in the result of `sm_arg_size` for a reference: exactly this many bytes are read.
const REFERENCE_FLAG: u64 = 1 << 63;
/// Flag for a pointer: the kernel decides how many elements it accesses.
const POINTER_FLAG: u64 = 1 << 62;

/// Properties of a kernel parameter, as computed by its image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParameterInfo {
    /// Minimum size of the binding in bytes; 0 for pointers.
    pub(crate) min_bytes: usize,
    /// False if a function constant disables the parameter.
    pub(crate) active: bool,
}

/// Error from loading an image.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The dynamic linker failed, or a symbol is missing.
    Load(String),
    /// The value of a function constant, given by name, has the wrong type.
    Constant(String, String),
    /// The initialisers of the program's constants raised a signal.
    Crash(c_int),
}

/// A loaded kernel, with its parameters in source order.
#[derive(Debug)]
pub(crate) struct LoadedKernel {
    pub(crate) image: Image,
    pub(crate) parameters: Vec<ParameterInfo>,
}

/// Everything needed to load a kernel.
#[derive(Debug)]
pub(crate) struct KernelLoader {
    kernel: String,
    compiled: Arc<CompiledKernel>,
    constants: ConstantTable,
    parameters: usize,
    buffers: Vec<(u32, String)>,
    threadgroup_memories: Vec<(u32, String)>,
}

impl KernelLoader {
    /// Creates the loader of a compiled kernel with values for its function constants.
    pub(crate) fn new(
        kernel: &Kernel,
        compiled: Arc<CompiledKernel>,
        constants: ConstantTable,
    ) -> Self {
        let (mut buffers, mut threadgroup_memories) = (Vec::new(), Vec::new());
        for argument in &kernel.arguments {
            match argument.kind {
                ArgumentKind::Buffer { index } => buffers.push((index, argument.name.clone())),
                ArgumentKind::ThreadgroupMemory { index } => {
                    threadgroup_memories.push((index, argument.name.clone()));
                }
                _ => {}
            }
        }
        Self {
            kernel: kernel.name.clone(),
            compiled,
            constants,
            parameters: kernel.arguments.len(),
            buffers,
            threadgroup_memories,
        }
    }

    /// Loads the kernel into this process and initialises it, which runs code of the user's source.
    pub(crate) fn load(&self) -> Result<LoadedKernel, LoadError> {
        let plan = &self.compiled.plan;
        let library = LibraryHandle::open(&self.compiled.image).map_err(LoadError::Load)?;
        let init = library.symbol(c"sm_init").map_err(LoadError::Load)?;
        let mut crash = None;
        let initialise = || {
            // SAFETY: the IR pass gives every image an `sm_init` of this type.
            let init: unsafe extern "C" fn(*const Table) = unsafe { std::mem::transmute(init) };
            // SAFETY: the table is the one the shim declares; this thread looks constants up in `constants`, and
            // has no deadline that could interrupt a lookup.
            crash = unsafe { signal::attempt(|| init(services::table())) };
        };
        let defined = self
            .constants
            .during(initialise)
            .map_err(constant_mismatch)?;
        if let Some(signal) = crash {
            return Err(LoadError::Crash(signal));
        }
        let parameters = parameters(&library, self.parameters)?;
        let regions: Vec<RegionFn> = functions(&library, c"sm_regions", plan.regions)?
            .into_iter()
            // SAFETY: the IR pass fills the table with functions of this type.
            .map(|pointer| unsafe { std::mem::transmute::<*const c_void, RegionFn>(pointer) })
            .collect();
        let collectives = plan.sites.iter().filter(|s| s.kind == SiteKind::Collective);
        let ops = collectives.map(|site| site.op + 1).max().unwrap_or(0);
        let ops: Vec<OpFn> = functions(&library, c"sm_ops", ops)?
            .into_iter()
            // SAFETY: as above.
            .map(|pointer| unsafe { std::mem::transmute::<*const c_void, OpFn>(pointer) })
            .collect();
        let image = {
            // `Image::new` asks the dynamic linker for the library's segments.
            let _guard = loader_lock();
            // SAFETY: tables and plan come from one run of the IR pass, all symbols are bound, constructors have
            // run, and the image keeps the library loaded.
            unsafe { Image::new(self.kernel.as_str(), regions, ops, plan.clone()) }
        };
        let image = image
            .with_constants(defined)
            .with_buffers(self.buffers.iter().cloned())
            .with_threadgroup_arguments(self.threadgroup_memories.iter().cloned())
            .with_variables(self.compiled.variables.iter().cloned())
            .with_user_files(|file| !file.starts_with(HEADER_PREFIX))
            .keeping(library);
        Ok(LoadedKernel { image, parameters })
    }

    /// Queries the kernel's parameters in a child process, so that no code of the user's source runs in this one.
    pub(crate) fn inspect(
        &self,
        isolation: &Isolation,
        limit: Duration,
    ) -> Result<Vec<ParameterInfo>> {
        let out_of_memory = |error: io::Error| Error::Toolchain {
            message: format!("no memory to inspect kernel `{}`: {error}", self.kernel),
        };
        let answer = MappedMemory::shared(16 * self.parameters.max(1)).map_err(out_of_memory)?;
        let slot = |index: usize| {
            // SAFETY: the mapping has `parameters` pairs of words.
            unsafe { answer.pointer().add(16 * index) }.cast::<[u8; 16]>()
        };
        let outcome = isolation.run(limit, &Log::default(), |_| {
            let ready = self.load().map_err(|error| self.fault(error))?;
            for (index, parameter) in ready.parameters.iter().enumerate() {
                let word = u128::from(parameter.active) << 64 | parameter.min_bytes as u128;
                // SAFETY: inside the mapping.
                unsafe { slot(index).write(word.to_ne_bytes()) };
            }
            // The process exits now; unloading would only run more of the user's code.
            std::mem::forget(ready);
            Ok(LaunchOutput::default())
        });
        outcome.map_err(|fault| self.load_error(&fault))?;
        let read = |index| {
            // SAFETY: as above, and the writing process has exited.
            let word = u128::from_ne_bytes(unsafe { slot(index).read() });
            ParameterInfo {
                min_bytes: word as u64 as usize,
                active: word >> 64 != 0,
            }
        };
        Ok((0..self.parameters).map(read).collect())
    }

    /// Encodes a load error as a fault, which can be passed between processes.
    pub(crate) fn fault(&self, error: LoadError) -> LaunchFault {
        let (kind, detail) = match error {
            LoadError::Load(message) => (FaultKind::Invalid, message),
            LoadError::Constant(name, message) => (
                FaultKind::Invalid,
                format!("{name}{NAME_SEPARATOR}{message}"),
            ),
            LoadError::Crash(signal) => (FaultKind::Died { signal }, String::new()),
        };
        LaunchFault {
            detail,
            ..LaunchFault::new(kind, &self.kernel)
        }
    }

    fn load_error(&self, fault: &LaunchFault) -> Error {
        let error = match (fault.kind, fault.detail.split_once(NAME_SEPARATOR)) {
            (FaultKind::Invalid, Some((name, message))) => {
                LoadError::Constant(name.to_owned(), message.to_owned())
            }
            (FaultKind::Invalid, None) => LoadError::Load(fault.detail.clone()),
            (FaultKind::Died { signal }, _) => LoadError::Crash(signal),
            _ => LoadError::Crash(0),
        };
        error.into_error(&self.kernel)
    }
}

/// Separates a constant's name from the message about it; no name contains it.
const NAME_SEPARATOR: char = '\u{1f}';

fn constant_mismatch(mismatches: Vec<ConstantMismatch>) -> LoadError {
    let describe = |m: &ConstantMismatch| {
        format!(
            "function constant `{}` is of type {}, the given value is of type {}",
            m.name, m.declared, m.given
        )
    };
    let list: Vec<_> = mismatches.iter().map(describe).collect();
    let first = mismatches.into_iter().next();
    LoadError::Constant(first.map_or(String::new(), |m| m.name), list.join("; "))
}

fn parameters(library: &LibraryHandle, count: usize) -> Result<Vec<ParameterInfo>, LoadError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let size = library.symbol(c"sm_arg_size").map_err(LoadError::Load)?;
    let gate = library.symbol(c"sm_gate").map_err(LoadError::Load)?;
    // SAFETY: the glue code gives every kernel an `sm_arg_size` of this type.
    let size: unsafe extern "C" fn(u32) -> u64 = unsafe { std::mem::transmute(size) };
    // SAFETY: the glue code gives every kernel an `sm_gate` of this type.
    let gate: unsafe extern "C" fn(u32) -> bool = unsafe { std::mem::transmute(gate) };
    let parameter = |index: usize| {
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        // SAFETY: the glue code has one case per parameter of the kernel, in order.
        let size = unsafe { size(number) };
        let bytes = size & !(REFERENCE_FLAG | POINTER_FLAG);
        ParameterInfo {
            min_bytes: if size & REFERENCE_FLAG != 0 {
                usize::try_from(bytes).unwrap_or(usize::MAX)
            } else {
                0
            },
            // SAFETY: it reads function constants, which are initialised.
            active: unsafe { gate(number) },
        }
    };
    Ok((0..count).map(parameter).collect())
}

/// Reads the first `count` entries of a function table.
fn functions(
    library: &LibraryHandle,
    table: &CStr,
    count: u32,
) -> Result<Vec<*const c_void>, LoadError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let table = library.symbol(table).map_err(LoadError::Load)?;
    let table = table.cast::<*const c_void>();
    (0..count as usize)
        .map(|index| {
            // SAFETY: the plan, which belongs to the image, has the number of entries.
            let pointer = unsafe { table.add(index).read_unaligned() };
            if pointer.is_null() {
                return Err(LoadError::Load(format!(
                    "entry {index} of a table is empty"
                )));
            }
            Ok(pointer)
        })
        .collect()
}

/// A shared library loaded by the dynamic linker.
#[derive(Debug)]
struct LibraryHandle(*mut c_void);

// SAFETY: the handle is opaque; the dynamic linker does its own locking.
unsafe impl Send for LibraryHandle {}
// SAFETY: as above.
unsafe impl Sync for LibraryHandle {}

impl LibraryHandle {
    fn open(image: &[u8]) -> Result<Self, String> {
        let file = memory_file(image).map_err(|error| format!("no memory file: {error}"))?;
        let path = unique_path(file.as_raw_fd());
        let _guard = loader_lock();
        // Bind everything now: lazy binding would take the linker's locks in code that may be interrupted.
        // SAFETY: the image has no constructors, so loading runs no foreign code.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(last_error());
        }
        Ok(Self(handle))
    }

    fn symbol(&self, name: &CStr) -> Result<*const c_void, String> {
        // SAFETY: the handle is open, the name a C string.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if address.is_null() {
            return Err(format!("the image has no `{}`", name.to_string_lossy()));
        }
        Ok(address.cast_const())
    }
}

impl Drop for LibraryHandle {
    fn drop(&mut self) {
        let _guard = loader_lock();
        // SAFETY: opened once, closed once; images keep their handle alive.
        unsafe { libc::dlclose(self.0) };
    }
}

fn memory_file(bytes: &[u8]) -> io::Result<File> {
    const EXECUTABLE: libc::c_uint = 0x10;
    let create = |flags: libc::c_uint| {
        // SAFETY: the name is a C string; the result is checked.
        unsafe { libc::memfd_create(c"bessemer-kernel".as_ptr(), flags) }
    };
    // Since 6.3, Linux may be configured to reject memory files that are not marked executable; older versions do
    // not know the flag.
    let mut fd: c_int = create(libc::MFD_CLOEXEC | EXECUTABLE);
    if fd < 0 {
        fd = create(libc::MFD_CLOEXEC);
    }
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor just created, with no other owner.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(bytes)?;
    Ok(file)
}

/// Returns a path to a descriptor that was never used before.
///
/// The dynamic linker identifies libraries by name, and descriptor numbers are reused. Empty and `.` components
/// make the names differ without changing the file.
fn unique_path(fd: c_int) -> CString {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut path = "/proc/self/fd".to_owned();
    for bit in 0..u32::BITS {
        path.push_str(if number >> bit & 1 == 0 { "/." } else { "//." });
    }
    path.push_str(&format!("/{fd}"));
    CString::new(path).expect("no zero among digits, dots and slashes")
}

fn last_error() -> String {
    // SAFETY: the text belongs to this thread until its next call into the dynamic linker.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "the dynamic linker gives no reason".to_owned();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

impl LoadError {
    /// Converts to an error about a kernel.
    pub(crate) fn into_error(self, kernel: &str) -> Error {
        match self {
            Self::Load(message) => Error::Toolchain {
                message: format!("the compiled kernel `{kernel}` cannot be loaded: {message}"),
            },
            Self::Constant(argument, message) => Error::Binding {
                kernel: kernel.to_owned(),
                argument,
                message,
            },
            Self::Crash(signal) => Error::Execution {
                fault: match signal {
                    libc::SIGFPE => crate::error::Fault::DivisionByZero,
                    libc::SIGSEGV | libc::SIGBUS => crate::error::Fault::PageFault,
                    _ => crate::error::Fault::Crash,
                },
                kernel: Some(kernel.to_owned()),
                message: "the program's constants cannot be initialised".to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_a_shared_library_are_rejected() {
        assert!(LibraryHandle::open(b"not an ELF file").is_err());
        assert!(LibraryHandle::open(b"").is_err());
    }

    #[test]
    fn paths_never_repeat() {
        let paths: Vec<_> = (0..100).map(|_| unique_path(7)).collect();
        for (index, path) in paths.iter().enumerate() {
            assert!(!paths[..index].contains(path));
            assert!(path.to_str().unwrap().ends_with("/7"));
        }
    }
}
