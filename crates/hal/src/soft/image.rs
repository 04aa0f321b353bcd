//! A compiled kernel in the process.
//!
//! Function constants are variables that an image initialises when it is loaded, so every set of values is a load
//! of its own, from a file in memory: no compilation, and nothing on disk that could disappear.
#![expect(unsafe_code, reason = "loads machine code and calls into it")]

use super::compile::Compiled;
use super::group::{OpFn, RegionFn};
use super::runtime::services::{self, ConstantMismatch, Table};
use super::runtime::{self, ConstantTable};
use crate::error::{Error, Result};
use std::ffi::{CStr, CString, c_int, c_void};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Set in `sm_arg_sizes` for a reference: so many bytes must be bound.
const REFERENCE: u64 = 1 << 63;
/// Set for a pointer: the kernel decides how many elements it touches.
const POINTER: u64 = 1 << 62;

/// What an image says about one parameter of its kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// Bytes that must be bound; 0 where the kernel decides.
    pub(crate) min_bytes: usize,
    /// False when a function constant switches the parameter off.
    pub(crate) active: bool,
}

/// Why an image could not be made ready.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The loader said no, or a symbol is missing.
    Load(String),
    /// A function constant has a value of another type.
    Constants(Vec<ConstantMismatch>),
}

/// A kernel ready to run, with its parameters in the order of the source.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) image: runtime::Image,
    pub(crate) parameters: Vec<Parameter>,
}

/// Loads a kernel with these function constants.
pub(crate) fn load(
    name: &str,
    compiled: &Compiled,
    parameters: usize,
    constants: &ConstantTable,
) -> Result<Ready, Refusal> {
    let library = Arc::new(Handle::open(&compiled.image).map_err(Refusal::Load)?);
    let init = library.symbol(c"sm_init").map_err(Refusal::Load)?;
    let defined = constants
        .during(|| {
            // SAFETY: the IR pass gives every image an `sm_init` of this type.
            let init: unsafe extern "C" fn(*const Table) = unsafe { std::mem::transmute(init) };
            // SAFETY: the table is the one the shim declares; this thread looks constants up in `constants`.
            unsafe { init(services::table()) };
        })
        .map_err(Refusal::Constants)?;
    let described = describe(&library, parameters)?;
    let regions: Vec<RegionFn> = functions(&library, c"sm_regions", compiled.plan.regions)?
        .into_iter()
        // SAFETY: the IR pass fills the table with functions of this type.
        .map(|pointer| unsafe { std::mem::transmute::<*const c_void, RegionFn>(pointer) })
        .collect();
    let sites = &compiled.plan.sites;
    let ops = sites
        .iter()
        .filter(|site| site.kind == super::plan::SiteKind::Collective)
        .map(|site| site.op + 1)
        .max()
        .unwrap_or(0);
    let ops: Vec<OpFn> = functions(&library, c"sm_ops", ops)?
        .into_iter()
        // SAFETY: as above.
        .map(|pointer| unsafe { std::mem::transmute::<*const c_void, OpFn>(pointer) })
        .collect();
    // SAFETY: tables and plan come from one run of the IR pass, all symbols are bound, constructors have run, and
    // the image keeps the library.
    let image = unsafe { runtime::Image::new(name, regions, ops, compiled.plan.clone()) }
        .with_constants(defined)
        .keeping(library);
    Ok(Ready {
        image,
        parameters: described,
    })
}

fn describe(library: &Handle, count: usize) -> Result<Vec<Parameter>, Refusal> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let sizes = library.symbol(c"sm_arg_sizes").map_err(Refusal::Load)?;
    let gate = library.symbol(c"sm_gate").map_err(Refusal::Load)?;
    // SAFETY: the glue gives every kernel an `sm_gate` of this type.
    let gate: unsafe extern "C" fn(u32) -> bool = unsafe { std::mem::transmute(gate) };
    let sizes = sizes.cast::<u64>();
    let parameter = |index: usize| {
        // SAFETY: the glue makes one entry for each parameter of the kernel, in order, and aligns them.
        let size = unsafe { sizes.add(index).read_unaligned() };
        let bytes = size & !(REFERENCE | POINTER);
        Parameter {
            min_bytes: if size & REFERENCE != 0 {
                usize::try_from(bytes).unwrap_or(usize::MAX)
            } else {
                0
            },
            // SAFETY: it reads function constants, which are initialised.
            active: unsafe { gate(u32::try_from(index).unwrap_or(u32::MAX)) },
        }
    };
    Ok((0..count).map(parameter).collect())
}

/// The first `count` entries of a table of functions.
fn functions(library: &Handle, table: &CStr, count: u32) -> Result<Vec<*const c_void>, Refusal> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let table = library.symbol(table).map_err(Refusal::Load)?;
    let table = table.cast::<*const c_void>();
    (0..count as usize)
        .map(|index| {
            // SAFETY: the plan, which belongs to the image, says how many entries there are.
            let pointer = unsafe { table.add(index).read_unaligned() };
            if pointer.is_null() {
                return Err(Refusal::Load(format!("entry {index} of a table is empty")));
            }
            Ok(pointer)
        })
        .collect()
}

/// A library that the dynamic linker has loaded.
#[derive(Debug)]
struct Handle(*mut c_void);

// SAFETY: the handle is a token; the loader does its own locking.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    fn open(image: &[u8]) -> Result<Self, String> {
        let file = memory_file(image).map_err(|error| format!("no memory file: {error}"))?;
        let path = unique_path(file.as_raw_fd());
        // Everything is bound now: lazy binding would take the loader's locks in code that may be interrupted.
        // SAFETY: the image has no constructors of its own, so loading runs no foreign code.
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

impl Drop for Handle {
    fn drop(&mut self) {
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
    // Kernels since 6.3 may be set up to refuse memory files whose makers do not say that they contain code; older
    // ones do not know the flag.
    let mut fd: c_int = create(libc::MFD_CLOEXEC | EXECUTABLE);
    if fd < 0 {
        fd = create(libc::MFD_CLOEXEC);
    }
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor just made, owned by nobody else.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(bytes)?;
    Ok(file)
}

/// A path to a descriptor that has never been used before.
///
/// The loader takes equal names for equal libraries, and descriptor numbers are used again. Empty and `.` path
/// components lead nowhere else, but make names differ.
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
    // SAFETY: the text belongs to this thread until its next call into the loader.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "the loader gives no reason".to_owned();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

impl Refusal {
    /// The refusal as an error about a kernel.
    pub(crate) fn into_error(self, kernel: &str) -> Error {
        match self {
            Self::Load(message) => Error::Toolchain {
                message: format!("the compiled kernel `{kernel}` cannot be loaded: {message}"),
            },
            Self::Constants(mismatches) => {
                let list: Vec<_> = mismatches
                    .iter()
                    .map(|m| {
                        format!(
                            "function constant `{}` is of type {}, the value given is of type {}",
                            m.name, m.declared, m.given
                        )
                    })
                    .collect();
                Error::Binding {
                    kernel: kernel.to_owned(),
                    argument: mismatches.first().map_or(String::new(), |m| m.name.clone()),
                    message: list.join("; "),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_library_is_refused_with_the_loaders_words() {
        assert!(Handle::open(b"no machine code").is_err());
        assert!(Handle::open(b"").is_err());
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
