//! `reduce` on Metal: how elements are distributed among threads.
//!
//! Results whose elements are contiguous are *rows*: a SIMD-group or a threadgroup each. Results that are contiguous
//! themselves are *columns*: a thread each, so that the loads of a SIMD-group are contiguous, too. If there are few
//! results, each is split, and a second launch combines the partial results. The order of operations depends on nothing
//! but the shape.

use super::input::{Input, Output};
use super::kernel::Kernel;
use super::msl_struct::msl_struct;
use super::record::Recorder;
use super::view::{self, ViewStrides, Walk};
use crate::ops::reduce::{Fold, Reduce};
use crate::shape::Axes;
use crate::{DType, Result};

msl_struct! {
    /// Arguments of the reduction kernels.
    pub(super) struct ReduceArgs {
        /// The axes that are kept, and the input's strides along them.
        kept: Walk,
        kept_steps: ViewStrides,
        /// The axes that are reduced.
        reduced: Walk,
        reduced_steps: ViewStrides,
        /// Elements of a result.
        count: u64,
        results: u32,
        /// Splits of each result.
        parts: u32,
        /// Elements of a split, if they are contiguous.
        chunk: u32,
        ddof: f32,
    }
}

/// The implementation of a fold in `fold.h`.
pub(super) struct Method {
    /// Its number there.
    fold: u32,
    /// Which of its answers.
    answer: u32,
    /// Whether magnitudes are folded.
    magnitude: bool,
    /// Bytes of its state.
    pub(super) state: usize,
    ddof: f32,
}

impl Method {
    /// Finds the index of the greatest element, or of the least.
    pub(super) fn arg(max: bool, dtype: DType) -> Self {
        Self {
            fold: 7,
            answer: u32::from(!max),
            magnitude: false,
            state: if dtype.size() == 8 { 16 } else { 8 },
            ddof: 0.0,
        }
    }

    pub(super) fn new(fold: Fold, dtype: DType) -> Self {
        let float = dtype.is_float();
        let wide = if float { 4 } else { 8 };
        let (number, answer, state) = match fold {
            Fold::Sum | Fold::SumAbs => (0, 0, 8),
            Fold::Mean => (0, 1, 8),
            Fold::Max | Fold::MaxAbs => (1, 0, wide),
            Fold::Min | Fold::MinAbs => (1, 1, wide),
            Fold::Any => (2, 0, 8),
            Fold::All => (2, 1, 8),
            Fold::CountNonzero => (2, 2, 8),
            Fold::Prod => (3, 0, if float { 12 } else { 8 }),
            Fold::Var { .. } => (4, 0, 16),
            Fold::Std { .. } => (4, 1, 16),
            Fold::LogSumExp => (5, 0, 8),
            Fold::RootSumSquare => (6, 0, 12),
        };
        Self {
            fold: number,
            answer,
            magnitude: matches!(fold, Fold::SumAbs | Fold::MaxAbs | Fold::MinAbs),
            state,
            ddof: match fold {
                Fold::Var { ddof } | Fold::Std { ddof } => ddof as f32,
                _ => 0.0,
            },
        }
    }

    /// A kernel for elements of one type and results of another.
    pub(super) fn of(&self, kernel: Kernel, from: DType, to: DType) -> Kernel {
        let narrow = if to == DType::Bool { DType::U8 } else { to };
        let kernel = match self.fold {
            // By keys.
            7 if from.size() == 8 => kernel.of("T", DType::U64).of("U", to).with("KINDS", 1),
            7 => kernel.of("T", DType::U32).of("U", to).with("KINDS", 1),
            // All integers are folded in 64 bits.
            2 if !from.is_float() => kernel.of("T", DType::I64).of("U", narrow).with("KINDS", 1),
            _ if !from.is_float() => {
                let kernel = kernel.of("T", DType::I64).of("U", DType::I64);
                kernel.with("KINDS", 1)
            }
            _ => kernel.of("T", from).of("U", narrow),
        };
        kernel
            .with("FOLD", self.fold)
            .constant("ANSWER", self.answer)
            .flag("MAGNITUDE", self.magnitude)
            .constant("KIND", kind(from))
    }
}

/// Number of an element type in `kind.h`.
pub(super) fn kind(dtype: DType) -> u32 {
    match dtype {
        DType::Bool | DType::U8 => 0,
        DType::U16 => 1,
        DType::U32 => 2,
        DType::U64 => 3,
        DType::I8 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::F16 => 8,
        DType::BF16 => 9,
        DType::F32 | DType::F64 => 10,
    }
}

/// Distribution of results among threads.
enum Plan {
    /// A thread for each split of each result.
    Thread { parts: usize },
    /// A SIMD-group for each result.
    Simd,
    /// A threadgroup for each split of each result.
    Group { parts: usize },
}

/// Maximum elements of a result that one thread takes as quickly as several.
const SHORT: usize = 16;

/// Maximum elements of a row for which one SIMD-group is enough.
const ROW: usize = 1024;

