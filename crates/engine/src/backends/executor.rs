//! An executor: typed buffers in classes, and ops on them.

use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, RwLock};

use super::metal::MetalBackend;
use super::{Backend, BufferHandle, CpuBackend};
use crate::{DType, Element, Error, Result, Shape, Tensor};

/// Classes of buffers that an executor has.
pub const CLASSES: usize = 96;

/// Bytes of a boundary buffer: 48 pages of 256 bytes.
pub const BOUNDARY_BYTES: usize = 48 * 256;

/// Which backend an executor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendType {
    /// The CPU.
    Cpu,
    /// The system's Metal GPU.
    Metal,
    /// The software Metal device.
    Software,
    /// There is none: an error that says so.
    Cuda,
}

/// A buffer of an [`Executor`]: so many numbers of a type.
#[derive(Debug)]
pub struct ClassBuffer<T> {
    class: u8,
    handle: BufferHandle,
    len: usize,
    element: PhantomData<T>,
}

impl<T> ClassBuffer<T> {
    /// The class it has.
    pub fn class(&self) -> u8 {
        self.class
    }

    /// Numbers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Runs ops on buffers of a backend. Each buffer has one of [`CLASSES`] classes, from when it is allocated
/// until it is freed.
pub struct Executor {
    backend: Arc<RwLock<Box<dyn Backend>>>,
    buffer_mappings: [Option<BufferHandle>; CLASSES],
    is_boundary_pool: [bool; CLASSES],
}

impl Executor {
    /// An executor on the CPU.
    ///
    /// # Errors
    /// None: there is always a CPU.
    pub fn new() -> Result<Self> {
        Self::new_with_backend(BackendType::Cpu)
    }

    /// An executor on the Metal GPU, where there is one, otherwise on the CPU.
    ///
    /// # Errors
    /// None: there is always a CPU.
    pub fn new_auto() -> Result<Self> {
        match MetalBackend::is_available() {
            true => Self::new_with_backend(BackendType::Metal),
            false => Self::new(),
        }
    }

    /// An executor on a backend.
    ///
    /// # Errors
    /// [`Error::Device`] where there is no such device, [`Error::Unsupported`] for CUDA.
    pub fn new_with_backend(backend: BackendType) -> Result<Self> {
        let backend: Box<dyn Backend> = match backend {
            BackendType::Cpu => Box::new(CpuBackend::new()),
            BackendType::Metal => Box::new(MetalBackend::new()?),
            BackendType::Software => Box::new(MetalBackend::software()?),
            BackendType::Cuda => {
                return Err(Error::Unsupported {
                    op: "Executor",
                    what: "CUDA is not implemented; there are cpu, metal and software".to_owned(),
                    device: "any machine".to_owned(),
                });
            }
        };
        Ok(Self {
            backend: Arc::new(RwLock::new(backend)),
            buffer_mappings: [None; CLASSES],
            is_boundary_pool: [false; CLASSES],
        })
    }

    /// The backend, shared.
    pub fn backend(&self) -> Arc<RwLock<Box<dyn Backend>>> {
        Arc::clone(&self.backend)
    }

    fn with<R>(&self, body: impl FnOnce(&dyn Backend) -> R) -> R {
        let backend = self.backend.read().unwrap_or_else(PoisonError::into_inner);
        body(&**backend)
    }

    /// A buffer of `len` zeros, in the first free class.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Device`], and [`Error::Invalid`] when all classes are taken.
    pub fn allocate<T: Element>(&mut self, len: usize) -> Result<ClassBuffer<T>> {
        self.allocate_in(len, false)
    }

    /// A boundary buffer: as many numbers as [`BOUNDARY_BYTES`] hold.
    ///
    /// # Errors
    /// As [`Executor::allocate`].
    pub fn allocate_boundary<T: Element>(&mut self) -> Result<ClassBuffer<T>> {
        self.allocate_in(BOUNDARY_BYTES / size_of::<T>(), true)
    }

    fn allocate_in<T: Element>(&mut self, len: usize, boundary: bool) -> Result<ClassBuffer<T>> {
        let op = "allocate";
        let free = self.buffer_mappings.iter().position(Option::is_none);
        let class = free.ok_or_else(|| Error::Invalid {
            op,
            reason: format!("all {CLASSES} classes are taken; free a buffer first"),
        })?;
        let bytes = Shape::new(op, &[len])?.count() * size_of::<T>();
        let handle = self.with(|b| b.allocate_buffer(bytes))?;
        self.buffer_mappings[class] = Some(handle);
        self.is_boundary_pool[class] = boundary;
        Ok(ClassBuffer {
            class: class as u8,
            handle,
            len,
            element: PhantomData,
        })
    }

    /// Whether a class is a boundary buffer.
    pub fn is_boundary(&self, class: u8) -> bool {
        let class = usize::from(class);
        class < CLASSES && self.is_boundary_pool[class]
    }

    /// The handle of a class.
    pub fn handle(&self, class: u8) -> Option<BufferHandle> {
        self.buffer_mappings.get(usize::from(class)).copied()?
    }

