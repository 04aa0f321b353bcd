//! Reductions on the CPU.
//!
//! Memory is read once, in its own order, whatever the axes. Work is cut into pieces that depend on the
//! shape alone and whose totals are merged in order, so the bits are the same for every number of threads.

pub(super) mod fold;
mod moment;
pub(crate) mod plan;

use std::ops::Range;

use bytemuck::Pod;
use half::{bf16, f16};

use self::fold::{
    All, Any, BLOCK, Block, COLUMNS, CountNonzero, Folder, Lanes, Max, MaxAbs, Min, MinAbs, Prod,
    ROWS, Simple, Sum, SumAbs, Widen,
};
use self::moment::{Euclid, LogSumExp, Real, Squared, Variance};
use self::plan::{Plan, Run};
use super::simd::{self, Isa, Task};
use super::{pool, try_vec};
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::Rule;
use crate::ops::reduce::{Fold, Reduce};
use crate::storage::Storage;
use crate::{DType, Layout, Result};

/// Runs a reduction.
pub(crate) fn run(op: &Reduce, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    let input = inputs[0];
    let shape = input.layout.shape();
    let count = op.axes.iter().map(|a| shape[a]).product();
    let (copy, wide);
    let mut source = Source {
        bytes: input.bytes,
        dtype: input.dtype,
        plan: None,
        count,
    };
    if count > 0 {
        source.plan = Plan::new(&input.layout, op.axes);
        if source.plan.is_none() {
            copy = Dense::new(op.name(), input)?;
            source.bytes = copy.bytes();
            source.plan = Plan::new(&Layout::contiguous(*shape), op.axes);
        }
    }
    let common = matches!(
        op.fold,
        Fold::Sum | Fold::Mean | Fold::Min | Fold::Max | Fold::Any | Fold::All
    );
    if !common && matches!(source.dtype, DType::F16 | DType::BF16) {
        // Not often asked for: a copy costs less than it would to have all of these for all types.
        let mut copy = Storage::new(op.name(), 2 * source.bytes.len())?;
        let to = bytemuck::cast_slice_mut(copy.bytes_mut().expect("just made"));
        with_type!(floats source.dtype, T => widen::<T>(bytemuck::cast_slice(source.bytes), to),
            else unreachable!("one of the two"));
        wide = copy;
        source.bytes = wide.bytes();
        source.dtype = DType::F32;
    }
    dispatch(op.fold, &source, output)
}

/// Converts small floats to `f32`, all of the memory that a plan may walk.
fn widen<T: Widen<Wide: Into<f64>>>(from: &[T], to: &mut [f32]) {
    pool::for_each_chunk(to, pool::grain(4), |i, to| {
        for (to, x) in to.iter_mut().zip(&from[i * pool::grain(4)..]) {
            *to = x.wide().into() as f32;
        }
    });
}

/// What is reduced.
struct Source<'a> {
    bytes: &'a [u8],
    dtype: DType,
    /// Nothing where there is nothing to reduce.
    plan: Option<Plan>,
    /// Elements of each result.
    count: usize,
}

/// Float results, from the `f64` that totals are.
trait Float: Pod {
    fn of(x: f64) -> Self;
}

