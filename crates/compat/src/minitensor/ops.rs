//! Ops on buffers and pointers.

use std::sync::Arc;

use bessemer::{DType, Error, Result, Shape, Tensor};
use bessemer_hal::{Buffer, BufferSlice};

use super::MetalBackend;
use crate::backend::{OPS, slice_of};

/// `f32` ops on buffers of a [`MetalBackend`] and on memory it has allocated by pointer.
///
/// Results are written to the caller's memory. Lengths are checked against the buffers before anything is launched. Ops
/// do not wait; [`MetalBackend::copy_buffer_to_host`] does.
#[derive(Clone, Debug)]
pub struct MetalOps {
    backend: Arc<MetalBackend>,
}

macro_rules! elementwise {
    ($($(#[$doc:meta])* $name:ident, $pointers:ident($($input:ident),*) $body:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// [`Error::Invalid`] for a buffer of fewer than `n` elements, and errors of the device.
        pub fn $name(&self, $($input: &Buffer,)* result: &Buffer, n: usize) -> Result<()> {
            let op = stringify!($name);
            let bytes = byte_count(op, n)?;
            $(let $input = slice_of(op, $input, 0, bytes)?;)*
            let result = slice_of(op, result, 0, bytes)?;
            let inputs = [$(&$input),*];
            let [$($input),*] = inputs.map(|slice| self.vector(slice, n));
            self.backend.external().store($body, &result, &inputs)
        }

        /// As the method of the same name, on memory of [`Backend::allocate`](super::Backend::allocate).
        ///
        /// # Errors
        /// [`Error::Invalid`] for a pointer that was not allocated here, or memory of fewer than `n` elements.
        pub fn $pointers(&self, $($input: *const f32,)* result: *mut f32, n: usize) -> Result<()> {
            let op = stringify!($pointers);
            let bytes = byte_count(op, n)?;
            if n == 0 {
                return Ok(());
            }
            $(let $input = self.slice_at(op, $input, bytes)?;)*
            let result = self.slice_at(op, result, bytes)?;
            let inputs = [$(&$input),*];
            let [$($input),*] = inputs.map(|slice| self.vector(slice, n));
            self.backend.external().store($body, &result, &inputs)
        }
    )*};
}

impl MetalOps {
    /// Ops on a backend. Kernels are compiled on first use; [`MetalOps::warm_up`] compiles them ahead of time.
    ///
    /// # Errors
    /// None at present.
    pub fn new(backend: Arc<MetalBackend>) -> Result<Self> {
        Ok(Self { backend })
    }

    /// Compiles the kernels of these ops now, so that first calls are not slower.
    ///
    /// # Errors
    /// [`Error::Device`]: a kernel does not compile.
    pub fn warm_up(&self) -> Result<()> {
        OPS.iter()
            .try_for_each(|name| crate::backend::build_kernel(&self.backend, name).map(drop))
    }

    elementwise! {
        /// `result = a + b`
        add, add_ptr(a, b) a + b;
        /// `result = a * b`
        mul, mul_ptr(a, b) a * b;
        /// `result = max(a, 0)`
        relu, relu_ptr(a) a.relu();
        /// `result = 1 / (1 + exp(-a))`
        sigmoid, sigmoid_ptr(a) a.sigmoid();
    }

    /// Matrix multiplication, row-major: `a` is `m` by `k`, `b` is `k` by `n`, and `result` is `m` by `n`. The order of the
    /// arguments is `m, n, k`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a buffer that is too short, and errors of the device.
    pub fn matmul(
        &self,
        a: &Buffer,
        b: &Buffer,
        result: &Buffer,
        m: usize,
        n: usize,
        k: usize,
    ) -> Result<()> {
        let op = "matmul";
        let slice = |buffer: &Buffer, dims: [usize; 2]| {
            slice_of(
                op,
                buffer,
                0,
                Shape::new(op, &dims)?.count() * size_of::<f32>(),
            )
        };
        let (a, b) = (slice(a, [m, k])?, slice(b, [k, n])?);
        self.matmul_slices(&a, &b, &slice(result, [m, n])?, [m, n, k])
    }

    /// As [`MetalOps::matmul`], on memory of [`Backend::allocate`](super::Backend::allocate).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a pointer that was not allocated here, or memory that is too short.
    pub fn matmul_ptr(
        &self,
        a: *const f32,
        b: *const f32,
        result: *mut f32,
        m: usize,
        n: usize,
        k: usize,
    ) -> Result<()> {
        let op = "matmul_ptr";
        let slice = |pointer: *const f32, dims: [usize; 2]| {
            let bytes = Shape::new(op, &dims)?.count() * size_of::<f32>();
            self.slice_at(op, pointer, bytes)
        };
        let (a, b) = (slice(a, [m, k])?, slice(b, [k, n])?);
        self.matmul_slices(&a, &b, &slice(result, [m, n])?, [m, n, k])
    }

    fn matmul_slices(
        &self,
        a: &BufferSlice,
        b: &BufferSlice,
        result: &BufferSlice,
        [m, n, k]: [usize; 3],
    ) -> Result<()> {
        let op = "matmul";
        let buffers = self.backend.external();
        let left = buffers.tensor(a, DType::F32, Shape::new(op, &[m, k])?)?;
        let right = buffers.tensor(b, DType::F32, Shape::new(op, &[k, n])?)?;
        buffers.store(left.matmul(&right), result, &[a, b])
    }

    /// A range as a vector of `n` elements.
    fn vector(&self, slice: &BufferSlice, n: usize) -> Tensor {
        Tensor::attempt(|| {
            let shape = Shape::new("vector", &[n])?;
            self.backend.external().tensor(slice, DType::F32, shape)
        })
    }

    fn slice_at(&self, op: &'static str, pointer: *const f32, bytes: usize) -> Result<BufferSlice> {
        if !pointer.is_aligned() {
            return Err(Error::Invalid {
                op,
                reason: format!("{pointer:?} is not aligned to f32"),
            });
        }
        self.backend.slice_at(op, pointer.cast(), bytes)
    }

    /// The backend.
    pub fn backend(&self) -> &Arc<MetalBackend> {
        &self.backend
    }
}

fn byte_count(op: &'static str, n: usize) -> Result<usize> {
    Ok(Shape::new(op, &[n])?.count() * size_of::<f32>())
}