    /// Frees a buffer and its class.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a buffer of another executor.
    pub fn free<T>(&mut self, buffer: ClassBuffer<T>) -> Result<()> {
        self.with(|b| b.free_buffer(buffer.handle))?;
        let class = usize::from(buffer.class);
        self.buffer_mappings[class] = None;
        self.is_boundary_pool[class] = false;
        Ok(())
    }

    /// Copies numbers to the beginning of a buffer.
    ///
    /// # Errors
    /// [`Error::Invalid`]: more than it has, or a buffer of another executor; here and below.
    pub fn write<T: Element>(&self, buffer: &ClassBuffer<T>, values: &[T]) -> Result<()> {
        self.with(|b| b.copy_to_buffer(buffer.handle, bytemuck::cast_slice(values)))
    }

    /// The numbers of a buffer.
    ///
    /// # Errors
    /// As [`Executor::write`], and what the device says of what wrote them.
    pub fn read<T: Element>(&self, buffer: &ClassBuffer<T>) -> Result<Vec<T>> {
        self.tensor(buffer)?.to_vec()
    }

    /// A buffer as a tensor, to compute with.
    ///
    /// # Errors
    /// As [`Executor::write`].
    pub fn tensor<T: Element>(&self, buffer: &ClassBuffer<T>) -> Result<Tensor> {
        let shape = Shape::new("tensor", &[buffer.len])?;
        self.with(|b| b.tensor(buffer.handle, T::DTYPE, shape))
    }

    /// Computes a tensor into the beginning of a buffer of its type.
    ///
    /// # Errors
    /// As [`Executor::write`], [`Error::WrongType`], and what computing gives.
    pub fn store<T: Element>(&self, buffer: &ClassBuffer<T>, tensor: Tensor) -> Result<()> {
        tensor.check()?;
        if tensor.dtype() != T::DTYPE {
            return Err(Error::WrongType {
                op: "store",
                actual: tensor.dtype(),
                requested: T::DTYPE,
            });
        }
        self.with(|b| b.store(buffer.handle, tensor))
    }

    fn binary(
        &self,
        a: &ClassBuffer<f32>,
        b: &ClassBuffer<f32>,
        out: &ClassBuffer<f32>,
        f: impl FnOnce(&Tensor, &Tensor) -> Tensor,
    ) -> Result<()> {
        self.store(out, f(&self.tensor(a)?, &self.tensor(b)?))
    }

    /// `out = a + b`
    ///
    /// # Errors
    /// As [`Executor::store`], as all of these.
    pub fn vector_add(
        &self,
        a: &ClassBuffer<f32>,
        b: &ClassBuffer<f32>,
        out: &ClassBuffer<f32>,
    ) -> Result<()> {
        self.binary(a, b, out, |a, b| a + b)
    }

    /// `out = a * b`
    ///
    /// # Errors
    /// As [`Executor::store`].
    pub fn vector_mul(
        &self,
        a: &ClassBuffer<f32>,
        b: &ClassBuffer<f32>,
        out: &ClassBuffer<f32>,
    ) -> Result<()> {
        self.binary(a, b, out, |a, b| a * b)
    }

    /// `out = max(a, 0)`
    ///
    /// # Errors
    /// As [`Executor::store`].
    pub fn relu(&self, a: &ClassBuffer<f32>, out: &ClassBuffer<f32>) -> Result<()> {
        self.store(out, self.tensor(a)?.relu())
    }

    /// `out = 1 / (1 + exp(-a))`
    ///
    /// # Errors
    /// As [`Executor::store`].
    pub fn sigmoid(&self, a: &ClassBuffer<f32>, out: &ClassBuffer<f32>) -> Result<()> {
        self.store(out, self.tensor(a)?.sigmoid())
    }

    /// `out[0] = Σ a`
    ///
    /// # Errors
    /// As [`Executor::store`].
    pub fn sum(&self, a: &ClassBuffer<f32>, out: &ClassBuffer<f32>) -> Result<()> {
        self.store(out, self.tensor(a)?.sum(&[], false))
    }

    /// `out = a·b` of matrices in row-major order, `m` by `k` and `k` by `n`. The order of the arguments is
    /// `m, n, k`.
    ///
    /// # Errors
    /// As [`Executor::store`], and [`Error::BadShape`] for buffers that do not hold such matrices.
    pub fn gemm(
        &self,
        a: &ClassBuffer<f32>,
        b: &ClassBuffer<f32>,
        out: &ClassBuffer<f32>,
        [m, n, k]: [usize; 3],
    ) -> Result<()> {
        let matrix = |buffer: &ClassBuffer<f32>, dims: [usize; 2]| {
            let count = Shape::new("gemm", &dims)?.count() as isize;
            Ok(self.tensor(buffer)?.slice(0, 0, count, 1).reshape(dims))
        };
        let product: Result<_> = Ok(matrix(a, [m, k])?.matmul(&matrix(b, [k, n])?));
        self.store(out, product?)
    }

    /// The type of a buffer.
    pub fn dtype<T: Element>(&self, _: &ClassBuffer<T>) -> DType {
        T::DTYPE
    }
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let used = self.buffer_mappings.iter().flatten().count();
        let device = self.with(|b| b.device().name().to_owned());
        write!(f, "Executor({device}, {used} of {CLASSES} classes in use)")
    }
}
