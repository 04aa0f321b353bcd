//! The Metal backend: runs ops as MSL kernels, on an Apple GPU or on the software device.
//!
//! `metal/x.rs` launches op X of `ops/x.rs`, `metal/msl/x.metal` has its kernels. An op is *recorded*: its launches are
//! appended to the command stream of the device ([`stream`]), and nothing waits until a value is read.

mod axis_split;
mod band;
mod block;
mod constant;
pub(crate) mod custom;
pub(crate) mod decoder_args;
mod elementwise;
mod fault;
mod input;
mod kernel;
mod launch_count;
mod mps;
mod msl;
mod msl_struct;
mod pool;
pub(crate) mod program;
mod record;
mod region;
pub(crate) mod replay;
mod rows;
pub(crate) mod stream;
mod view;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bessemer_hal::{self as hal, Pipeline};

pub(crate) use block::Block;
pub(crate) use kernel::{Kernel, msl_name};
pub(crate) use launch_count::launch_count;
pub(crate) use matmul::cost as matmul_cost;
pub use mps::MatrixLibrary;
pub(crate) use quant_matmul::{SkinnyGeometry, TileGeometry};
pub(crate) use record::{Launch, LaunchBuilder, Recorder};

use self::custom::CustomLibraries;
use self::fused::MAX_INPUTS;
use self::input::{Input, Output};
use self::kernel::Kernels;
use self::matmul::EpilogueActivation;
use self::pool::BufferPool;
use self::stream::Stream;

use crate::capabilities::{Capabilities, MatmulEpilogue};
use crate::dispatch::Packed;
use crate::ops::Op;
use crate::tensor::{Node, Work};
use crate::{DType, Error, Layout, Result, Shape, Tensor, env};

/// An op that the CPU computed, in the same memory, because the Metal device has no kernel for it or for its sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fallback {
    /// The op.
    pub op: &'static str,
    /// Number of times.
    pub count: u64,
    /// Reason of the last time.
    pub reason: String,
}

/// Options of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Math mode of the compiler.
    pub(crate) math: hal::MathMode,
}

/// A Metal device with everything that running ops on it needs.
pub(crate) struct Metal {
    pub(crate) device: hal::Device,
    pub(crate) stream: Stream,
    pub(crate) pool: BufferPool,
    kernels: Kernels,
    custom_libraries: CustomLibraries,
    /// Ops left to the CPU: how often, and the reason of the last time.
    fallbacks: Mutex<BTreeMap<&'static str, (u64, String)>>,
    /// Whether the device's own library (MPS) multiplies matrices.
    mps: AtomicBool,
    /// Whether results lie between red zones that are checked: slow, for tests.
    red_zones: bool,
    /// Whether a red zone was overwritten.
    overwritten: AtomicBool,
}

impl Metal {
    /// Commands with a name for GPU tools.
    pub(crate) fn commands(&self, label: &'static str) -> hal::Commands {
        let mut commands = self.device.commands();
        commands.set_label(label);
        commands
    }

    pub(crate) fn new(device: hal::Device, options: Options) -> Arc<Self> {
        Arc::new(Self {
            stream: Stream::new(device.clone()),
            pool: BufferPool::new(device.clone()),
            kernels: Kernels::new(device.clone(), options.math),
            custom_libraries: CustomLibraries::default(),
            fallbacks: Mutex::default(),
            mps: AtomicBool::new(
                device.multiplies_matrices() && env::settings().matmul == Some(MatrixLibrary::Mps),
            ),
            device,
            red_zones: env::settings().red_zones,
            overwritten: AtomicBool::new(false),
        })
    }

    /// The fusions that the graph may use here.
    pub(crate) fn capabilities(&self) -> Capabilities {
        let activations = |f| EpilogueActivation::of(f).is_some();
        Capabilities {
            max_fused_inputs: MAX_INPUTS,
            matmul_epilogue: match self.matrix_library() {
                MatrixLibrary::Mps => MatmulEpilogue::Bias { activations },
                MatrixLibrary::Msl => MatmulEpilogue::Full { activations },
            },
            caches_scalars: false,
        }
    }

    /// Counts an op that the CPU computes instead.
    fn fell_back(&self, op: &'static str, reason: String) {
        event!(
            WARN,
            "the CPU computes what the device cannot",
            op = op,
            reason = reason.as_str()
        );
        let mut all = self
            .fallbacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (count, last) = all.entry(op).or_default();
        (*count, *last) = (*count + 1, reason);
    }

    pub(crate) fn fallbacks(&self) -> Vec<Fallback> {
        let all = self
            .fallbacks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let of = |(&op, (count, reason)): (&&'static str, &(u64, String))| Fallback {
            op,
            count: *count,
            reason: reason.clone(),
        };
        all.iter().map(of).collect()
    }

    /// The library that multiplies matrices, on this thread and now.
    pub(crate) fn matrix_library(&self) -> MatrixLibrary {
        match MatrixLibrary::scoped() {
            Some(library) if self.device.multiplies_matrices() => library,
            _ if self.mps.load(Ordering::Relaxed) => MatrixLibrary::Mps,
            _ => MatrixLibrary::Msl,
        }
    }

