//! The API of hologram: an executor with typed buffers in classes, and ops on them.

use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, RwLock};

use bessemer::{DType, Element, Error, Result, Shape, Tensor};

pub use crate::backend::{Backend, BufferHandle, CpuBackend, MetalBackend, PoolHandle};

/// Number of buffer classes of an executor.
pub const CLASSES: usize = 96;

/// Size of a boundary buffer in bytes: 48 pages of 256 bytes.
pub const BOUNDARY_BYTES: usize = 48 * 256;

/// Backend of an executor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BackendType {
    /// The CPU.
    Cpu,
    /// The system's Metal GPU.
    Metal,
    /// The software Metal device.
    Software,
    /// CUDA: unsupported, always an error.
    Cuda,
}

/// A typed buffer of an [`Executor`].
#[derive(Debug)]
pub struct ClassBuffer<T> {
    class: u8,
    handle: BufferHandle,
    len: usize,
    element: PhantomData<T>,
}

impl<T> ClassBuffer<T> {
    /// Class of the buffer.
    pub fn class(&self) -> u8 {
        self.class
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Runs ops on buffers of a backend. Each buffer occupies one of [`CLASSES`] classes until it is freed.
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

    /// An executor on the Metal GPU if there is one, otherwise on the CPU.
    ///
    /// # Errors
    /// None: there is always a CPU.
    pub fn new_auto() -> Result<Self> {
        if MetalBackend::is_available() {
            Self::new_with_backend(BackendType::Metal)
        } else {
            Self::new()
        }
    }

    /// An executor on a backend.
    ///
    /// # Errors
    /// [`Error::Device`], if it is not available; [`Error::Unsupported`] for CUDA.
    pub fn new_with_backend(backend: BackendType) -> Result<Self> {
        let backend: Box<dyn Backend> = match backend {
            BackendType::Cpu => Box::new(CpuBackend::new()),
            BackendType::Metal => Box::new(MetalBackend::new()?),
            BackendType::Software => Box::new(MetalBackend::software()?),
            BackendType::Cuda => {
                return Err(Error::Unsupported {
                    op: "Executor",
                    what: "CUDA is not implemented; use cpu, metal or software".to_owned(),
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

    /// The shared backend.
    pub fn backend(&self) -> Arc<RwLock<Box<dyn Backend>>> {
        Arc::clone(&self.backend)
    }

    fn with_backend<R>(&self, body: impl FnOnce(&dyn Backend) -> R) -> R {
        let backend = self.backend.read().unwrap_or_else(PoisonError::into_inner);
        body(&**backend)
    }

    /// Allocates `len` zeroed elements in the first free class.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], [`Error::Device`], and [`Error::Invalid`] when all classes are in use.
    pub fn allocate<T: Element>(&mut self, len: usize) -> Result<ClassBuffer<T>> {
        self.allocate_in(len, false)
    }

    /// Allocates a boundary buffer of [`BOUNDARY_BYTES`] bytes.
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
            reason: format!("all {CLASSES} classes are in use; free a buffer first"),
        })?;
        let bytes = Shape::new(op, &[len])?.count() * size_of::<T>();
        let handle = self.with_backend(|b| b.allocate_buffer(bytes))?;
        self.buffer_mappings[class] = Some(handle);
        self.is_boundary_pool[class] = boundary;
        Ok(ClassBuffer {
            class: class as u8,
            handle,
            len,
            element: PhantomData,
        })
    }

    /// Returns `true` if a class holds a boundary buffer.
    pub fn is_boundary(&self, class: u8) -> bool {
        let class = usize::from(class);
        class < CLASSES && self.is_boundary_pool[class]
    }

    /// The buffer handle of a class.
    pub fn handle(&self, class: u8) -> Option<BufferHandle> {
        self.buffer_mappings.get(usize::from(class)).copied()?
    }

    /// Frees a buffer and its class.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a buffer of another executor.
    pub fn free<T>(&mut self, buffer: ClassBuffer<T>) -> Result<()> {
        self.with_backend(|b| b.free_buffer(buffer.handle))?;
        let class = usize::from(buffer.class);
        self.buffer_mappings[class] = None;
        self.is_boundary_pool[class] = false;
        Ok(())
    }

    /// Copies elements to the start of a buffer.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a buffer that is too short, or of another executor.
    pub fn write<T: Element>(&self, buffer: &ClassBuffer<T>, values: &[T]) -> Result<()> {
        self.with_backend(|b| b.copy_to_buffer(buffer.handle, bytemuck::cast_slice(values)))
    }

    /// Copies the elements of a buffer to the host.
    ///
    /// # Errors
    /// As [`Executor::write`], and errors of pending writes.
    pub fn read<T: Element>(&self, buffer: &ClassBuffer<T>) -> Result<Vec<T>> {
        self.tensor(buffer)?.to_vec()
    }

    /// A buffer as a tensor.
    ///
    /// # Errors
    /// As [`Executor::write`].
    pub fn tensor<T: Element>(&self, buffer: &ClassBuffer<T>) -> Result<Tensor> {
        let shape = Shape::new("tensor", &[buffer.len])?;
        self.with_backend(|b| b.tensor(buffer.handle, T::DTYPE, shape))
    }

    /// Computes a tensor into the start of a buffer of its type.
    ///
    /// # Errors
    /// As [`Executor::write`], [`Error::WrongType`], and errors of the evaluation.
    pub fn store<T: Element>(&self, buffer: &ClassBuffer<T>, tensor: Tensor) -> Result<()> {
        tensor.check()?;
        if tensor.dtype() != T::DTYPE {
            return Err(Error::WrongType {
                op: "store",
                actual: tensor.dtype(),
                requested: T::DTYPE,
            });
        }
        self.with_backend(|b| b.store(buffer.handle, tensor))
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
    /// As [`Executor::store`].
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

    /// Matrix multiplication `out = a·b`, row-major, of `m` by `k` and `k` by `n`. The order of the sizes is `m, n, k`.
    ///
    /// # Errors
    /// As [`Executor::store`], and [`Error::BadShape`] for buffers that are too short.
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

    /// Element type of a buffer.
    pub fn dtype<T: Element>(&self, _: &ClassBuffer<T>) -> DType {
        T::DTYPE
    }
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let used = self.buffer_mappings.iter().flatten().count();
        let device = self.with_backend(|b| b.device().name().to_owned());
        write!(f, "Executor({device}, {used} of {CLASSES} classes in use)")
    }
}
