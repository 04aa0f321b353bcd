//! Reductions on the CPU.
//!
//! Memory is read once, in its own order, whatever the axes. Work is split into pieces that depend on the shape alone
//! and whose totals are merged in order, so the bits are the same for every number of threads.

pub(super) mod fold;
mod moment;
pub(crate) mod plan;

use std::ops::Range;

use bytemuck::Pod;
use half::{bf16, f16};

use self::fold::{
    All, Any, CountNonzero, FOLD_BLOCK_COLUMNS, FOLD_BLOCK_LEN, FOLD_BLOCK_ROWS, Folder, LaneFold,
    Max, MaxAbs, Min, MinAbs, Prod, RowBlock, Simple, Sum, SumAbs, Widen,
};
use self::moment::{Euclid, LogSumExp, Squared, TwoPassReal, Variance};
use self::plan::{ReducePlan, RunAxis};
use super::pool;
use super::simd::{self, Isa, Task};
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::Rule;
use crate::ops::reduce::{Fold, Reduce};
use crate::storage::Storage;
use crate::{DType, Layout, Result, try_vec};

/// Runs a reduction.
pub(crate) fn run(op: &Reduce, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    let input = inputs[0];
    let shape = input.layout.shape();
    let count = op.axes.iter().map(|a| shape[a]).product();
    let (copy, wide);
    let mut source = ReduceInput {
        bytes: input.bytes,
        dtype: input.dtype,
        plan: None,
        count,
    };
    if count > 0 {
        source.plan = ReducePlan::new(&input.layout, op.axes);
        if source.plan.is_none() {
            copy = Dense::new(op.name(), input)?;
            source.bytes = copy.bytes();
            source.plan = ReducePlan::new(&Layout::contiguous(*shape), op.axes);
        }
    }
    let common = matches!(
        op.fold,
        Fold::Sum | Fold::Mean | Fold::Min | Fold::Max | Fold::Any | Fold::All
    );
    if !common && matches!(source.dtype, DType::F16 | DType::BF16) {
        // Rare: a widened copy costs less than compiling all of these folds for all types.
        let mut copy = Storage::new(op.name(), 2 * source.bytes.len())?;
        let to = bytemuck::cast_slice_mut(copy.bytes_mut().expect("newly allocated"));
        with_type!(floats source.dtype, T => widen::<T>(bytemuck::cast_slice(source.bytes), to),
            else unreachable!("f16 or bf16"));
        wide = copy;
        source.bytes = wide.bytes();
        source.dtype = DType::F32;
    }
    dispatch(op.fold, &source, output)
}

/// Converts half-precision floats to `f32`, for all of the memory that a plan may read.
fn widen<T: Widen<Wide: Into<f64>>>(from: &[T], to: &mut [f32]) {
    pool::for_each_chunk(to, pool::grain(4), |i, to| {
        for (to, x) in to.iter_mut().zip(&from[i * pool::grain(4)..]) {
            *to = x.wide().into() as f32;
        }
    });
}

/// The input of a reduction.
struct ReduceInput<'a> {
    bytes: &'a [u8],
    dtype: DType,
    /// `None` for an empty input.
    plan: Option<ReducePlan>,
    /// Elements per result.
    count: usize,
}

/// A float result type, converted from an `f64` total.
trait FromTotal: Pod {
    fn of(x: f64) -> Self;
}

macro_rules! float {
    ($($type:ident |$x:ident| $of:expr),*) => {$(
        impl FromTotal for $type {
            #[inline(always)]
            fn of($x: f64) -> Self {
                $of
            }
        }
    )*};
}
float!(
    f16 | x | Self::from_f64(x),
    bf16 | x | Self::from_f64(x),
    f32 | x | x as Self,
    f64 | x | x
);

/// Reduces by `$fold`. Totals of floats are converted by `$finish`; totals of integers are the results.
macro_rules! by_kind {
    ($source:ident, $output:ident, $fold:ident, |$total:ident| $finish:expr) => {
        with_type!(floats $source.dtype, T => {
            reduce::<Simple<$fold<T>>, T>($source, $output, &|$total| FromTotal::of($finish))
        }, else with_type!(ints $source.dtype, T => {
            reduce::<Simple<$fold<T>>, <$fold<T> as LaneFold>::Total>($source, $output, &|total| total)
        }, else unreachable!("every dtype is a float or an integer")))
    };
}