    /// Sets the library that multiplies matrices.
    pub(crate) fn set_matrix_library(&self, library: MatrixLibrary) -> Result<()> {
        let mps = library == MatrixLibrary::Mps;
        if mps && !self.device.multiplies_matrices() {
            return Err(Error::Unsupported {
                op: "set_matrix_library",
                what: "Metal Performance Shaders; use the engine's own kernels".to_owned(),
                device: self.device.name().to_owned(),
            });
        }
        self.mps.store(mps, Ordering::Relaxed);
        Ok(())
    }

    /// Whether no kernel is known to have written outside its output.
    fn is_intact(&self) -> bool {
        !self.overwritten.load(Ordering::Relaxed)
    }
}

/// The kernel that computes a node, or the first of several; compiled, not launched.
pub(crate) fn pipeline(metal: &Arc<Metal>, work: &Work, node: &Node) -> Result<Option<Pipeline>> {
    let name = work.op.name();
    let block = Block::new(metal, name, node.shape.count() * node.dtype.size())?;
    let mut recorder = Recorder::new(metal, name);
    let inputs = inputs(metal, &work.op, &work.inputs)?;
    let output = Output::new(&block, node.dtype, node.shape, None);
    match record(&work.op, &mut recorder, &inputs, &output) {
        Ok(()) => Ok(recorder.first_pipeline()),
        Err(Error::Unsupported { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Inputs of the kernels of an op: its own, and those of [`captured_inputs`].
fn inputs<'a>(metal: &Arc<Metal>, op: &'a Op, tensors: &'a [Tensor]) -> Result<Vec<Input<'a>>> {
    let inputs = tensors.iter().map(|t| input(metal, op, t));
    let mut inputs: Vec<_> = inputs.collect::<Result<_>>()?;
    inputs.extend(captured_inputs(metal, op)?);
    Ok(inputs)
}

fn input<'a>(metal: &Arc<Metal>, op: &Op, tensor: &'a Tensor) -> Result<Input<'a>> {
    let block = match tensor.node.value.get() {
        Some(storage) => Some(storage.block_on(metal, op.name())?),
        None => None,
    };
    let (dtype, layout) = (tensor.dtype(), *tensor.layout());
    Ok(Input::new(block, dtype, layout, tensor.node.constant))
}

/// The inputs that an op has besides its tensors: a matrix that was packed for it, or the bytes of quantised weights.
fn captured_inputs<'a>(metal: &Arc<Metal>, op: &'a Op) -> Result<Option<Input<'a>>> {
    match op {
        Op::PackedMatmul(packed) => match packed.right.packed() {
            Packed::Metal(right) => input(metal, op, right).map(Some),
            Packed::Cpu(_) => Ok(None),
        },
        Op::QuantMatmul(quantised) => {
            let block = quantised.matrix.on(metal)?;
            let shape = Shape::new("quant_matmul", &[block.len()])?;
            let layout = Layout::contiguous(shape);
            Ok(Some(Input::new(Some(block), DType::U8, layout, None)))
        }
        _ => Ok(None),
    }
}

/// Records the kernels of a node that has at least one element; they write `block`, which is the memory of input
/// `aliases_input`, if any. `false`: there is no kernel for it here, and nothing was recorded.
pub(crate) fn run(
    metal: &Arc<Metal>,
    op: &Op,
    tensors: &[Tensor],
    block: &Block,
    node: &Node,
    aliases_input: Option<usize>,
) -> Result<bool> {
    let mut recorder = Recorder::new(metal, op.name());
    let inputs = inputs(metal, op, tensors)?;
    let output = Output::new(block, node.dtype, node.shape, aliases_input);
    match record(op, &mut recorder, &inputs, &output) {
        Ok(()) if !recorder.no_kernel => {}
        Ok(()) => {
            metal.fell_back(op.name(), "no kernel for these sizes".to_owned());
            return Ok(false);
        }
        // The device lacks what a kernel needs ([`Kernels`]).
        Err(Error::Unsupported { what, .. }) => {
            metal.fell_back(op.name(), what);
            return Ok(false);
        }
        Err(error) => return Err(error),
    }
    recorder.finish(block, &inputs)?;
    Ok(true)
}

/// Declares `metal/x.rs` for every op X, and the dispatch to them.
macro_rules! kernels {
    ($($(#[$doc:meta])* $module:ident::$name:ident $($boxed:ident)? $(=> $msl:ident)?,)*) => {
        $(pub(crate) mod $module;)*

        /// Records the launches of an op.
        fn record(
            op: &Op,
            recorder: &mut Recorder<'_>,
            inputs: &[Input<'_>],
            output: &Output,
        ) -> Result<()> {
            match op {
                // An alias and an output of a custom kernel share the storage of another node, an argument has none; a
                // custom kernel is recorded by `custom::run`.
                Op::Alias(_) | Op::Argument(_) | Op::Custom(_) | Op::CustomOutput(_) => Ok(()),
                $(Op::$name(op) => $module::record(op, recorder, inputs, output),)*
            }
        }
    };
}

crate::for_each_op!(kernels);
