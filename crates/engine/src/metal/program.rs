//! Programs on Metal: kernels are generated from their structured control flow, and instructions that run once per launch
//! are ops between them.
//!
//! | file | contents |
//! |---|---|
//! | `program/text.rs` | kernels: arguments, control flow, faults, memory |
//! | `program/expression.rs` | expressions for the instructions that only compute |
//! | `program/fault.rs` | the record that a kernel leaves when a lane fails |
//! | `msl/program.h` | the functions that kernels call |

mod expression;
mod fault;
mod text;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bessemer_hal::{BufferSlice, Pipeline, Size};

pub(super) use self::fault::ProgramFault;
use self::text::KernelText;
use super::block::Block;
use super::{Metal, Recorder};
use crate::DType;
use crate::env;
use crate::program::access::Aliases;
use crate::program::device_memory::Space;
use crate::program::known::Origin;
use crate::program::lower::{self, KernelBody, Lowered, Stage};
use crate::program::{
    BlockDim, DeviceMemory, ExecutionParams, Fault, Instruction, Program, ProgramError, Register,
    Result, once,
};

const OP: &str = "program";

/// Number of lanes' steps unless a limit is set.
const STEP_LIMIT: u64 = 1 << 28;

/// Maximum number of buffers that a kernel accesses: Metal binds 31, two of them are ours.
const MAX_BINDINGS: usize = 29;

/// A program that is compiled to MSL.
#[derive(Debug)]
pub(crate) struct MetalProgram {
    program: Program,
    /// The program if no handles are equal.
    lowered: Lowered,
    variants: Mutex<HashMap<VariantKey, Arc<Variant>>>,
}

/// What kernels are generated for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct VariantKey {
    block: BlockDim,
    shared_bytes: usize,
    /// Initial registers with equal handles.
    aliases: Vec<(Register, Origin)>,
}

/// The kernels of launches that have a key.
#[derive(Debug)]
struct Variant {
    lowered: Lowered,
    /// Of the stages that are kernels.
    kernels: Vec<Option<KernelText>>,
}

impl MetalProgram {
    /// Compiles a validated program.
    ///
    /// # Errors
    /// [`ProgramError::Unsupported`] for what Metal does not have, and what no compiler accepts.
    pub(crate) fn new(program: &Program) -> Result<Self> {
        let lowered = lower::lower(program, &Aliases::new())?;
        let new = Self {
            program: program.clone(),
            lowered,
            variants: Mutex::default(),
        };
        for stage in &new.lowered.stages {
            if let Stage::Kernel(body) = stage {
                new.check(body)?;
            }
        }
        Ok(new)
    }

    /// Refuses what Metal does not have.
    fn check(&self, body: &KernelBody) -> Result<()> {
        let unsupported = |index: usize, reason: String| ProgramError::Unsupported {
            index,
            mnemonic: self.program.instructions[index].mnemonic(),
            reason,
        };
        let instructions = body.instructions();
        for &index in &instructions {
            let instruction = &self.program.instructions[index];
            if matches!(instruction, Instruction::ResAccum { .. }) {
                let reason =
                    "Metal has no f64, which resonance is accumulated in; run it on the CPU";
                return Err(unsupported(index, reason.to_owned()));
            }
            let mut has_f64 = false;
            instruction.for_each_operand(|_, operand| {
                has_f64 |= expression::dtype(operand) == Some(DType::F64);
            });
            if has_f64 {
                let reason =
                    "Metal has no f64, and it is never narrowed; use f32, or run it on the CPU";
                return Err(unsupported(index, reason.to_owned()));
            }
        }
        let first = instructions.first().copied().unwrap_or(0);
        if body.bindings.len() > MAX_BINDINGS {
            return Err(unsupported(
                first,
                format!(
                    "the kernel accesses {} buffers, of which Metal binds {MAX_BINDINGS}",
                    body.bindings.len()
                ),
            ));
        }
        Ok(())
    }

    /// The kernels of a launch.
    fn variant(&self, params: &ExecutionParams) -> Result<Arc<Variant>> {
        let aliases = self.aliases(params)?;
        let key = VariantKey {
            block: params.launch_config.block,
            shared_bytes: params.launch_config.shared_memory.size_bytes,
            aliases: aliases.iter().map(|(r, o)| (*r, *o)).collect(),
        };
        let lock = || self.variants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(variant) = lock().get(&key) {
            return Ok(Arc::clone(variant));
        }
        let lowered = if aliases.is_empty() {
            self.lowered.clone()
        } else {
            lower::lower(&self.program, &aliases)?
        };
        let kernels = lowered.stages.iter().map(|stage| match stage {
            Stage::Kernel(body) => Some(text::write(&self.program, body, &params.launch_config)),
            Stage::Once(_) => None,
        });
        let variant = Arc::new(Variant {
            kernels: kernels.collect(),
            lowered,
        });
        Ok(Arc::clone(lock().entry(key).or_insert(variant)))
    }

