//! `cumsum`, `cumprod` and `cummax` on the CPU.
//!
//! Along a row each result depends on the previous one. A block is split into eight segments that are scanned in
//! parallel lanes, to keep eight additions in flight; then the prefix of each segment is added.

use half::{bf16, f16};

use super::axis_split::AxisSplit;
use super::pool;
use crate::Result;
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::Rule;
use crate::ops::scan::{Running, Scan};

/// Segments of a block, which are scanned in parallel lanes.
const SEGMENTS: usize = 8;
/// Elements of a segment.
const SEGMENT_LEN: usize = 128;

/// Columns that are scanned per pass.
const SCAN_BLOCK_COLUMNS: usize = 512;

/// Runs the op.
pub(crate) fn run(op: &Scan, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    let split = AxisSplit::new(inputs[0].layout.shape(), op.axis);
    let data = Dense::new(op.name(), inputs[0])?;
    macro_rules! by_type {
        ($fold:ident) => {
            with_type!(inputs[0].dtype, T => scan::<$fold<T>>(data.all(), split, output))
        };
    }
    match op.running {
        Running::Sum => by_type!(RunningSum),
        Running::Prod => by_type!(RunningProd),
        Running::Max => by_type!(RunningMax),
    }
    Ok(())
}

/// The associative operation of a scan.
trait ScanFold {
    type In: bytemuck::Pod + Send + Sync;
    type Out: bytemuck::Pod + Send + Sync;
    /// An accumulator of a few elements.
    type Lane: Copy;
    /// An accumulator of all.
    type Total: Copy + Send + Sync;
    const NEUTRAL: Self::Lane;
    const EMPTY: Self::Total;
    fn lift(x: Self::In) -> Self::Lane;
    fn combine(a: Self::Lane, b: Self::Lane) -> Self::Lane;
    fn add_lane(a: Self::Total, b: Self::Lane) -> Self::Total;
    fn merge(a: Self::Total, b: Self::Total) -> Self::Total;
    fn finish(total: Self::Total) -> Self::Out;
}

struct RunningSum<T>(T);
struct RunningProd<T>(T);
struct RunningMax<T>(T);

macro_rules! fold {
    ($name:ident $([$in:ty, $lane:ty, $total:ty, $out:ty])*
        empty $empty:expr, lift |$x:ident| $lift:expr, combine |$a:ident, $b:ident| $combine:expr,
        finish |$t:ident| $finish:expr) => {$(
        impl ScanFold for $name<$in> {
            type In = $in;
            type Out = $out;
            type Lane = $lane;
            type Total = $total;
            const NEUTRAL: $lane = $empty as $lane;
            const EMPTY: $total = $empty as $total;
            #[inline(always)]
            fn lift($x: $in) -> $lane {
                $lift as $lane
            }
            #[inline(always)]
            fn combine($a: $lane, $b: $lane) -> $lane {
                $combine
            }
            #[inline(always)]
            fn add_lane($a: $total, b: $lane) -> $total {
                let $b = b as $total;
                $combine
            }
            #[inline(always)]
            fn merge($a: $total, $b: $total) -> $total {
                $combine
            }
            #[inline(always)]
            fn finish($t: $total) -> $out {
                $finish
            }
        }
    )*};
}

fold!(RunningSum [f32, f32, f64, f32] [f64, f64, f64, f64]
    empty -0.0, lift |x| x, combine |a, b| a + b, finish |t| t as _);
fold!(RunningSum [f16, f32, f64, f16] empty -0.0, lift |x| x.to_f32(), combine |a, b| a + b,
    finish |t| f16::from_f64(t));
fold!(RunningSum [bf16, f32, f64, bf16] empty -0.0, lift |x| x.to_f32(), combine |a, b| a + b,
    finish |t| bf16::from_f64(t));
fold!(RunningSum [u8, u64, u64, u64] [u16, u64, u64, u64] [u32, u64, u64, u64] [u64, u64, u64, u64]
    [i8, i64, i64, i64] [i16, i64, i64, i64] [i32, i64, i64, i64] [i64, i64, i64, i64]
    empty 0, lift |x| x, combine |a, b| a.wrapping_add(b), finish |t| t);
fold!(RunningProd [f32, f64, f64, f32] [f64, f64, f64, f64]
    empty 1.0, lift |x| x, combine |a, b| a * b, finish |t| t as _);
fold!(RunningProd [f16, f64, f64, f16] empty 1.0, lift |x| x.to_f64(), combine |a, b| a * b,
    finish |t| f16::from_f64(t));
fold!(RunningProd [bf16, f64, f64, bf16] empty 1.0, lift |x| x.to_f64(), combine |a, b| a * b,
    finish |t| bf16::from_f64(t));
fold!(RunningProd [u8, u64, u64, u64] [u16, u64, u64, u64] [u32, u64, u64, u64] [u64, u64, u64, u64]
    [i8, i64, i64, i64] [i16, i64, i64, i64] [i32, i64, i64, i64] [i64, i64, i64, i64]
    empty 1, lift |x| x, combine |a, b| a.wrapping_mul(b), finish |t| t);

