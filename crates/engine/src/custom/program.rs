//! Kernels that are programs in the typed instruction set of [`program`](crate::program), called on tensors.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::CustomOp;
use super::definition::interned;
use crate::device::Placement;
use crate::program::{
    CompiledProgram, DeviceMemory, ExecutionParams, LaunchConfig, Program, ProgramError, Register,
};
use crate::storage::Storage;
use crate::{DType, Device, Error, IntoShape, Result, Shape, Tensor};

/// The register with the number of elements of the result.
const COUNT_REGISTER: Register = Register(4);

/// Lanes of a block unless a call says otherwise.
const DEFAULT_BLOCK_LANES: u32 = 256;

/// A kernel that is a [`Program`], for tensors on any device.
///
/// The tensors of a call and its result are buffers, whose handles are in the registers R1, R2, R3, R5, R6 and so on; R4 has
/// the number of elements of the result. Every access is guarded, so calls need no promise: a fault is a typed error of the
/// result, with the instruction.
///
/// ```
/// use bessemer::Tensor;
/// use bessemer::custom::ProgramKernel;
///
/// let triple = ProgramKernel::new("triple", &"
///         setcc.u64.ge p0, %global, r4
///         bra.p0 @end
///         mov_imm.u32 r5, 2
///         shl.u64 r6, %global, r5      ; the offset of the lane's element in bytes
///         ldg.f32 r7, [r1 + r6]
///         add.f32 r8, r7, r7
///         add.f32 r8, r8, r7
///         stg.f32 [r2 + r6], r8
///     end:
/// ".parse()?)?;
/// let x = Tensor::from_slice(&[1.0_f32, 2.0, 3.0], [3]);
/// assert_eq!(triple.call(&[&x]).run()?.to_vec::<f32>()?, [3.0, 6.0, 9.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ProgramKernel {
    name: &'static str,
    program: Arc<Program>,
    /// The program, compiled for the devices it was called on.
    compiled: Arc<Mutex<Vec<CompiledProgram>>>,
}

/// A call of a [`ProgramKernel`].
#[derive(Clone, Debug)]
#[must_use = "nothing is recorded until `run` is called"]
pub struct ProgramCall {
    kernel: ProgramKernel,
    tensors: Vec<Tensor>,
    shape: Option<Result<Shape>>,
    dtype: Option<DType>,
    lanes: Option<usize>,
    block: u32,
    shared_bytes: usize,
    registers: Vec<(Register, u64)>,
}

/// A validated call as an op of the graph.
pub(crate) struct ProgramLaunch {
    pub(crate) name: &'static str,
    compiled: CompiledProgram,
    params: ExecutionParams,
}

impl ProgramKernel {
    /// A kernel with a name, which is the op in errors and plans.
    ///
    /// # Errors
    /// [`Error::Program`] for a program that is not valid.
    pub fn new(name: &str, program: &Program) -> Result<Self> {
        let name = interned(name);
        let invalid = |e| Error::program(name, e);
        program.validate().map_err(invalid)?;
        Ok(Self {
            name,
            program: Arc::new(program.clone()),
            compiled: Arc::default(),
        })
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A call with these tensors.
    pub fn call(&self, tensors: &[&Tensor]) -> ProgramCall {
        ProgramCall {
            kernel: self.clone(),
            tensors: tensors.iter().map(|&t| t.clone()).collect(),
            shape: None,
            dtype: None,
            lanes: None,
            block: DEFAULT_BLOCK_LANES,
            shared_bytes: 0,
            registers: Vec::new(),
        }
    }

    fn compiled(&self, device: &Device) -> Result<CompiledProgram> {
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = compiled.iter().find(|c| c.device() == device) {
            return Ok(known.clone());
        }
        let new = self
            .program
            .compile(device)
            .map_err(|e| Error::program(self.name, e))?;
        compiled.push(new.clone());
        Ok(new)
    }
}

impl fmt::Debug for ProgramKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProgramKernel({})", self.name)
    }
}

impl ProgramCall {
    /// Sets the shape of the result, which is otherwise that of the first tensor. The result is filled with zeros first.
    pub fn shape(mut self, shape: impl IntoShape) -> Self {
        self.shape = Some(shape.into_shape(self.kernel.name));
        self
    }