    /// Initial registers that name the same memory as another origin of a handle.
    fn aliases(&self, params: &ExecutionParams) -> Result<Aliases> {
        for &(register, index) in &self.lowered.initial_registers {
            if !params.initial_registers.contains_key(&register) {
                return Err(ProgramError::Uninitialized {
                    index,
                    name: register.to_string(),
                });
            }
        }
        let mut first: HashMap<(Space, u64), Origin> = HashMap::new();
        let mut aliases = Aliases::new();
        for stage in &self.lowered.stages {
            let Stage::Kernel(body) = stage else {
                continue;
            };
            for binding in &body.bindings {
                let value = match binding.handle {
                    Origin::Constant(value) => value.bits(),
                    Origin::Initial(register) => params.initial_registers[&register],
                    Origin::Pool(_) | Origin::Position(_) => continue,
                };
                let known = *first
                    .entry((binding.space, value))
                    .or_insert(binding.handle);
                if let Origin::Initial(register) = binding.handle
                    && known != binding.handle
                {
                    aliases.insert(register, known);
                }
            }
        }
        Ok(aliases)
    }

    /// The source of the kernels of a launch.
    pub(crate) fn text(&self, params: &ExecutionParams) -> Result<String> {
        let variant = self.variant(params)?;
        let kernels: Vec<_> = variant.kernels.iter().flatten().collect();
        Ok(kernels
            .iter()
            .map(|kernel| kernel.source.as_str())
            .collect::<Vec<_>>()
            .join("\n"))
    }

    /// The kernel of a launch as a library of its own.
    pub(crate) fn library(&self, name: &str, params: &ExecutionParams) -> Result<String> {
        let variant = self.variant(params)?;
        let once = variant.lowered.stages.iter().find_map(|stage| match stage {
            Stage::Once(once) => Some(once.index),
            Stage::Kernel(_) => None,
        });
        match (&variant.lowered.stages[..], &variant.kernels[..], once) {
            ([Stage::Kernel(body)], [Some(kernel)], None) => {
                Ok(text::library(name, body, kernel, &params.launch_config))
            }
            (.., once) => {
                let index = once.unwrap_or(0);
                let mnemonic = self.program.instructions.get(index);
                Err(ProgramError::Unsupported {
                    index,
                    mnemonic: mnemonic.map_or("program", Instruction::mnemonic),
                    reason:
                        "a library has one kernel, but this needs several, and ops between them"
                            .to_owned(),
                })
            }
        }
    }

    /// Runs the program and waits for its end.
    pub(crate) fn run(
        &self,
        metal: &Arc<Metal>,
        params: &ExecutionParams,
        memory: &mut DeviceMemory,
        step_limit: Option<u64>,
    ) -> Result<()> {
        let variant = self.variant(params)?;
        let mut launch = ProgramLaunch {
            program: &self.program,
            metal,
            params,
            step_limit: step_limit.unwrap_or(STEP_LIMIT),
            pools: HashMap::new(),
        };
        for (stage, kernel) in variant.lowered.stages.iter().zip(&variant.kernels) {
            match (stage, kernel) {
                (Stage::Kernel(body), Some(kernel)) => launch.run_kernel(body, kernel, memory)?,
                (Stage::Once(instruction), _) => {
                    let handles: Vec<u64> = instruction
                        .handles
                        .iter()
                        .map(|origin| launch.value(*origin))
                        .collect();
                    let index = instruction.index;
                    let result = once::run(&self.program.instructions[index], &handles, memory);
                    let handle = result.map_err(|kind| Fault {
                        kind,
                        index,
                        lane: 0,
                    })?;
                    if let Some(handle) = handle {
                        launch.pools.insert(index, handle);
                    }
                }
                (Stage::Kernel(_), None) => {}
            }
        }
        Ok(())
    }
}

/// A launch that is running.
struct ProgramLaunch<'l> {
    program: &'l Program,
    metal: &'l Arc<Metal>,
    params: &'l ExecutionParams,
    step_limit: u64,
    /// Handles of the pools that instructions have allocated.
    pools: HashMap<usize, u64>,
}

