//! The subset of OpenCL that a comparison needs, loaded at run time if it is installed.
#![expect(unsafe_code, reason = "foreign functions of the OpenCL loader")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

use anyhow::{Context as _, Result, bail};

type Handle = *mut c_void;

/// A kernel argument.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arg<'a> {
    /// A buffer.
    Buffer(&'a Buffer),
    /// A scalar.
    U32(u32),
    /// Local memory of this size in bytes.
    Local(usize),
}

/// A CPU device of OpenCL with a queue.
#[derive(Debug)]
pub(crate) struct Device {
    library: Loader,
    context: Handle,
    queue: Handle,
    device: Handle,
    name: String,
}

/// Memory of an OpenCL device.
#[derive(Debug)]
pub(crate) struct Buffer {
    handle: Handle,
    length: usize,
}

/// A kernel of OpenCL.
#[derive(Debug)]
pub(crate) struct Kernel(Handle);

/// Resolves symbols of libOpenCL.
#[derive(Debug)]
struct Loader(Handle);

impl Loader {
    fn open() -> Option<Self> {
        // SAFETY: a constant, terminated name; loading OpenCL's dispatcher runs no code of ours.
        let handle = unsafe { libc::dlopen(c"libOpenCL.so.1".as_ptr(), libc::RTLD_NOW) };
        (!handle.is_null()).then_some(Self(handle))
    }

    fn symbol(&self, name: &CStr) -> Result<Handle> {
        // SAFETY: the handle is open for as long as `self` lives, the name is terminated.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if symbol.is_null() {
            bail!("libOpenCL lacks {}", name.to_string_lossy());
        }
        Ok(symbol)
    }
}

/// Calls an OpenCL function by name and C signature.
macro_rules! call {
    ($library:expr, $name:literal, fn($($type:ty),* $(,)?) -> $result:ty, $($argument:expr),* $(,)?) => {{
        let symbol = $library.symbol($name)?;
        // SAFETY: the signature is the one the OpenCL headers give for this name, and the arguments are
        // valid for it at each call below: live handles, pointers to live values, or null where allowed.
        unsafe {
            let function: unsafe extern "C" fn($($type),*) -> $result = std::mem::transmute(symbol);
            function($($argument),*)
        }
    }};
}

fn check(code: i32, what: &str) -> Result<()> {
    if code != 0 {
        bail!("OpenCL: {what} failed with code {code}");
    }
    Ok(())
}

const DEVICE_TYPE_CPU: u64 = 2;
const DEVICE_NAME: u32 = 0x102B;
const DRIVER_VERSION: u32 = 0x102D;
const MEM_READ_WRITE: u64 = 1;
const PROGRAM_BUILD_LOG: u32 = 0x1183;

impl Device {
    /// The first CPU device, or `None` if OpenCL or such a device is not installed.
    pub(crate) fn open() -> Result<Option<Self>> {
        let Some(library) = Loader::open() else {
            return Ok(None);
        };
        let mut platforms = [null_mut(); 8];
        let mut count = 0_u32;
        let code = call!(
            library,
            c"clGetPlatformIDs",
            fn(u32, *mut Handle, *mut u32) -> i32,
            8,
            platforms.as_mut_ptr(),
            &raw mut count
        );
        if code != 0 {
            return Ok(None);
        }
        for platform in platforms.into_iter().take(count as usize) {
            let mut device = null_mut();
            let code = call!(
                library,
                c"clGetDeviceIDs",
                fn(Handle, u64, u32, *mut Handle, *mut u32) -> i32,
                platform,
                DEVICE_TYPE_CPU,
                1,
                &raw mut device,
                null_mut()
            );
            if code == 0 {
                return Self::with(library, device).map(Some);
            }
        }
        Ok(None)
    }

    fn with(library: Loader, device: Handle) -> Result<Self> {
        let mut code = 0;
        let context = call!(
            library,
            c"clCreateContext",
            fn(*const isize, u32, *const Handle, Handle, Handle, *mut i32) -> Handle,
            null(),
            1,
            &raw const device,
            null_mut(),
            null_mut(),
            &raw mut code
        );
        check(code, "clCreateContext")?;
        let queue = call!(
            library,
            c"clCreateCommandQueue",
            fn(Handle, Handle, u64, *mut i32) -> Handle,
            context,
            device,
            0,
            &raw mut code
        );
        check(code, "clCreateCommandQueue")?;
        let mut texts = Vec::new();
        for key in [DEVICE_NAME, DRIVER_VERSION] {
            let mut text = [0_u8; 256];
            let code = call!(
                library,
                c"clGetDeviceInfo",
                fn(Handle, u32, usize, *mut u8, *mut usize) -> i32,
                device,
                key,
                text.len() - 1,
                text.as_mut_ptr(),
                null_mut()
            );
            check(code, "clGetDeviceInfo")?;
            let text = CStr::from_bytes_until_nul(&text).context("a device text without end")?;
            texts.push(text.to_string_lossy().into_owned());
        }
        let name = format!("{} (driver {})", texts[0], texts[1]);
        Ok(Self {
            library,
            context,
            queue,
            device,
            name,
        })
    }