/// Minimum elements of a split of a row, and maximum threads of a threadgroup.
const PART: usize = 8192;
const THREADS: usize = 512;

/// Threads that fill a GPU.
const BUSY: usize = 1 << 15;

impl Plan {
    /// The strategy for `results` results of `count` elements each, which are columns or rows.
    fn new(results: usize, count: usize, columns: bool) -> Self {
        if columns || count <= SHORT {
            let parts = if results >= BUSY / 2 || count < 64 {
                1
            } else {
                (BUSY / results).min(count / SHORT).clamp(1, 4096)
            };
            return Self::Thread { parts };
        }
        if count <= ROW {
            return Self::Simd;
        }
        let parts = match results {
            0..64 => (count / PART).min(1024 / results).max(1),
            _ => 1,
        };
        Self::Group { parts }
    }
}

pub(crate) fn record(
    op: &Reduce,
    recorder: &mut Recorder<'_>,
    inputs: &[Input<'_>],
    output: &Output,
) -> Result<()> {
    let method = Method::new(op.fold, inputs[0].dtype);
    launch(recorder, &inputs[0], op.axes, output, &method)
}

/// Reduces an input over axes.
pub(super) fn launch(
    recorder: &mut Recorder<'_>,
    input: &Input<'_>,
    axes: Axes,
    output: &Output,
    method: &Method,
) -> Result<()> {
    let shape = input.layout.shape();
    let span = input.span(output);
    let mut kept = input.layout;
    let mut reduced = input.layout;
    for axis in (0..shape.rank()).rev() {
        if axes.contains(axis) {
            kept = kept.without(axis)
        } else {
            reduced = reduced.without(axis)
        }
    }
    let walk = |layout, offset| {
        let part = Input { layout, ..*input };
        let (walk, steps) = view::walk(part.layout.shape(), &[(&part, offset)]);
        (walk, steps[0])
    };
    let (results, count) = (kept.count(), reduced.count());
    if u32::try_from(results.max(count)).is_err() {
        // Kernels count in 32 bits.
        recorder.missing = true;
        return Ok(());
    }
    let (kept, kept_steps) = walk(kept, span.offset);
    let (reduced, reduced_steps) = walk(reduced, 0);
    let step =
        |walk: &Walk, steps: &ViewStrides| steps.strides[walk.rank as usize - 1].unsigned_abs();
    let columns = results > 1 && step(&kept, &kept_steps) < step(&reduced, &reduced_steps);
    let plan = Plan::new(results, count, columns);
    let (entry, parts) = match plan {
        Plan::Thread { parts } => ("reduce_thread", parts),
        Plan::Simd => ("reduce_group", 1),
        Plan::Group { parts } => ("reduce_group", parts),
    };
    let plain = reduced.rank == 1;
    let aligned = |s: &i64| s % 4 == 0;
    let vector = plain
        && reduced_steps.strides[0] == 1
        && aligned(&kept_steps.offset)
        && kept_steps.strides[..kept.rank as usize].iter().all(aligned);
    let reduction = ReduceArgs {
        kept,
        kept_steps,
        reduced,
        reduced_steps,
        count: count as u64,
        results: results as u32,
        parts: parts as u32,
        // Splits begin at multiples of a vector.
        chunk: count.div_ceil(parts).next_multiple_of(8) as u32,
        ddof: method.ddof,
    };
    let kernel = |entry| method.of(Kernel::new("reduce", entry), input.dtype, output.dtype);
    let packed = matches!(plan, Plan::Simd);
    let first = kernel(entry)
        .flag("SPLIT", parts > 1)
        .flag("VECTOR", vector)
        .flag("PACKED", packed)
        .flag("PLAIN", plain);
    let launch = recorder.launch(&first)?;
    let launch = match count {
        0 => launch.value(&0_u64),
        _ => launch.read(span),
    };
    let states = match parts {
        1 => None,
        _ => Some(recorder.scratch(results * parts * method.state)?),
    };
    let launch = launch.write(states.as_ref().unwrap_or(&output.slice));
    let launch = launch.value(&reduction);
    match plan {
        Plan::Thread { .. } => launch.threads(recorder, results * parts),
        Plan::Simd => {
            let pack = results.min(8);
            launch.groups(recorder, results.div_ceil(pack), 32 * pack);
        }
        Plan::Group { .. } => {
            let threads = (reduction.chunk as usize).div_ceil(8).next_multiple_of(32);
            let threads = threads.min(THREADS).min(launch.max_threads());
            launch.groups(recorder, results * parts, threads);
        }
    }
    if let Some(states) = states {
        let pack = results.min(8);
        recorder
            .launch(
                &kernel("reduce_parts")
                    .flag("SPLIT", true)
                    .flag("VECTOR", false)
                    .flag("PACKED", true)
                    .flag("PLAIN", true),
            )?
            .read(states)
            .write(&output.slice)
            .value(&reduction)
            .groups(recorder, results.div_ceil(pack), 32 * pack);
    }
    Ok(())
}