impl ProgramLaunch<'_> {
    /// A value that the launch knows.
    fn value(&self, origin: Origin) -> u64 {
        let found = match origin {
            Origin::Constant(value) => Some(value.bits()),
            Origin::Initial(register) => self.params.initial_registers.get(&register).copied(),
            Origin::Pool(index) => self.pools.get(&index).copied(),
            Origin::Position(_) => None,
        };
        found.unwrap_or(u64::MAX)
    }

    /// The kernel, compiled on first use; programs with the same text share it.
    fn pipeline(&self, kernel: &KernelText) -> Result<Pipeline> {
        if let Some(pipeline) = kernel.pipeline.get() {
            return Ok(pipeline.clone());
        }
        if let Some(folder) = &env::settings().dump_msl {
            dump(folder, &kernel.source)?;
        }
        let kernels = &self.metal.kernels;
        let pipeline = kernels.generated(OP, text::ENTRY, &kernel.compiled_source())?;
        Ok(kernel.pipeline.get_or_init(|| pipeline).clone())
    }

    fn run_kernel(
        &mut self,
        body: &KernelBody,
        kernel: &KernelText,
        memory: &mut DeviceMemory,
    ) -> Result<()> {
        let pipeline = self.pipeline(kernel)?;
        let handles: Vec<u64> = body.bindings.iter().map(|b| self.value(b.handle)).collect();
        for (binding, &handle) in body.bindings.iter().zip(&handles) {
            if binding.is_written {
                memory.storage_mut(binding.space, handle)?;
            }
        }
        let blocks: Vec<Option<&Block>> = body
            .bindings
            .iter()
            .zip(&handles)
            .map(|(binding, &handle)| {
                let storage = memory.storage(binding.space, handle);
                storage.map(|s| s.block_on(self.metal, OP)).transpose()
            })
            .collect::<crate::Result<_>>()?;
        let record = Block::copy_of(self.metal, OP, &[0; size_of::<ProgramFault>()])?;
        // An access to memory without a handle is out of bounds.
        let nothing = Block::copy_of(self.metal, OP, &[0; 16])?;

        let config = &self.params.launch_config;
        let mut arguments = vec![
            u64::from(config.grid.x),
            u64::from(config.grid.y),
            self.step_limit,
        ];
        arguments.extend(blocks.iter().map(|b| b.map_or(0, |b| b.len() as u64)));
        arguments.extend(kernel.values.iter().map(|origin| self.value(*origin)));
        let mut recorder = Recorder::new(self.metal, OP);
        let mut launch = recorder
            .launch_pipeline(&pipeline)
            .update(record.all())
            .values(&arguments);
        for (binding, block) in body.bindings.iter().zip(&blocks) {
            let slice: BufferSlice = match block {
                Some(block) if block.len() > 0 => block.all(),
                _ => nothing.all(),
            };
            launch = if binding.is_written {
                launch.update(slice)
            } else {
                launch.read(slice)
            };
        }
        let size = |x: u32, y: u32, z: u32| Size::new(x as usize, y as usize, z as usize);
        launch.groups(
            &mut recorder,
            size(config.grid.x, config.grid.y, config.grid.z),
            size(config.block.x, config.block.y, config.block.z),
        );
        let launches = recorder.into_launches()?;
        let writers: Vec<_> = blocks.iter().flatten().filter_map(|b| b.writer()).collect();
        let (batch, outcome) = self.metal.stream.add(launches, &[], writers.iter());
        for block in blocks.iter().flatten().copied().chain([&record, &nothing]) {
            block.read_by(&batch);
        }
        outcome.map_err(|e| crate::Error::device(OP, e))?;
        let finished = self.metal.stream.wait(&batch);
        finished.map_err(|e| crate::Error::device(OP, e))?;
        let found = ProgramFault::read(&record);
        match found {
            Some(found) => {
                let found = found.decode(&self.program.instructions, self.params, &handles, &|b| {
                    blocks.get(b).copied().flatten().map(Block::len)
                });
                Err(found.into())
            }
            None => Ok(()),
        }
    }
}

/// Writes a source to a file that is named after its contents.
fn dump(folder: &Path, source: &str) -> Result<()> {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    let path = folder.join(format!("program-{:016x}.metal", hasher.finish()));
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, source));
    written.map_err(|e| ProgramError::File {
        path: path.display().to_string(),
        reason: e.to_string(),
    })
}
