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
        kept_view: ViewStrides,
        /// The axes that are reduced.
        reduced: Walk,
        reduced_view: ViewStrides,
        /// Elements of a result.
        count: u64,
        results: u32,
        /// Splits of each result.
        splits: u32,
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
    result: u32,
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
            result: u32::from(!max),
            magnitude: false,
            state: if dtype.size() == 8 { 16 } else { 8 },
            ddof: 0.0,
        }
    }

    pub(super) fn new(fold: Fold, dtype: DType) -> Self {
        let float = dtype.is_float();
        let wide = if float { 4 } else { 8 };
        let (number, result, state) = match fold {
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
            result,
            magnitude: matches!(fold, Fold::SumAbs | Fold::MaxAbs | Fold::MinAbs),
            state,
            ddof: match fold {
                Fold::Var { ddof } | Fold::Std { ddof } => ddof as f32,
                _ => 0.0,
            },
        }
    }

    /// A kernel for elements of one type and results of another.
    pub(super) fn kernel(&self, kernel: Kernel, from: DType, to: DType) -> Kernel {
        let narrow = if to == DType::Bool { DType::U8 } else { to };
        let kernel = match self.fold {
            // By keys.
            7 if from.size() == 8 => kernel
                .with_type("T", DType::U64)
                .with_type("U", to)
                .define("KINDS", 1),
            7 => kernel
                .with_type("T", DType::U32)
                .with_type("U", to)
                .define("KINDS", 1),
            // All integers are folded in 64 bits.
            2 if !from.is_float() => kernel
                .with_type("T", DType::I64)
                .with_type("U", narrow)
                .define("KINDS", 1),
            _ if !from.is_float() => {
                let kernel = kernel.with_type("T", DType::I64).with_type("U", DType::I64);
                kernel.define("KINDS", 1)
            }
            _ => kernel.with_type("T", from).with_type("U", narrow),
        };
        kernel
            .define("FOLD", self.fold)
            .constant("RESULT", self.result)
            .flag("MAGNITUDE", self.magnitude)
            .constant("KIND", kind(from))
    }
}

/// Number of an element type in `element_kind.h`.
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
enum ReduceStrategy {
    /// A thread for each split of each result.
    Thread { splits: usize },
    /// A SIMD-group for each result.
    Simd,
    /// A threadgroup for each split of each result.
    Group { splits: usize },
}

/// Maximum elements of a result that one thread takes as quickly as several.
const MAX_THREAD_ELEMENTS: usize = 16;

/// Maximum elements of a row for which one SIMD-group is enough.
const MAX_SIMD_GROUP_ELEMENTS: usize = 1024;

/// Minimum elements of a split of a row, and maximum threads of a threadgroup.
const MIN_SPLIT_ELEMENTS: usize = 8192;
const MAX_THREADS: usize = 512;

/// Threads that fill a GPU.
const MIN_GPU_THREADS: usize = 1 << 15;

impl ReduceStrategy {
    /// The strategy for `results` results of `count` elements each, which are columns or rows.
    fn new(results: usize, count: usize, columns: bool) -> Self {
        if columns || count <= MAX_THREAD_ELEMENTS {
            let splits = if results >= MIN_GPU_THREADS / 2 || count < 64 {
                1
            } else {
                (MIN_GPU_THREADS / results)
                    .min(count / MAX_THREAD_ELEMENTS)
                    .clamp(1, 4096)
            };
            return Self::Thread { splits };
        }
        if count <= MAX_SIMD_GROUP_ELEMENTS {
            return Self::Simd;
        }
        let splits = match results {
            0..64 => (count / MIN_SPLIT_ELEMENTS).min(1024 / results).max(1),
            _ => 1,
        };
        Self::Group { splits }
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
        let input = Input { layout, ..*input };
        let (walk, views) = view::walk(input.layout.shape(), &[(&input, offset)]);
        (walk, views[0])
    };
    let (results, count) = (kept.count(), reduced.count());
    if u32::try_from(results.max(count)).is_err() {
        // Kernels count in 32 bits.
        recorder.no_kernel = true;
        return Ok(());
    }
    let (kept, kept_view) = walk(kept, span.offset);
    let (reduced, reduced_view) = walk(reduced, 0);
    let step =
        |walk: &Walk, views: &ViewStrides| views.strides[walk.rank as usize - 1].unsigned_abs();
    let columns = results > 1 && step(&kept, &kept_view) < step(&reduced, &reduced_view);
    let strategy = ReduceStrategy::new(results, count, columns);
    let (entry, splits) = match strategy {
        ReduceStrategy::Thread { splits } => ("reduce_thread", splits),
        ReduceStrategy::Simd => ("reduce_group", 1),
        ReduceStrategy::Group { splits } => ("reduce_group", splits),
    };
    let single_axis = reduced.rank == 1;
    let aligned = |s: &i64| s % 4 == 0;
    let vector = single_axis
        && reduced_view.strides[0] == 1
        && aligned(&kept_view.offset)
        && kept_view.strides[..kept.rank as usize].iter().all(aligned);
    let reduction = ReduceArgs {
        kept,
        kept_view,
        reduced,
        reduced_view,
        count: count as u64,
        results: results as u32,
        splits: splits as u32,
        // Splits begin at multiples of a vector.
        chunk: count.div_ceil(splits).next_multiple_of(8) as u32,
        ddof: method.ddof,
    };
    let kernel = |entry| method.kernel(Kernel::new("reduce", entry), input.dtype, output.dtype);
    let packed = matches!(strategy, ReduceStrategy::Simd);
    let first = kernel(entry)
        .flag("SPLIT", splits > 1)
        .flag("VECTOR", vector)
        .flag("ROW_PER_SIMD_GROUP", packed)
        .flag("SINGLE_AXIS", single_axis);
    let launch = recorder.launch(&first)?;
    let launch = match count {
        0 => launch.value(&0_u64),
        _ => launch.read(span),
    };
    let states = match splits {
        1 => None,
        _ => Some(recorder.scratch(results * splits * method.state)?),
    };
    let launch = launch.write(states.as_ref().unwrap_or(&output.slice));
    let launch = launch.value(&reduction);
    match strategy {
        ReduceStrategy::Thread { .. } => launch.threads(recorder, results * splits),
        ReduceStrategy::Simd => {
            let rows_per_group = results.min(8);
            launch.groups(
                recorder,
                results.div_ceil(rows_per_group),
                32 * rows_per_group,
            );
        }
        ReduceStrategy::Group { .. } => {
            let threads = (reduction.chunk as usize).div_ceil(8).next_multiple_of(32);
            let threads = threads.min(MAX_THREADS).min(launch.max_threads());
            launch.groups(recorder, results * splits, threads);
        }
    }
    if let Some(states) = states {
        let rows_per_group = results.min(8);
        recorder
            .launch(
                &kernel("reduce_merge")
                    .flag("SPLIT", true)
                    .flag("VECTOR", false)
                    .flag("ROW_PER_SIMD_GROUP", true)
                    .flag("SINGLE_AXIS", true),
            )?
            .read(states)
            .write(&output.slice)
            .value(&reduction)
            .groups(
                recorder,
                results.div_ceil(rows_per_group),
                32 * rows_per_group,
            );
    }
    Ok(())
}