    /// Sets the dtype of the result, which is otherwise that of the first tensor.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Sets the number of lanes, which is otherwise that of the result's elements. It is rounded up to whole blocks, so a
    /// program compares its lane with R4.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = Some(lanes);
        self
    }

    /// Sets the number of lanes of a block; 256 unless set.
    pub fn block(mut self, lanes: u32) -> Self {
        self.block = lanes;
        self
    }

    /// Sets the size of the memory that the lanes of a block share.
    pub fn shared_memory(mut self, bytes: usize) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// Sets a register that is neither that of a buffer nor R4.
    pub fn register(mut self, register: Register, value: u64) -> Self {
        self.registers.push((register, value));
        self
    }

    /// Records the call and returns its result.
    ///
    /// # Errors
    /// [`Error::Program`] for a launch beyond the limits and a program that the device refuses, [`Error::Invalid`] for
    /// registers that are taken and a result without shape or dtype, [`Error::BadDType`] for a `bool` result. Faults are
    /// errors of reading the result.
    pub fn run(self) -> Result<Tensor> {
        let op = self.kernel.name;
        let invalid = |reason: String| Error::Invalid { op, reason };
        let failed = |e| Error::program(op, e);
        for tensor in &self.tensors {
            tensor.check()?;
        }
        let first = self.tensors.first();
        let missing = |what: &str| {
            invalid(format!(
                "there is no tensor to take the {what} of the result from; give it with `{what}`"
            ))
        };
        let shape = match self.shape {
            Some(shape) => shape?,
            None => *first.ok_or_else(|| missing("shape"))?.shape(),
        };
        let dtype = match self.dtype.or(first.map(Tensor::dtype)) {
            Some(dtype) => dtype,
            None => return Err(missing("dtype")),
        };
        if dtype == DType::Bool {
            return Err(Error::BadDType {
                op,
                dtype,
                expected: "a program writes bytes, and not all of them are a `bool`; use `u8`",
            });
        }
        let lanes = self.lanes.unwrap_or_else(|| shape.count());
        let lanes = u32::try_from(lanes).map_err(|_| {
            failed(ProgramError::InvalidLaunch(format!(
                "{lanes} lanes are too many"
            )))
        })?;
        let config = LaunchConfig::linear(lanes, self.block).with_shared_memory(self.shared_bytes);
        config.validate().map_err(failed)?;
        let mut params = ExecutionParams::new(config);
        let reserved = 0..=self.tensors.len();
        let reserved: Vec<_> = reserved.map_while(buffer_register).collect();
        if reserved.len() <= self.tensors.len() {
            return Err(invalid(format!(
                "{} tensors are too many",
                self.tensors.len()
            )));
        }
        for (register, value) in self.registers {
            if register == COUNT_REGISTER || reserved.contains(&register) {
                return Err(invalid(format!(
                    "{register} has a buffer or the number of elements; use another register"
                )));
            }
            params = params.with_register(register, value);
        }
        params = params.with_register(COUNT_REGISTER, shape.count() as u64);
        let tensors: Vec<&Tensor> = self.tensors.iter().collect();
        let placement = Placement::of(op, &tensors, dtype, None)?;
        let launch = ProgramLaunch {
            name: op,
            compiled: self.kernel.compiled(&placement.device)?,
            params,
        };
        // Buffers begin at the first element.
        let inputs = self.tensors.iter().map(Tensor::contiguous).collect();
        let op = CustomOp::Program(Arc::new(launch)).into();
        Ok(Tensor::recorded(op, placement, (dtype, shape), inputs))
    }
}

/// The register of a buffer; `None` if there are no more.
fn buffer_register(position: usize) -> Option<Register> {
    let skipped = usize::from(position >= usize::from(COUNT_REGISTER.0) - 1);
    let index = u8::try_from(position + 1 + skipped).ok()?;
    // The last four are the position of a lane.
    (index < 252).then_some(Register(index))
}

impl ProgramLaunch {
    /// Runs the program on evaluated inputs, and waits for it.
    pub(crate) fn compute(
        &self,
        inputs: &[Tensor],
        (dtype, shape): (DType, Shape),
    ) -> Result<Storage> {
        let run = || {
            let mut memory = DeviceMemory::new(self.compiled.device())?;
            let mut params = self.params.clone();
            let mut buffers = (0..).map_while(buffer_register);
            let mut bind = |handle: u64| {
                if let Some(register) = buffers.next() {
                    params.initial_registers.insert(register, handle);
                }
            };
            for input in inputs {
                bind(memory.insert(input)?);
            }
            let result = memory.allocate(shape.count() * dtype.size())?;
            bind(result);
            if shape.count() > 0 || params.launch_config.blocks() > 0 {
                self.compiled.run(&params, &mut memory)?;
            }
            memory.take(result, dtype, shape)
        };
        let result = run().map_err(|e| Error::program(self.name, e))?;
        let storage = result.node.value.get().cloned();
        storage.ok_or_else(|| Error::Invalid {
            op: self.name,
            reason: "the program has no result".to_owned(),
        })
    }
}
