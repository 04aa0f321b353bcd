//! Kernels in MSL on buffers by handle, and programs compiled to MSL: the plan's `MetalExecutor`.
#![expect(
    unsafe_code,
    reason = "compiles kernels of this crate, and those that callers vouch for"
)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use bessemer::Device;
use bessemer::external::ExternalBuffers;
use bessemer::program::{BlockDim, ExecutionParams, GridDim, LaunchConfig, Program};
use bessemer_hal::{self as hal, Access, ArgumentKind, Buffer, CompileOptions, Pipeline, Size};

use super::memory::MetalMemoryManager;
use super::shaders::{self, Shader};
use crate::backend::{BackendError, BufferHandle, ProgramCache, device_error};

/// Maximum number of compiled kernels that an executor keeps.
const MAX_PIPELINES: usize = 256;

/// Lanes of a threadgroup of [`MetalExecutor::gemm`] along each axis.
const GEMM_BLOCK_SIDE: u32 = 16;

/// A kernel in MSL and the buffers that it is launched on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetalProgram {
    /// Name of the kernel function.
    pub name: String,
    /// Text of the library that has it.
    pub metal_source: String,
    /// Buffers, bound in this order from index 0 on.
    pub buffers: Vec<BufferHandle>,
}

impl MetalProgram {
    /// A kernel of the shader files: `vector_add`, `vector_mul` (`math.metal`), `relu`, `sigmoid` (`activation.metal`),
    /// `reduce_sum`, `reduce_min`, `reduce_max` (`reduce.metal`). `None` for any other name.
    pub fn shader(name: &str, buffers: &[BufferHandle]) -> Option<Self> {
        let shader = shaders::by_name(name)?;
        Some(Self {
            name: name.to_owned(),
            metal_source: shader.source.to_owned(),
            buffers: buffers.to_vec(),
        })
    }
}

/// Runs kernels and programs on the buffers of a [`MetalMemoryManager`], and waits for them.
pub struct MetalExecutor {
    device: hal::Device,
    /// The device of programs.
    engine: Device,
    external: ExternalBuffers,
    programs: ProgramCache,
    memory: Arc<RwLock<MetalMemoryManager>>,
    /// Compiled kernels by their function and their text.
    pipelines: Mutex<HashMap<(String, String), Pipeline>>,
}

impl MetalExecutor {
    /// An executor on the system's Metal GPU.
    ///
    /// # Errors
    /// [`BackendError::BackendNotAvailable`], if there is none.
    pub fn new() -> Result<Self, BackendError> {
        let device = Device::metal().map_err(|e| {
            BackendError::BackendNotAvailable(format!("Metal device not found: {e}"))
        })?;
        Self::on(&device)
    }

    /// An executor on any Metal device.
    ///
    /// # Errors
    /// [`BackendError::BackendNotAvailable`] for the CPU.
    pub fn on(device: &Device) -> Result<Self, BackendError> {
        let hal = device.hal().ok_or_else(|| {
            BackendError::BackendNotAvailable(format!("{} is not a Metal device", device.name()))
        })?;
        let mut memory = MetalMemoryManager::new(hal.clone());
        memory.allocate_boundary()?;
        Ok(Self {
            device: hal.clone(),
            engine: device.clone(),
            external: ExternalBuffers::new(device)?,
            programs: ProgramCache::default(),
            memory: Arc::new(RwLock::new(memory)),
            pipelines: Mutex::default(),
        })
    }

    /// Runs a program on the buffers of the memory, and waits for it. Handle 0 is the boundary pool.
    ///
    /// # Errors
    /// Faults of the program with the instruction, and [`BackendError::ProgramError`] for a program that Metal does not have.
    pub fn execute_program(
        &self,
        program: &Program,
        params: &ExecutionParams,
    ) -> Result<(), BackendError> {
        let compiled = self.programs.get(program, &self.engine)?;
        let buffers = self.read_memory().all()?;
        let run = self.external.run_program(&compiled, params, &buffers, &[]);
        Ok(run.outcome?)
    }

    /// The MSL of a program, as a library with one kernel of this name. Its arguments are explained at the beginning.
    ///
    /// # Errors
    /// As [`CompiledProgram::msl_library`](bessemer::program::CompiledProgram::msl_library).
    pub fn metal_source(
        &self,
        program: &Program,
        name: &str,
        params: &ExecutionParams,
    ) -> Result<String, BackendError> {
        let compiled = self.programs.get(program, &self.engine)?;
        Ok(compiled.msl_library(name, params)?)
    }