/// Reduces by bits: only whether elements are 0 matters.
macro_rules! by_bits {
    ($source:ident, $output:ident, $fold:ident) => {
        match ($source.dtype.size(), $source.dtype.is_float()) {
            (1, _) => reduce::<Simple<$fold<u8, false>>, u8>($source, $output, &|total| total),
            (2, false) => reduce::<Simple<$fold<u16, false>>, u8>($source, $output, &|total| total),
            (2, true) => reduce::<Simple<$fold<u16, true>>, u8>($source, $output, &|total| total),
            (4, false) => reduce::<Simple<$fold<u32, false>>, u8>($source, $output, &|total| total),
            (4, true) => reduce::<Simple<$fold<u32, true>>, u8>($source, $output, &|total| total),
            (_, false) => reduce::<Simple<$fold<u64, false>>, u8>($source, $output, &|total| total),
            (_, true) => reduce::<Simple<$fold<u64, true>>, u8>($source, $output, &|total| total),
        }
    };
}

/// Converts a total, `f32` or `f64`, to `f64`.
fn wide(x: impl Into<f64>) -> f64 {
    x.into()
}

fn dispatch(fold: Fold, source: &ReduceInput<'_>, output: Output<'_>) -> Result<()> {
    // The sum of no elements is 0, not the neutral -0.
    let zero = if source.count == 0 { 0.0 } else { -0.0 };
    let n = source.count as f64;
    match fold {
        Fold::Sum => by_kind!(source, output, Sum, |total| total + zero),
        Fold::Min => by_kind!(source, output, Min, |total| wide(total)),
        Fold::Max => by_kind!(source, output, Max, |total| wide(total)),
        Fold::Any => by_bits!(source, output, Any),
        Fold::All => by_bits!(source, output, All),
        Fold::Mean => with_type!(floats source.dtype, T => {
            reduce::<Simple<Sum<T>>, T>(source, output, &|total| FromTotal::of(total / n))
        }, else with_type!(ints source.dtype, T => {
            reduce::<Simple<Sum<T>>, f64>(source, output, &|total| total as f64 / n)
        }, else unreachable!("every dtype is a float or an integer"))),
        _ if source.dtype == DType::F64 => statistic::<f64, f64>(fold, source, output),
        _ => with_type!(floats output.dtype, T => statistic::<f32, T>(fold, source, output),
            else with_type!(ints source.dtype, T => {
                reduce::<Simple<Prod<T>>, <Prod<T> as LaneFold>::Total>(source, output, &|total| total)
            }, else unreachable!("every dtype is a float or an integer"))),
    }
}

/// The folds that are compiled for `f32` and `f64` only; the result may be of another float type.
fn statistic<T, Out>(fold: Fold, source: &ReduceInput<'_>, output: Output<'_>) -> Result<()>
where
    T: TwoPassReal,
    Out: FromTotal + Send,
    Sum<T>: LaneFold<In = T, Lane = T, Total = f64>,
    Prod<T>: LaneFold<In = T, Total = f64>,
    Max<T>: LaneFold<In = T, Lane = T, Total = T>,
    SumAbs<T>: LaneFold<In = T, Total = f64>,
    MaxAbs<T>: LaneFold<In = T, Total = T>,
    MinAbs<T>: LaneFold<In = T, Total = T>,
    CountNonzero<T>: LaneFold<In = T, Total = u64>,
{
    let count = source.count;
    match fold {
        Fold::Prod => reduce::<Simple<Prod<T>>, Out>(source, output, &|total| Out::of(total)),
        Fold::Var { ddof } => reduce::<Variance<T>, Out>(source, output, &|total| {
            Out::of(total.variance(count, ddof))
        }),
        Fold::Std { ddof } => reduce::<Variance<T>, Out>(source, output, &|total| {
            Out::of(total.variance(count, ddof).sqrt())
        }),
        Fold::LogSumExp => {
            reduce::<LogSumExp<T>, Out>(source, output, &|total| Out::of(total.log()))
        }
        Fold::RootSumSquare if source.dtype == DType::F64 => {
            reduce::<Euclid, f64>(source, output, &|total| total.root())
        }
        Fold::RootSumSquare => {
            reduce::<Squared, Out>(source, output, &|total| Out::of(total.sqrt()))
        }
        Fold::MaxAbs => {
            reduce::<Simple<MaxAbs<T>>, Out>(source, output, &|total| Out::of(total.into()))
        }
        Fold::MinAbs => {
            reduce::<Simple<MinAbs<T>>, Out>(source, output, &|total| Out::of(total.into()))
        }
        Fold::CountNonzero => {
            reduce::<Simple<CountNonzero<T>>, Out>(source, output, &|total| Out::of(total as f64))
        }
        _ => reduce::<Simple<SumAbs<T>>, Out>(source, output, &|total| Out::of(total)),
    }
}

/// From this many results on, there is enough work for all threads without splitting one.
const MIN_UNSPLIT_RESULTS: usize = 64;