    /// Name and driver version.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Compiles a program and returns these kernels.
    pub(crate) fn kernels(&self, source: &str, names: &[&str]) -> Result<Vec<Kernel>> {
        let text = CString::new(source)?;
        let pointer = text.as_ptr();
        let mut code = 0;
        let program = call!(
            self.library,
            c"clCreateProgramWithSource",
            fn(Handle, u32, *const *const c_char, *const usize, *mut i32) -> Handle,
            self.context,
            1,
            &raw const pointer,
            null(),
            &raw mut code
        );
        check(code, "clCreateProgramWithSource")?;
        let code = call!(
            self.library,
            c"clBuildProgram",
            fn(Handle, u32, *const Handle, *const c_char, Handle, Handle) -> i32,
            program,
            1,
            &raw const self.device,
            null(),
            null_mut(),
            null_mut()
        );
        if code != 0 {
            let mut log = vec![0_u8; 1 << 16];
            call!(
                self.library,
                c"clGetProgramBuildInfo",
                fn(Handle, Handle, u32, usize, *mut u8, *mut usize) -> i32,
                program,
                self.device,
                PROGRAM_BUILD_LOG,
                log.len() - 1,
                log.as_mut_ptr(),
                null_mut()
            );
            bail!(
                "OpenCL: the program did not build: {}",
                String::from_utf8_lossy(&log)
            );
        }
        names
            .iter()
            .map(|name| {
                let name = CString::new(*name)?;
                let mut code = 0;
                let kernel = call!(
                    self.library,
                    c"clCreateKernel",
                    fn(Handle, *const c_char, *mut i32) -> Handle,
                    program,
                    name.as_ptr(),
                    &raw mut code
                );
                check(code, "clCreateKernel")?;
                Ok(Kernel(kernel))
            })
            .collect()
    }

    /// A buffer with a copy of `values`.
    pub(crate) fn buffer(&self, values: &[f32]) -> Result<Buffer> {
        let length = size_of_val(values);
        let mut code = 0;
        let handle = call!(
            self.library,
            c"clCreateBuffer",
            fn(Handle, u64, usize, Handle, *mut i32) -> Handle,
            self.context,
            MEM_READ_WRITE,
            length,
            null_mut(),
            &raw mut code
        );
        check(code, "clCreateBuffer")?;
        let code = call!(
            self.library,
            c"clEnqueueWriteBuffer",
            fn(Handle, Handle, u32, usize, usize, *const f32, u32, Handle, Handle) -> i32,
            self.queue,
            handle,
            1,
            0,
            length,
            values.as_ptr(),
            0,
            null_mut(),
            null_mut()
        );
        check(code, "clEnqueueWriteBuffer")?;
        Ok(Buffer { handle, length })
    }

    /// The values of a buffer.
    pub(crate) fn read(&self, buffer: &Buffer) -> Result<Vec<f32>> {
        let mut values = vec![0_f32; buffer.length / size_of::<f32>()];
        let code = call!(
            self.library,
            c"clEnqueueReadBuffer",
            fn(Handle, Handle, u32, usize, usize, *mut f32, u32, Handle, Handle) -> i32,
            self.queue,
            buffer.handle,
            1,
            0,
            buffer.length,
            values.as_mut_ptr(),
            0,
            null_mut(),
            null_mut()
        );
        check(code, "clEnqueueReadBuffer")?;
        Ok(values)
    }

    /// Launches a kernel and waits for it.
    pub(crate) fn run(
        &self,
        kernel: &Kernel,
        args: &[Arg<'_>],
        grid: [usize; 2],
        group: [usize; 2],
    ) -> Result<()> {
        for (index, arg) in (0_u32..).zip(args) {
            let (size, value): (usize, *const c_void) = match arg {
                Arg::Buffer(buffer) => (size_of::<Handle>(), (&raw const buffer.handle).cast()),
                Arg::U32(number) => (4, std::ptr::from_ref(number).cast()),
                Arg::Local(bytes) => (*bytes, null()),
            };
            let code = call!(
                self.library,
                c"clSetKernelArg",
                fn(Handle, u32, usize, *const c_void) -> i32,
                kernel.0,
                index,
                size,
                value
            );
            check(code, "clSetKernelArg")?;
        }
        let code = call!(
            self.library,
            c"clEnqueueNDRangeKernel",
            fn(
                Handle,
                Handle,
                u32,
                *const usize,
                *const usize,
                *const usize,
                u32,
                Handle,
                Handle,
            ) -> i32,
            self.queue,
            kernel.0,
            2,
            null(),
            grid.as_ptr(),
            group.as_ptr(),
            0,
            null_mut(),
            null_mut()
        );
        check(code, "clEnqueueNDRangeKernel")?;
        check(
            call!(self.library, c"clFinish", fn(Handle) -> i32, self.queue),
            "clFinish",
        )
    }
}
