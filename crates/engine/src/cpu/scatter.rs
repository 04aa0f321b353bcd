//! `scatter` and `scatter_add` on the CPU: in order, so that the last one wins and sums are always the
//! same; blocks that have nothing to do with each other run side by side.

use bytemuck::Pod;
use half::{bf16, f16};

use super::axis_split::AxisSplit;
use super::index::{self, SOME};
use super::{copy, pool};
use crate::dispatch::{Dense, Input, Output};
use crate::dtype::with_type;
use crate::ops::Rule;
use crate::ops::scatter::Scatter;
use crate::{DType, Result};

/// Puts or adds elements where the indices say.
pub(crate) fn run(op: &Scatter, inputs: &[Input<'_>], mut output: Output<'_>) -> Result<()> {
    let indices = Dense::new(op.name(), inputs[1])?;
    let source = Dense::new(op.name(), inputs[2])?;
    let into = AxisSplit::new(&output.shape, op.axis);
    let from = AxisSplit::new(inputs[1].layout.shape(), op.axis);
    let dtype = inputs[1].dtype;
    index::check(
        op.name(),
        &indices,
        dtype,
        (inputs[1].layout.count(), into.len),
    )?;
    copy_first(inputs[0], &mut output);
    let places = |start, places: &mut [usize]| {
        let done = index::places(op.name(), &indices, dtype, (start, into.len), places);
        debug_assert!(done.is_ok(), "checked above");
    };
    let element = output.dtype;
    let bytes = output.bytes;
    if op.add && element == DType::Bool {
        // Truth values are or-ed.
        scatter::<u8>(source.all(), [from, into], bytes, &places, |a, b| a | b);
    } else if op.add {
        with_type!(element, T => {
            let out = bytemuck::cast_slice_mut(bytes);
            scatter::<T>(source.all(), [from, into], out, &places, Add::add);
        });
    } else {
        match element.size() {
            1 => put::<u8>(&source, [from, into], bytes, &places),
            2 => put::<u16>(&source, [from, into], bytes, &places),
            4 => put::<u32>(&source, [from, into], bytes, &places),
            _ => put::<u64>(&source, [from, into], bytes, &places),
        }
    }
    Ok(())
}

/// Makes the output begin as the first input, which it may be already.
pub(super) fn copy_first(first: Input<'_>, output: &mut Output<'_>) {
    if output.holds != Some(0) {
        copy::copy(
            &first,
            Output {
                bytes: output.bytes,
                dtype: output.dtype,
                shape: output.shape,
                holds: None,
            },
        );
    }
}

trait Add: Pod + Send + Sync {
    fn add(self, other: Self) -> Self;
}

macro_rules! add {
    ($($type:ident |$a:ident, $b:ident| $add:expr);*) => {$(
        impl Add for $type {
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

type Places<'a> = &'a (dyn Fn(usize, &mut [usize]) + Sync);

fn put<T: Pod + Send + Sync>(
    source: &Dense<'_>,
    around: [AxisSplit; 2],
    bytes: &mut [u8],
    places: Places<'_>,
) {
    let out = bytemuck::cast_slice_mut(bytes);
    scatter::<T>(source.all(), around, out, places, |_, new| new);
}

fn scatter<T: Pod + Send + Sync>(
    source: &[T],
    [from, into]: [AxisSplit; 2],
    out: &mut [T],
    places: Places<'_>,
    join: impl Fn(T, T) -> T + Sync,
) {
    let inner = from.inner;
    let (block, each) = (into.len * inner, from.len * inner);
    let step = pool::grain(each * (2 * size_of::<T>() + 8));
    pool::for_each_chunk(out, step * block, |i, out| {
        let mut scratch = [0; SOME];
        for (j, out) in out.chunks_exact_mut(block).enumerate() {
            let first = (i * step + j) * each;
            let mut column = 0;
            for start in (0..each).step_by(SOME) {
                let scratch = &mut scratch[..SOME.min(each - start)];
                places(first + start, scratch);
                for (&place, &x) in scratch.iter().zip(&source[first + start..]) {
                    let to = &mut out[place * inner + column];
                    *to = join(*to, x);
                    column += 1;
                    if column == inner {
                        column = 0;
                    }
                }
            }
        }
    });
}