macro_rules! greater {
    ($a:ident, $b:ident) => {
        if $b > $a || $b != $b { $b } else { $a }
    };
}
fold!(RunningMax [f32, f32, f32, f32] [f64, f64, f64, f64]
    empty f32::NEG_INFINITY, lift |x| x, combine |a, b| greater!(a, b), finish |t| t);
fold!(RunningMax [f16, f32, f32, f16] empty f32::NEG_INFINITY, lift |x| x.to_f32(),
    combine |a, b| greater!(a, b), finish |t| f16::from_f32(t));
fold!(RunningMax [bf16, f32, f32, bf16] empty f32::NEG_INFINITY, lift |x| x.to_f32(),
    combine |a, b| greater!(a, b), finish |t| bf16::from_f32(t));
macro_rules! max {
    ($($type:ident),*) => {$(
        fold!(RunningMax [$type, $type, $type, $type] empty $type::MIN, lift |x| x,
            combine |a, b| a.max(b), finish |t| t);
    )*};
}
max!(u8, u16, u32, u64, i8, i16, i32, i64);

fn scan<F: ScanFold>(data: &[F::In], split: AxisSplit, mut output: Output<'_>) {
    let AxisSplit { outer, len, inner } = split;
    let out = output.all::<F::Out>();
    let piece = pool::grain(size_of::<F::In>() + size_of::<F::Out>());
    if inner > 1 {
        let rows = len * inner;
        let step = (piece / rows).max(1);
        pool::for_each_chunk(out, step * rows, |i, out| {
            let data = &data[i * step * rows..];
            for (data, out) in data.chunks_exact(rows).zip(out.chunks_exact_mut(rows)) {
                scan_columns::<F>(data, inner, out);
            }
        });
        return;
    }
    if len >= 2 * piece && outer < 64 {
        for (data, out) in data.chunks_exact(len).zip(out.chunks_exact_mut(len)) {
            let mut prefixes = vec![F::EMPTY; len.div_ceil(piece)];
            pool::for_each_chunk(&mut prefixes, 1, |i, total| {
                let piece = &data[i * piece..len.min((i + 1) * piece)];
                total[0] = piece.chunks(SEGMENT_LEN).fold(F::EMPTY, |total, segment| {
                    let lane = |lane, &x| F::combine(lane, F::lift(x));
                    F::add_lane(total, segment.iter().fold(F::NEUTRAL, lane))
                });
            });
            let mut total = F::EMPTY;
            for prefix in &mut prefixes {
                let piece_total = *prefix;
                *prefix = total;
                total = F::merge(total, piece_total);
            }
            pool::for_each_chunk(out, piece, |i, out| {
                scan_row::<F>(prefixes[i], &data[i * piece..][..out.len()], out);
            });
        }
        return;
    }
    let step = (piece / len).max(1);
    pool::for_each_chunk(out, step * len, |i, out| {
        let data = &data[i * step * len..];
        for (data, out) in data.chunks_exact(len).zip(out.chunks_exact_mut(len)) {
            scan_row::<F>(F::EMPTY, data, out);
        }
    });
}

/// Scans a row, starting from the total before it.
fn scan_row<F: ScanFold>(mut before: F::Total, data: &[F::In], out: &mut [F::Out]) {
    let mut local = [F::NEUTRAL; SEGMENTS * SEGMENT_LEN];
    let (blocks, rest) = data.as_chunks::<{ SEGMENTS * SEGMENT_LEN }>();
    let (out, out_rest) = out.split_at_mut(data.len() - rest.len());
    for (block, out) in blocks
        .iter()
        .zip(out.chunks_exact_mut(SEGMENTS * SEGMENT_LEN))
    {
        let mut lanes = [F::NEUTRAL; SEGMENTS];
        for i in 0..SEGMENT_LEN {
            for (p, lane) in lanes.iter_mut().enumerate() {
                *lane = F::combine(*lane, F::lift(block[p * SEGMENT_LEN + i]));
                local[p * SEGMENT_LEN + i] = *lane;
            }
        }
        let segments = out
            .chunks_exact_mut(SEGMENT_LEN)
            .zip(local.chunks_exact(SEGMENT_LEN));
        for ((out, local), lane) in segments.zip(lanes) {
            for (to, &x) in out.iter_mut().zip(local) {
                *to = F::finish(F::add_lane(before, x));
            }
            before = F::add_lane(before, lane);
        }
    }
    for (to, &x) in out_rest.iter_mut().zip(rest) {
        before = F::add_lane(before, F::lift(x));
        *to = F::finish(before);
    }
}

/// Scans all columns, a block of them at a time.
fn scan_columns<F: ScanFold>(data: &[F::In], inner: usize, out: &mut [F::Out]) {
    let mut totals = [F::EMPTY; SCAN_BLOCK_COLUMNS];
    for from in (0..inner).step_by(SCAN_BLOCK_COLUMNS) {
        let width = SCAN_BLOCK_COLUMNS.min(inner - from);
        totals.fill(F::EMPTY);
        for (data, out) in data.chunks_exact(inner).zip(out.chunks_exact_mut(inner)) {
            let elements = data[from..from + width]
                .iter()
                .zip(&mut out[from..from + width]);
            for (total, (&x, to)) in totals.iter_mut().zip(elements) {
                *total = F::add_lane(*total, F::lift(x));
                *to = F::finish(*total);
            }
        }
    }
}
