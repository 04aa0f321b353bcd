//! Ops on buffers and pointers.

use std::sync::Arc;

use bessemer_hal::{Buffer, BufferSlice};

use super::{MetalBackend, piece};
use crate::{DType, Error, Result, Shape, Tensor};

/// Ops of `f32` on buffers of a [`MetalBackend`], and on memory it has lent by pointer.
///
/// The results are written where the caller says. Lengths are checked against the buffers before anything is
/// launched. Nothing waits: [`MetalBackend::copy_buffer_to_host`] does.
#[derive(Clone, Debug)]
pub struct MetalOps {
    backend: Arc<MetalBackend>,
}

/// The shape of a result that is not of `f32`s one after the other.
fn shape(op: &'static str, dims: &[usize]) -> Result<Shape> {
    Shape::new(op, dims)
}

macro_rules! elementwise {
    ($($(#[$doc:meta])* $name:ident, $pointers:ident($($input:ident),*) $body:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// [`Error::Invalid`] for a buffer of less than `n` numbers, and what the device says.
        pub fn $name(&self, $($input: &Buffer,)* result: &Buffer, n: usize) -> Result<()> {
            let op = stringify!($name);
            let bytes = byte_count(op, n)?;
            $(let $input = piece(op, $input, 0, bytes)?;)*
            let result = piece(op, result, 0, bytes)?;
            let inputs = [$(&$input),*];
            let [$($input),*] = inputs.map(|slice| self.vector(slice, n));
            self.backend.compute($body, &result, &inputs)
        }

        /// As the method of the same name, on memory of [`Backend::allocate`](crate::backends::Backend::allocate).
        ///
        /// # Errors
        /// [`Error::Invalid`] for a pointer that was not allocated here or has less than `n` numbers.
        pub fn $pointers(&self, $($input: *const f32,)* result: *mut f32, n: usize) -> Result<()> {
            let op = stringify!($pointers);
            let bytes = byte_count(op, n)?;
            if n == 0 {
                return Ok(());
            }
            $(let $input = self.pointed(op, $input, bytes)?;)*
            let result = self.pointed(op, result, bytes)?;
            let inputs = [$(&$input),*];
            let [$($input),*] = inputs.map(|slice| self.vector(slice, n));
            self.backend.compute($body, &result, &inputs)
        }
    )*};
}

impl MetalOps {
    /// Ops on a backend. Kernels are compiled as they are used; [`MetalOps::warm_up`] compiles these ahead.
    ///
    /// # Errors
    /// None today; a device may have reasons one day.
    pub fn new(backend: Arc<MetalBackend>) -> Result<Self> {
        Ok(Self { backend })
    }

    /// Compiles the kernels of these ops now, so that the first calls are as quick as the others.
    ///
    /// # Errors
    /// [`Error::Device`]: a kernel does not compile.
    pub fn warm_up(&self) -> Result<()> {
        for name in super::names::OPS {
            super::names::build(&self.backend, name)?;
        }
        Ok(())
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

    /// `result = a·b` of matrices in row-major order: `a` is `m` by `k`, `b` is `k` by `n`, and the result `m`
    /// by `n`. The order of the arguments is `m, n, k`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a buffer that is too short, and what the device says.
    #[expect(
        clippy::too_many_arguments,
        reason = "the order that the documents have"
    )]
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
            piece(op, buffer, 0, shape(op, &dims)?.count() * size_of::<f32>())
        };
        let (a, b) = (slice(a, [m, k])?, slice(b, [k, n])?);
        self.product(&a, &b, &slice(result, [m, n])?, [m, n, k])
    }

    /// As [`MetalOps::matmul`], on memory of [`Backend::allocate`](crate::backends::Backend::allocate).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a pointer that was not allocated here or that has less than the matrix needs.
    #[expect(
        clippy::too_many_arguments,
        reason = "the order that the documents have"
    )]
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
            let bytes = shape(op, &dims)?.count() * size_of::<f32>();
            self.pointed(op, pointer, bytes)
        };
        let (a, b) = (slice(a, [m, k])?, slice(b, [k, n])?);
        self.product(&a, &b, &slice(result, [m, n])?, [m, n, k])
    }

    fn product(
        &self,
        a: &BufferSlice,
        b: &BufferSlice,
        result: &BufferSlice,
        [m, n, k]: [usize; 3],
    ) -> Result<()> {
        let op = "matmul";
        let left = self.backend.view(a, DType::F32, shape(op, &[m, k])?);
        let right = self.backend.view(b, DType::F32, shape(op, &[k, n])?);
        self.backend.compute(left.matmul(&right), result, &[a, b])
    }

    /// A range as `n` numbers, whose bytes were counted before.
    fn vector(&self, slice: &BufferSlice, n: usize) -> Tensor {
        Tensor::attempt(|| {
            let shape = shape("vector", &[n])?;
            Ok(self.backend.view(slice, DType::F32, shape))
        })
    }

    fn pointed(&self, op: &'static str, pointer: *const f32, bytes: usize) -> Result<BufferSlice> {
        if !pointer.is_aligned() {
            return Err(Error::Invalid {
                op,
                reason: format!("{pointer:?} is no address of an f32"),
            });
        }
        self.backend.at(op, pointer.cast(), bytes)
    }

    /// The backend.
    pub fn backend(&self) -> &Arc<MetalBackend> {
        &self.backend
    }
}

fn byte_count(op: &'static str, n: usize) -> Result<usize> {
    Ok(shape(op, &[n])?.count() * size_of::<f32>())
}