    /// The memory that kernels work on.
    pub fn memory(&self) -> Arc<RwLock<MetalMemoryManager>> {
        Arc::clone(&self.memory)
    }

    fn read_memory(&self) -> RwLockReadGuard<'_, MetalMemoryManager> {
        self.memory.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The compiled kernel of a program: compiled once for every text, whatever its name.
    ///
    /// # Errors
    /// [`BackendError::Other`] for a text that does not compile; [`BackendError::InvalidOperation`] for a text that is not of the
    /// shader files, on a device where a kernel can do harm: see [`MetalExecutor::execute_metal_program_unchecked`].
    pub fn get_or_compile_shader(&self, program: &MetalProgram) -> Result<Pipeline, BackendError> {
        let is_ours = shaders::of_source(&program.name, &program.metal_source).is_some();
        self.pipeline(&program.name, &program.metal_source, |source, options| {
            if is_ours {
                // SAFETY: the kernels of the shader files stay inside the number of elements that `element_count` and
                // `gemm` compute from the lengths of the buffers; they end, and their lanes write different elements.
                unsafe { self.device.library(source, options) }
            } else {
                self.device.library_contained(source, options)
            }
        })
    }

    fn pipeline(
        &self,
        name: &str,
        source: &str,
        compile: impl FnOnce(&str, &CompileOptions) -> hal::Result<hal::Library>,
    ) -> Result<Pipeline, BackendError> {
        let key = (name.to_owned(), source.to_owned());
        let pipelines = || {
            self.pipelines
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(pipeline) = pipelines().get(&key) {
            return Ok(pipeline.clone());
        }
        let options = CompileOptions::labelled(name);
        let library = compile(source, &options).map_err(|error| match error {
            hal::Error::Unsupported { what, device } => BackendError::InvalidOperation(format!(
                "{device} does not contain {what}; call `execute_metal_program_unchecked`"
            )),
            error => device_error("get_or_compile_shader", error).into(),
        })?;
        let pipeline = library.pipeline(name);
        let pipeline = pipeline.map_err(|e| device_error("get_or_compile_shader", e))?;
        let mut pipelines = pipelines();
        if pipelines.len() >= MAX_PIPELINES {
            pipelines.clear();
        }
        pipelines.insert(key, pipeline.clone());
        Ok(pipeline)
    }

    /// Launches a kernel on `config.grid` threadgroups of `config.block` lanes, and waits for it. Kernels of the shader files
    /// get the number of elements as their last argument: that of their shortest buffer.
    ///
    /// # Errors
    /// Those of [`MetalExecutor::get_or_compile_shader`]; [`BackendError::InvalidBuffer`];
    /// [`BackendError::InvalidLaunchConfig`] for buffers that the kernel does not have; errors of the launch.
    pub fn execute_metal_program(
        &self,
        program: &MetalProgram,
        config: &LaunchConfig,
    ) -> Result<(), BackendError> {
        let pipeline = self.get_or_compile_shader(program)?;
        let buffers = self.buffers(&program.buffers)?;
        let shader = shaders::of_source(&program.name, &program.metal_source);
        let count = shader.map(|shader| shader.element_count(&buffers));
        let count = count
            .transpose()
            .map_err(BackendError::InvalidLaunchConfig)?;
        let arguments = count.map(u32::to_ne_bytes);
        let arguments = arguments.as_ref().map(<[u8; 4]>::as_slice);
        self.launch(&pipeline, &buffers, arguments, config)
    }

    /// As [`MetalExecutor::execute_metal_program`], for kernels of the caller on devices that do not contain them.
    ///
    /// # Safety
    /// The kernel stays inside its buffers, is free of data races, and ends, for the buffers and the grid that it is launched on.
    ///
    /// # Errors
    /// As [`MetalExecutor::execute_metal_program`].
    pub unsafe fn execute_metal_program_unchecked(
        &self,
        program: &MetalProgram,
        config: &LaunchConfig,
    ) -> Result<(), BackendError> {
        if shaders::of_source(&program.name, &program.metal_source).is_some() {
            return self.execute_metal_program(program, config);
        }
        let (name, source) = (&program.name, &program.metal_source);
        // SAFETY: the caller vouches for the kernel.
        let compile = |source: &str, options: &_| unsafe { self.device.library(source, options) };
        let pipeline = self.pipeline(name, source, compile)?;
        self.launch(&pipeline, &self.buffers(&program.buffers)?, None, config)
    }

    /// Matrix multiplication `c = a·b` by `linalg.metal`, of `m` by `k` and `k` by `n`. The order of the sizes is `m, n, k`.
    ///
    /// # Errors
    /// [`BackendError::InvalidBuffer`]; [`BackendError::InvalidLaunchConfig`] for buffers that are too short, and for a result
    /// in an input.
    pub fn gemm(
        &self,
        [a, b, c]: [BufferHandle; 3],
        [m, n, k]: [u32; 3],
    ) -> Result<(), BackendError> {
        let buffers = self.buffers(&[a, b, c])?;
        for (buffer, rows, cols) in [(0, m, k), (1, k, n), (2, m, n)] {
            let bytes = u128::from(rows) * u128::from(cols) * size_of::<f32>() as u128;
            let length = buffers[buffer].length();
            // Indices are 32 bits wide.
            if bytes > length as u128 || bytes > u128::from(u32::MAX) {
                return Err(BackendError::InvalidLaunchConfig(format!(
                    "gemm: a matrix of {rows} by {cols} does not fit {length} bytes"
                )));
            }
        }
        if c == a || c == b {
            let reason = "gemm: the result is in an input".to_owned();
            return Err(BackendError::InvalidLaunchConfig(reason));
        }
        if m == 0 || n == 0 {
            return Ok(());
        }
        let Shader { name, source, .. } = shaders::GEMM;
        let pipeline = self.get_or_compile_shader(&MetalProgram {
            name: name.to_owned(),
            metal_source: source.to_owned(),
            buffers: Vec::new(),
        })?;
        let side = GEMM_BLOCK_SIDE;
        let config = LaunchConfig {
            grid: GridDim {
                x: n.div_ceil(side),
                y: m.div_ceil(side),
                z: 1,
            },
            block: BlockDim {
                x: side,
                y: side,
                z: 1,
            },
            ..LaunchConfig::linear(1, 1)
        };
        // `uint3` has the size of `uint4`.
        let sizes = [m, n, k, 0].map(u32::to_ne_bytes).concat();
        self.launch(&pipeline, &buffers, Some(&sizes), &config)
    }

    fn buffers(&self, handles: &[BufferHandle]) -> Result<Vec<Buffer>, BackendError> {
        let memory = self.read_memory();
        let buffer = |&handle| memory.get_buffer(handle).cloned();
        handles.iter().map(buffer).collect()
    }

    /// Launches a kernel on buffers, and on bytes behind them.
    fn launch(
        &self,
        pipeline: &Pipeline,
        buffers: &[Buffer],
        bytes: Option<&[u8]>,
        config: &LaunchConfig,
    ) -> Result<(), BackendError> {
        config.validate()?;
        let op = "execute_metal_program";
        let size = |x: u32, y: u32, z: u32| Size::new(x as usize, y as usize, z as usize);
        let LaunchConfig { grid, block, .. } = *config;
        let mut commands = self.device.commands();
        let mut dispatch = commands.dispatch(pipeline);
        for (index, buffer) in (0..).zip(buffers) {
            dispatch = dispatch.bind(index, buffer, access(pipeline, index));
        }
        if let Some(bytes) = bytes {
            dispatch = dispatch.set_bytes(buffers.len() as u32, bytes);
        }
        if config.shared_memory.size_bytes > 0 {
            dispatch = dispatch.threadgroup_memory(0, config.shared_memory.size_bytes);
        }
        dispatch
            .threadgroups(
                size(grid.x, grid.y, grid.z),
                size(block.x, block.y, block.z),
            )
            .and_then(|()| commands.commit()?.wait())
            .map(drop)
            .map_err(|e| device_error(op, e).into())
    }
}

/// The kernel's access to a buffer, if it is known.
fn access(pipeline: &Pipeline, index: u32) -> Access {
    let arguments = pipeline.arguments();
    let argument = arguments
        .iter()
        .find(|a| a.kind == ArgumentKind::Buffer(index));
    argument.map_or(Access::ReadWrite, |a| a.access)
}

impl std::fmt::Debug for MetalExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MetalExecutor({})", self.device.name())
    }
}