macro_rules! float {
    ($($type:ident |$x:ident| $of:expr),*) => {$(
        impl Float for $type {
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

/// Reduces floats with `$floats` and all else with `$ints`, whose totals are the results.
macro_rules! by_kind {
    ($source:ident, $output:ident, $fold:ident, |$total:ident| $finish:expr) => {
        with_type!(floats $source.dtype, T => {
            reduce::<Simple<$fold<T>>, T>($source, $output, &|$total| Float::of($finish))
        }, else with_type!(ints $source.dtype, T => {
            reduce::<Simple<$fold<T>>, <$fold<T> as Lanes>::Total>($source, $output, &|total| total)
        }, else unreachable!("floats and integers are all there is")))
    };
}

/// Reduces by bits: all that matters is which elements are 0.
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

/// The same number; totals are `f32` or `f64`.
fn wide(x: impl Into<f64>) -> f64 {
    x.into()
}

fn dispatch(fold: Fold, source: &Source<'_>, output: Output<'_>) -> Result<()> {
    // The sum of nothing is 0, not the -0 that sums begin with.
    let zero = if source.count == 0 { 0.0 } else { -0.0 };
    let n = source.count as f64;
    match fold {
        Fold::Sum => by_kind!(source, output, Sum, |total| total + zero),
        Fold::Min => by_kind!(source, output, Min, |total| wide(total)),
        Fold::Max => by_kind!(source, output, Max, |total| wide(total)),
        Fold::Any => by_bits!(source, output, Any),
        Fold::All => by_bits!(source, output, All),
        Fold::Mean => with_type!(floats source.dtype, T => {
            reduce::<Simple<Sum<T>>, T>(source, output, &|total| Float::of(total / n))
        }, else with_type!(ints source.dtype, T => {
            reduce::<Simple<Sum<T>>, f64>(source, output, &|total| total as f64 / n)
        }, else unreachable!("floats and integers are all there is"))),
        _ if source.dtype == DType::F64 => statistic::<f64, f64>(fold, source, output),
        _ => with_type!(floats output.dtype, T => statistic::<f32, T>(fold, source, output),
            else with_type!(ints source.dtype, T => {
                reduce::<Simple<Prod<T>>, <Prod<T> as Lanes>::Total>(source, output, &|total| total)
            }, else unreachable!("floats and integers are all there is"))),
    }
}

/// The folds that there are of `f32` and `f64` only; the result may be of another float type.
fn statistic<T, Out>(fold: Fold, source: &Source<'_>, output: Output<'_>) -> Result<()>
where
    T: Real,
    Out: Float + Send,
    Sum<T>: Lanes<In = T, Lane = T, Total = f64>,
    Prod<T>: Lanes<In = T, Total = f64>,
    Max<T>: Lanes<In = T, Lane = T, Total = T>,
    SumAbs<T>: Lanes<In = T, Total = f64>,
    MaxAbs<T>: Lanes<In = T, Total = T>,
    MinAbs<T>: Lanes<In = T, Total = T>,
    CountNonzero<T>: Lanes<In = T, Total = u64>,
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

/// Results that are enough for all threads without cutting one.
const ENOUGH: usize = 64;

/// What makes results of totals.
type Finish<'a, F, T> = &'a (dyn Fn(<F as Folder>::Total) -> T + Sync);

/// Reduces by the plan of the source.
fn reduce<F: Folder, T: Pod + Send>(
    source: &Source<'_>,
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
    match reducer.cut(out.len()) {
        Some(cut) => reducer.reduce_in_pieces(cut, out, finish),
        None => {
            reducer.reduce_whole(out, finish);
            Ok(())
        }
    }
}

struct Reducer<'a, F: Folder> {
    data: &'a [F::In],
    plan: Plan,
}

impl<F: Folder> Reducer<'_, F> {
    /// What results can be cut by: elements where each is one run, rows where they are columns of them,
    /// otherwise runs.
    fn units(&self) -> usize {
        match (self.plan.run, self.plan.reduced.count) {
            (Run::Reduced, 1) => self.plan.len,
            (_, count) => count,
        }
    }

    /// How many units make a piece, where results are so few and so large that they must be cut.
    fn cut(&self, results: usize) -> Option<usize> {
        let (plan, piece) = (&self.plan, pool::grain(size_of::<F::In>()));
        match plan.run {
            Run::Reduced => {
                let unit = if plan.reduced.count == 1 { 1 } else { plan.len };
                let cut = plan.reduced.count * plan.len >= 2 * piece && results < ENOUGH;
                cut.then(|| (piece / unit).max(1))
            }
            Run::Kept => {
                let strips = plan.kept.count * plan.len.div_ceil(COLUMNS);
                let cut =
                    plan.reduced.count * plan.len.min(COLUMNS) >= 2 * piece && strips < ENOUGH;
                // Enough rows that their totals are few beside them.
                cut.then(|| (piece / plan.len).next_multiple_of(ROWS).max(4 * ROWS))
            }
        }
    }

    /// Shares the results among threads.
    fn reduce_whole<T: Pod + Send>(&self, out: &mut [T], finish: Finish<'_, F, T>) {
        let (plan, piece) = (&self.plan, pool::grain(size_of::<F::In>()));
        // Whole rows of columns, where they are short.
        let (some, each) = match plan.run {
            Run::Kept if plan.len <= COLUMNS => (COLUMNS - COLUMNS % plan.len, plan.reduced.count),
            Run::Kept => (COLUMNS, plan.reduced.count),
            Run::Reduced => (COLUMNS, plan.reduced.count * plan.len),
        };
        let step = match plan.run {
            Run::Kept => (piece / each).next_multiple_of(some),
            Run::Reduced => piece / each,
        };
        let step = step.max(1);
        pool::for_each_chunk(out, step, |i, part| {
            let mut totals = [F::EMPTY; COLUMNS];
            for (j, part) in part.chunks_mut(some).enumerate() {
                let totals = &mut totals[..part.len()];
                self.fold(i * step + j * some, 0..self.units(), totals);
                for (to, &total) in part.iter_mut().zip(&*totals) {
                    *to = finish(total);
                }
            }
        });
    }

    /// Shares pieces of results among threads and merges them.
    fn reduce_in_pieces<T: Pod + Send>(
        &self,
        step: usize,
        out: &mut [T],
        finish: Finish<'_, F, T>,
    ) -> Result<()> {
        let width = match self.plan.run {
            Run::Kept => self.plan.len,
            Run::Reduced => 1,
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
                let parts = totals[j..].iter().step_by(width);
                *to = finish(parts.fold(F::EMPTY, |a, &b| F::merge(a, b)));
            }
        }
        Ok(())
    }

    /// Folds some units of the results from `first` on into totals.
    fn fold(&self, first: usize, units: Range<usize>, totals: &mut [F::Total]) {
        let part = Part {
            of: self,
            first,
            units,
            totals,
        };
        if F::VECTOR {
            simd::run_narrow(part);
        } else {
            part.run::<simd::Scalar>();
        }
    }
}

/// Some units of some results.
struct Part<'a, F: Folder> {
    of: &'a Reducer<'a, F>,
    first: usize,
    units: Range<usize>,
    totals: &'a mut [F::Total],
}

