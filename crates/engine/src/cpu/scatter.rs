//! `scatter` and `scatter_add` on the CPU. Elements are written in order, so the last one wins and sums are
//! deterministic; independent outer blocks run in parallel.

use bytemuck::Pod;
use half::{bf16, f16};

use super::axis_split::AxisSplit;
use super::index::{AxisIndices, INDEX_BLOCK_LEN};
use super::{copy, pool};
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::Rule;
use crate::ops::scatter::Scatter;
use crate::{DType, Result};

/// Overwrites or adds to the indexed elements. All indices are checked before anything is written.
pub(crate) fn run(op: &Scatter, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let source = Dense::new(op.name(), inputs[2])?;
    let into = AxisSplit::new(&output.shape, op.axis);
    let from = AxisSplit::new(inputs[1].layout.shape(), op.axis);
    let indices = AxisIndices::new(op.name(), inputs[1], into.len)?;
    indices.check(inputs[1].layout.count())?;
    copy_first(inputs[0], &mut output);
    let resolve = |start, positions: &mut [usize]| {
        let result = indices.resolve(start, positions);
        debug_assert!(result.is_ok(), "checked above");
    };
    let element = output.dtype;
    let bytes = output.bytes;
    if op.add && element == DType::Bool {
        // Booleans are or-ed.
        scatter::<u8>(source.all(), [from, into], bytes, &resolve, |a, b| a | b);
    } else if op.add {
        with_type!(element, T => {
            let out = bytemuck::cast_slice_mut(bytes);
            scatter::<T>(source.all(), [from, into], out, &resolve, ScatterAdd::add);
        });
    } else {
        match element.size() {
            1 => put::<u8>(&source, [from, into], bytes, &resolve),
            2 => put::<u16>(&source, [from, into], bytes, &resolve),
            4 => put::<u32>(&source, [from, into], bytes, &resolve),
            _ => put::<u64>(&source, [from, into], bytes, &resolve),
        }
    }
    Ok(())
}

/// Copies the first input to the output, unless they already share memory.
pub(super) fn copy_first(first: Input<'_>, output: &mut Output<'_>) {
    if output.aliases_input != Some(0) {
        copy::copy(
            &first,
            Output {
                bytes: output.bytes,
                dtype: output.dtype,
                shape: output.shape,
                aliases_input: None,
            },
        );
    }
}

/// Addition of `scatter_add`: integers wrap, half-precision floats add in `f32`.
trait ScatterAdd: Pod + Send + Sync {
    fn add(self, other: Self) -> Self;
}

macro_rules! add {
    ($($type:ident |$a:ident, $b:ident| $add:expr);*) => {$(
        impl ScatterAdd for $type {
            #[inline(always)]
            fn add(self, $b: Self) -> Self {
                let $a = self;
                $add
            }
        }
    )*};
}
add!(u8 |a, b| a.wrapping_add(b); u16 |a, b| a.wrapping_add(b); u32 |a, b| a.wrapping_add(b);
    u64 |a, b| a.wrapping_add(b); i8 |a, b| a.wrapping_add(b); i16 |a, b| a.wrapping_add(b);
    i32 |a, b| a.wrapping_add(b); i64 |a, b| a.wrapping_add(b); f32 |a, b| a + b; f64 |a, b| a + b;
    f16 |a, b| Self::from_f32(a.to_f32() + b.to_f32());
    bf16 |a, b| Self::from_f32(a.to_f32() + b.to_f32()));

/// Resolves the indices from a given one on into positions.
type ResolveIndices<'a> = &'a (dyn Fn(usize, &mut [usize]) + Sync);

fn put<T: Pod + Send + Sync>(
    source: &Dense<'_>,
    splits: [AxisSplit; 2],
    bytes: &mut [u8],
    resolve: ResolveIndices<'_>,
) {
    let out = bytemuck::cast_slice_mut(bytes);
    scatter::<T>(source.all(), splits, out, resolve, |_, new| new);
}

fn scatter<T: Pod + Send + Sync>(
    source: &[T],
    [from, into]: [AxisSplit; 2],
    out: &mut [T],
    resolve: ResolveIndices<'_>,
    combine: impl Fn(T, T) -> T + Sync,
) {
    let inner = from.inner;
    let (block, updates) = (into.len * inner, from.len * inner);
    let step = pool::grain(updates * (2 * size_of::<T>() + 8));
    pool::for_each_chunk(out, step * block, |i, out| {
        let mut scratch = [0; INDEX_BLOCK_LEN];
        for (j, out) in out.chunks_exact_mut(block).enumerate() {
            let first = (i * step + j) * updates;
            let mut column = 0;
            for start in (0..updates).step_by(INDEX_BLOCK_LEN) {
                let scratch = &mut scratch[..INDEX_BLOCK_LEN.min(updates - start)];
                resolve(first + start, scratch);
                for (&position, &x) in scratch.iter().zip(&source[first + start..]) {
                    let to = &mut out[position * inner + column];
                    *to = combine(*to, x);
                    column += 1;
                    if column == inner {
                        column = 0;
                    }
                }
            }
        }
    });
}