/// The conversion of totals to results.
type Finish<'a, F, T> = &'a (dyn Fn(<F as Folder>::Total) -> T + Sync);

/// Reduces by the plan of the source.
fn reduce<F: Folder, T: Pod + Send>(
    source: &ReduceInput<'_>,
    mut output: Output<'_>,
    finish: Finish<'_, F, T>,
) -> Result<()> {
    let out = output.all::<T>();
    let Some(plan) = source.plan else {
        out.fill(finish(F::EMPTY));
        return Ok(());
    };
    let reducer = Reducer::<F> {
        data: bytemuck::cast_slice(source.bytes),
        plan,
    };
    match reducer.units_per_piece(out.len()) {
        Some(units) => reducer.reduce_in_pieces(units, out, finish),
        None => {
            reducer.reduce_whole(out, finish);
            Ok(())
        }
    }
}

struct Reducer<'a, F: Folder> {
    data: &'a [F::In],
    plan: ReducePlan,
}

impl<F: Folder> Reducer<'_, F> {
    /// Number of units that a result can be split into: elements if it is a single run, rows if results are columns,
    /// otherwise runs.
    fn units(&self) -> usize {
        match (self.plan.run, self.plan.reduced.count) {
            (RunAxis::Reduced, 1) => self.plan.len,
            (_, count) => count,
        }
    }

    /// Units per piece if results are so few and so large that they must be split (split-K), otherwise `None`.
    fn units_per_piece(&self, results: usize) -> Option<usize> {
        let (plan, piece) = (&self.plan, pool::grain(size_of::<F::In>()));
        match plan.run {
            RunAxis::Reduced => {
                let unit = if plan.reduced.count == 1 { 1 } else { plan.len };
                let split =
                    plan.reduced.count * plan.len >= 2 * piece && results < MIN_UNSPLIT_RESULTS;
                split.then(|| (piece / unit).max(1))
            }
            RunAxis::Kept => {
                let strips = plan.kept.count * plan.len.div_ceil(FOLD_BLOCK_COLUMNS);
                let split = plan.reduced.count * plan.len.min(FOLD_BLOCK_COLUMNS) >= 2 * piece
                    && strips < MIN_UNSPLIT_RESULTS;
                // Enough rows per piece that the totals are few beside them.
                split.then(|| {
                    (piece / plan.len)
                        .next_multiple_of(FOLD_BLOCK_ROWS)
                        .max(4 * FOLD_BLOCK_ROWS)
                })
            }
        }
    }

    /// Distributes the results to the threads.
    fn reduce_whole<T: Pod + Send>(&self, out: &mut [T], finish: Finish<'_, F, T>) {
        let (plan, piece) = (&self.plan, pool::grain(size_of::<F::In>()));
        // Results per block, in whole rows if these are short, and elements per result.
        let (block, elements) = match plan.run {
            RunAxis::Kept if plan.len <= FOLD_BLOCK_COLUMNS => (
                FOLD_BLOCK_COLUMNS - FOLD_BLOCK_COLUMNS % plan.len,
                plan.reduced.count,
            ),
            RunAxis::Kept => (FOLD_BLOCK_COLUMNS, plan.reduced.count),
            RunAxis::Reduced => (FOLD_BLOCK_COLUMNS, plan.reduced.count * plan.len),
        };
        let step = match plan.run {
            RunAxis::Kept => (piece / elements).next_multiple_of(block),
            RunAxis::Reduced => piece / elements,
        };
        let step = step.max(1);
        pool::for_each_chunk(out, step, |i, out| {
            let mut totals = [F::EMPTY; FOLD_BLOCK_COLUMNS];
            for (j, out) in out.chunks_mut(block).enumerate() {
                let totals = &mut totals[..out.len()];
                self.fold(i * step + j * block, 0..self.units(), totals);
                for (to, &total) in out.iter_mut().zip(&*totals) {
                    *to = finish(total);
                }
            }
        });
    }

    /// Distributes pieces of results to the threads and merges their totals.
    fn reduce_in_pieces<T: Pod + Send>(
        &self,
        step: usize,
        out: &mut [T],
        finish: Finish<'_, F, T>,
    ) -> Result<()> {
        let width = match self.plan.run {
            RunAxis::Kept => self.plan.len,
            RunAxis::Reduced => 1,
        };
        let units = self.units();
        let pieces = units.div_ceil(step);
        let mut totals = try_vec::filled("reduce", out.len() * pieces, F::EMPTY)?;
        pool::for_each_chunk(&mut totals, width, |i, totals| {
            let from = i % pieces * step;
            self.fold(i / pieces * width, from..units.min(from + step), totals);
        });
        let results = out.chunks_mut(width).zip(totals.chunks(width * pieces));
        for (out, totals) in results {
            for (j, to) in out.iter_mut().enumerate() {
                let pieces = totals[j..].iter().step_by(width);
                *to = finish(pieces.fold(F::EMPTY, |a, &b| F::merge(a, b)));
            }
        }
        Ok(())
    }

    /// Folds a range of units of the results from `first` on into totals.
    fn fold(&self, first: usize, units: Range<usize>, totals: &mut [F::Total]) {
        let task = FoldTask {
            reducer: self,
            first,
            units,
            totals,
        };
        if F::VECTOR {
            simd::run_narrow(task);
        } else {
            task.run::<simd::Scalar>();
        }
    }
}

