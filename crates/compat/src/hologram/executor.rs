//! Executors: typed buffers in classes, ops on them, and programs.

use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, RwLock};

use bessemer::program::{ExecutionParams, LaunchConfig, Program, Register};
use bessemer::{DType, Device, Element, Error, Result, Shape, Tensor};

use super::{BOUNDARY_BYTES, BackendType, CLASSES};
use crate::backend::{Backend, BackendError, BufferHandle, CpuBackend, MetalBackend};

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

    /// Handle of the buffer, for programs.
    pub fn handle(&self) -> BufferHandle {
        self.handle
    }
}

/// Runs ops and programs on buffers of a backend. Each buffer occupies one of [`CLASSES`] classes until it is freed.
pub struct Executor {
    backend: Arc<RwLock<Box<dyn Backend>>>,
    buffer_mappings: [Option<BufferHandle>; CLASSES],
    is_boundary_pool: [bool; CLASSES],
    fallback_reason: Option<String>,
}

/// Lanes of a block of [`Executor::execute_isa_program`].
const BLOCK_LANES: u32 = 256;

/// Register of the number of elements in [`Executor::execute_isa_program`], unless a buffer has it.
const COUNT_REGISTER: usize = 4;

/// Maximum number of buffers of [`Executor::execute_isa_program`]: the last registers hold the lane's position.
const MAX_PROGRAM_BUFFERS: usize = 250;

impl Executor {
    /// An executor on the CPU.
    ///
    /// # Errors
    /// None: there is always a CPU.
    pub fn new() -> Result<Self, BackendError> {
        Self::new_with_backend(BackendType::Cpu)
    }

    /// An executor on the Metal GPU if there is one, otherwise on the CPU: [`Executor::fallback_reason`] says why.
    ///
    /// # Errors
    /// None: there is always a CPU.
    pub fn new_auto() -> Result<Self, BackendError> {
        Self::new_with_backend(BackendType::Metal).or_else(|reason| {
            let mut executor = Self::new()?;
            executor.fallback_reason = Some(reason.to_string());
            Ok(executor)
        })
    }

    /// An executor on a backend.
    ///
    /// # Errors
    /// [`BackendError::BackendNotAvailable`], if there is no such device; [`BackendError::InvalidOperation`] for CUDA, and for
    /// Metal without the feature `metal`.
    pub fn new_with_backend(backend: BackendType) -> Result<Self, BackendError> {
        let backend: Box<dyn Backend> = match backend {
            BackendType::Cpu => Box::new(CpuBackend::new()),
            BackendType::Metal => Box::new(metal(cfg!(feature = "metal"))?),
            BackendType::Software => Box::new(MetalBackend::software()?),
            BackendType::Cuda => {
                return Err(BackendError::InvalidOperation(
                    "CUDA backend not yet implemented; use cpu, metal or software".to_owned(),
                ));
            }
        };
        Ok(Self {
            backend: Arc::new(RwLock::new(backend)),
            buffer_mappings: [None; CLASSES],
            is_boundary_pool: [false; CLASSES],
            fallback_reason: None,
        })
    }

    /// Why [`Executor::new_auto`] chose the CPU; `None` for an executor that has what was asked for.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    /// Runs a program and waits for it. Handles of buffers are `ClassBuffer::handle`.
    ///
    /// # Errors
    /// Faults of the program with the instruction, and [`BackendError::ProgramError`] for a program that the backend refuses;
    /// the executor stays usable.
    pub fn execute_program(
        &self,
        program: &Program,
        config: &LaunchConfig,
    ) -> Result<(), BackendError> {
        self.execute_program_with_params(program, &ExecutionParams::new(*config))
    }

    /// Runs a program with initial registers and waits for it.
    ///
    /// # Errors
    /// As [`Executor::execute_program`].
    pub fn execute_program_with_params(
        &self,
        program: &Program,
        params: &ExecutionParams,
    ) -> Result<(), BackendError> {
        self.with_backend(|b| b.execute_program_with_params(program, params))
    }

    /// Runs a program with a lane for each of `n` elements, in blocks of 256, and waits for it. `r1`, `r2`, … are the handles of
    /// the inputs and, behind them, of the output; `r4`, or the next register behind four buffers and more, is `n`. The last
    /// block may have lanes without an element.
    ///
    /// # Errors
    /// [`BackendError::InvalidLaunchConfig`] for buffers of fewer than `n` elements, otherwise as [`Executor::execute_program`].
    pub fn execute_isa_program<T: Element>(
        &self,
        program: &Program,
        inputs: &[&ClassBuffer<T>],
        output: &ClassBuffer<T>,
        n: usize,
    ) -> Result<(), BackendError> {
        let invalid = |reason: String| Err(BackendError::InvalidLaunchConfig(reason));
        let buffers = || inputs.iter().copied().chain([output]);
        let count = inputs.len() + 1;
        if count > MAX_PROGRAM_BUFFERS {
            return invalid(format!("{count} buffers exceed {MAX_PROGRAM_BUFFERS}"));
        }
        if let Some(short) = buffers().find(|b| b.len < n) {
            return invalid(format!("{n} elements exceed a buffer of {}", short.len));
        }
        let Ok(lanes) = u32::try_from(n) else {
            return invalid(format!("{n} elements exceed a launch of {}", u32::MAX));
        };
        if lanes == 0 {
            return Ok(program.validate()?);
        }
        let mut params = ExecutionParams::new(LaunchConfig::linear(lanes, BLOCK_LANES));
        for (register, buffer) in (1_u8..).zip(buffers()) {
            params = params.with_register(Register(register), buffer.handle.id());
        }
        let register = Register(COUNT_REGISTER.max(count + 1) as u8);
        self.execute_program_with_params(program, &params.with_register(register, u64::from(lanes)))
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

    /// The device of the backend.
    pub(super) fn device(&self) -> Device {
        self.with_backend(|b| b.device().clone())
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

/// The Metal backend, if the feature `metal` is enabled.
fn metal(is_enabled: bool) -> Result<MetalBackend, BackendError> {
    if !is_enabled {
        return Err(BackendError::InvalidOperation(
            "Metal backend not enabled. Compile with --features metal".to_owned(),
        ));
    }
    MetalBackend::new()
        .map_err(|e| BackendError::BackendNotAvailable(format!("Metal device not found: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_feature_the_error_says_how_to_enable_it() {
        let expected = "Metal backend not enabled. Compile with --features metal".to_owned();
        assert_eq!(
            metal(false).unwrap_err(),
            BackendError::InvalidOperation(expected)
        );
    }
}