impl<F: Folder> Task for Part<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<I: Isa>(mut self) {
        match self.of.plan.run {
            Run::Reduced => self.fold_runs::<I>(),
            Run::Kept => self.fold_columns::<I>(),
        }
    }
}

impl<F: Folder> Part<'_, F> {
    /// Where the elements of kept index `k` begin.
    #[inline(always)]
    fn start(&self, k: usize) -> usize {
        let plan = &self.of.plan;
        plan.offset.wrapping_add_signed(plan.kept.at(k))
    }

    #[inline(always)]
    fn fold_runs<I: Isa>(&mut self) {
        let plan = &self.of.plan;
        // One run, or a piece of it; or some runs.
        let (runs, from, len) = match plan.reduced.count {
            1 => (0..1, self.units.start, self.units.len()),
            _ => (self.units.clone(), 0, plan.len),
        };
        for i in 0..self.totals.len() {
            let start = self.start(self.first + i) + from;
            let mut total = F::EMPTY;
            for r in runs.clone() {
                let at = start.wrapping_add_signed(plan.reduced.at(r));
                for block in self.of.data[at..][..len].chunks(BLOCK) {
                    total = F::merge(total, F::run::<I>(block));
                }
            }
            self.totals[i] = total;
        }
    }

    #[inline(always)]
    fn fold_columns<I: Isa>(&mut self) {
        let plan = &self.of.plan;
        let mut scratch = F::SCRATCH;
        let mut wide = [F::EMPTY; COLUMNS];
        // Rows shorter than a strip that follow each other without gaps are folded several at a time.
        let together = match plan.reduced.single_stride() {
            Some(stride) if stride == plan.len as isize => COLUMNS / plan.len,
            _ => 1,
        };
        let mut done = 0;
        while done < self.totals.len() {
            let (k, from) = (
                (self.first + done) / plan.len,
                (self.first + done) % plan.len,
            );
            let width = (plan.len - from).min(self.totals.len() - done).min(COLUMNS);
            let start = self.start(k) + from;
            let rows = self.units.clone();
            let several = together > 1 && width == plan.len && rows.len() >= 2 * together;
            let (together, width_now) = if several {
                (together, together * width)
            } else {
                (1, width)
            };
            let groups = rows.len() / together;
            let wide = &mut wide[..width_now];
            wide.fill(F::EMPTY);
            let mut starts = [0; ROWS];
            let mut g = 0;
            // After the groups, the rows that are left, one by one.
            let all = groups + rows.len() % together;
            while g < all {
                let (end, width) = if g < groups {
                    (groups, width_now)
                } else {
                    (all, width)
                };
                let now = ROWS.min(end - g);
                for (i, start_of) in starts[..now].iter_mut().enumerate() {
                    let row = if g < groups {
                        (g + i) * together
                    } else {
                        groups * together + (g - groups) + i
                    };
                    *start_of = start.wrapping_add_signed(plan.reduced.at(rows.start + row));
                }
                let block = Block {
                    data: self.of.data,
                    rows: &starts[..now],
                    width,
                };
                F::columns::<I>(block, &mut wide[..width], &mut scratch);
                g += now;
            }
            for i in width..width_now {
                wide[i % width] = F::merge(wide[i % width], wide[i]);
            }
            self.totals[done..done + width].copy_from_slice(&wide[..width]);
            done += width;
        }
    }
}