/// The fold of a range of units of consecutive results.
struct FoldTask<'a, F: Folder> {
    reducer: &'a Reducer<'a, F>,
    first: usize,
    units: Range<usize>,
    totals: &'a mut [F::Total],
}

impl<F: Folder> Task for FoldTask<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(mut self) {
        match self.reducer.plan.run {
            RunAxis::Reduced => self.fold_runs::<I>(),
            RunAxis::Kept => self.fold_columns::<I>(),
        }
    }
}

impl<F: Folder> FoldTask<'_, F> {
    /// Offset of the first element of kept index `k`.
    #[inline(always)]
    fn start(&self, k: usize) -> usize {
        let plan = &self.reducer.plan;
        plan.offset.wrapping_add_signed(plan.kept.at(k))
    }

    #[inline(always)]
    fn fold_runs<I: Isa>(&mut self) {
        let plan = &self.reducer.plan;
        // A single run or a piece of it, or a range of runs.
        let (runs, from, len) = match plan.reduced.count {
            1 => (0..1, self.units.start, self.units.len()),
            _ => (self.units.clone(), 0, plan.len),
        };
        for i in 0..self.totals.len() {
            let start = self.start(self.first + i) + from;
            let mut total = F::EMPTY;
            for r in runs.clone() {
                let at = start.wrapping_add_signed(plan.reduced.at(r));
                for block in self.reducer.data[at..][..len].chunks(FOLD_BLOCK_LEN) {
                    total = F::merge(total, F::run::<I>(block));
                }
            }
            self.totals[i] = total;
        }
    }

    #[inline(always)]
    fn fold_columns<I: Isa>(&mut self) {
        let plan = &self.reducer.plan;
        let mut scratch = F::SCRATCH;
        let mut wide = [F::EMPTY; FOLD_BLOCK_COLUMNS];
        // Short rows that are contiguous to each other are folded several at a time, as one wide row.
        let rows_per_group = match plan.reduced.single_stride() {
            Some(stride) if stride == plan.len as isize => FOLD_BLOCK_COLUMNS / plan.len,
            _ => 1,
        };
        let mut done = 0;
        while done < self.totals.len() {
            let (k, from) = (
                (self.first + done) / plan.len,
                (self.first + done) % plan.len,
            );
            let width = (plan.len - from)
                .min(self.totals.len() - done)
                .min(FOLD_BLOCK_COLUMNS);
            let start = self.start(k) + from;
            let rows = self.units.clone();
            let is_grouped =
                rows_per_group > 1 && width == plan.len && rows.len() >= 2 * rows_per_group;
            let (rows_per_group, group_width) = if is_grouped {
                (rows_per_group, rows_per_group * width)
            } else {
                (1, width)
            };
            let groups = rows.len() / rows_per_group;
            let wide = &mut wide[..group_width];
            wide.fill(F::EMPTY);
            let mut starts = [0; FOLD_BLOCK_ROWS];
            let mut g = 0;
            // After the groups, the remaining rows one by one.
            let all = groups + rows.len() % rows_per_group;
            while g < all {
                let (end, width) = if g < groups {
                    (groups, group_width)
                } else {
                    (all, width)
                };
                let now = FOLD_BLOCK_ROWS.min(end - g);
                for (i, start_of) in starts[..now].iter_mut().enumerate() {
                    let row = if g < groups {
                        (g + i) * rows_per_group
                    } else {
                        groups * rows_per_group + (g - groups) + i
                    };
                    *start_of = start.wrapping_add_signed(plan.reduced.at(rows.start + row));
                }
                let block = RowBlock {
                    data: self.reducer.data,
                    rows: &starts[..now],
                    width,
                };
                F::columns::<I>(block, &mut wide[..width], &mut scratch);
                g += now;
            }
            for i in width..group_width {
                wide[i % width] = F::merge(wide[i % width], wide[i]);
            }
            self.totals[done..done + width].copy_from_slice(&wide[..width]);
            done += width;
        }
    }
}
