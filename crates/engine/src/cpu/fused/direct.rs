//! A single elementwise op whose inputs have the layout of its result, or are a scalar, a row or a column of it: runs
//! without a program, and without blocks if possible.

use super::gather::splat;
use super::program;
use super::scratch::with_memory;
use super::{MAX_BLOCK_LEN, bytes_per_element, nontemporal};
use crate::Shape;
use crate::cpu::map::{Args, takes_scalar};
use crate::cpu::pool;
use crate::dispatch::{Input, Output};
use crate::ops::fused::Step;

/// An argument of a single op, with the bytes of an element.
#[derive(Clone, Copy)]
enum DirectArg<'a> {
    /// The layout of the result: the bytes from the first element on.
    Contiguous(&'a [u8], usize),
    /// One element.
    Scalar(ScalarBytes, usize),
    /// One row, broadcast over all rows of the result: the bytes from its first element on.
    Row(&'a [u8], usize),
    /// One element for each row of the result, contiguous.
    Column(&'a [u8], usize),
}

/// The bytes of an element of any type, with its alignment.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct ScalarBytes([u8; 8]);

/// Minimum row length for which one kernel call per row pays off.
const MIN_ROW_LEN: usize = 64;

impl<'a> DirectArg<'a> {
    fn of(input: &Input<'a>, shape: &Shape) -> Option<Self> {
        let size = input.dtype.size();
        if let Some(value) = input.constant {
            return Some(Self::Scalar(ScalarBytes(value.to_bytes(input.dtype)), size));
        }
        let layout = &input.layout;
        let bytes = &input.bytes[layout.offset() * size..];
        if layout.count() == shape.count() && layout.is_contiguous() {
            return Some(Self::Contiguous(bytes, size));
        }
        let (&inner, _) = shape.split_last()?;
        let (&own, outer) = layout.shape().split_last()?;
        if inner < MIN_ROW_LEN {
            return None;
        }
        let strides = layout.strides();
        let one = |axis: usize| layout.shape()[axis] == 1 || strides[axis] == 0;
        let last = outer.len();
        if own == inner && strides[last] == 1 && (0..last).all(one) {
            return Some(Self::Row(bytes, size));
        }
        let all_rows = *outer == shape[..shape.rank() - 1];
        let mut step = 1;
        let in_order = (0..last).rev().all(|axis| {
            let follows = strides[axis] == step || outer[axis] == 1;
            step *= outer[axis] as isize;
            follows
        });
        (one(last) && all_rows && in_order).then_some(Self::Column(bytes, size))
    }
}

/// Runs an op if all its inputs are [`DirectArg`]s; otherwise returns the output.
pub(super) fn run<'a>(step: Step, inputs: &[Input<'_>], output: Output<'a>) -> Option<Output<'a>> {
    let from = inputs[program::typed_arg(step.action)].dtype;
    let Some(kernel) = program::direct(step.action, from, step.dtype) else {
        return Some(output);
    };
    if output.aliases_input.is_some() {
        return Some(output);
    }
    let parameter = program::parameter(step.action);
    let same_layout = |i: &Input<'_>| i.constant.is_none() && i.layout.is_whole_of(&output.shape);
    let count = output.shape.count();
    let bytes = count * bytes_per_element(inputs, &output);
    if bytes <= pool::TASK_BYTES && inputs.iter().all(same_layout) {
        // The most frequent case, and so short that the analysis below would be noticeable.
        let [a, b, c] = [0, 1, 2].map(|i| inputs.get(i).map_or(&[][..], |i| i.bytes));
        kernel(&Args { a, b, c, parameter }, output.bytes);
        return None;
    }
    let mut direct_args = [DirectArg::Contiguous(&[], 0); 3];
    // Which scalars must be splatted to a block, and whether calls must stop at row ends.
    let (mut splats, mut by_row) = ([false; 3], false);
    for (i, input) in inputs.iter().enumerate() {
        direct_args[i] = match DirectArg::of(input, &output.shape) {
            Some(p) => p,
            None => return Some(output),
        };
        splats[i] = matches!(
            direct_args[i],
            DirectArg::Scalar(..) | DirectArg::Column(..)
        ) && !(program::takes_scalars(step.action, from)
            && takes_scalar(inputs.len(), i));
        by_row |= matches!(direct_args[i], DirectArg::Row(..) | DirectArg::Column(..));
    }
    let blocks = splats.contains(&true);
    let size = output.dtype.size();
    let is_nontemporal =
        nontemporal::AVAILABLE && output.bytes.len() >= nontemporal::MIN_NONTEMPORAL_BYTES;
    let row = if by_row {
        output.shape.last().copied().unwrap_or(1)
    } else {
        usize::MAX
    };
    // The `len` elements of an argument for the elements of the result from `at` on, or one that is broadcast.
    let elements = |i: usize, at: usize, len: usize| match &direct_args[i] {
        DirectArg::Contiguous(bytes, size) => &bytes[at * size..][..len * size],
        DirectArg::Row(bytes, size) => &bytes[at % row * size..][..len * size],
        DirectArg::Scalar(bytes, size) => &bytes.0[..*size],
        DirectArg::Column(bytes, size) => &bytes[at / row * size..][..*size],
    };
    // Calls `body` with ranges of a chunk of the result that do not cross row ends.
    let for_each_range =
        |start: usize, mut out: &mut [u8], body: &mut dyn FnMut(usize, &mut [u8])| {
            let mut at = start;
            while !out.is_empty() {
                let len = match row {
                    usize::MAX => out.len(),
                    row => ((row - at % row) * size).min(out.len()),
                };
                let (here, next) = std::mem::take(&mut out).split_at_mut(len);
                body(at, here);
                at += len / size;
                out = next;
            }
        };
    let call = |start: usize, out: &mut [u8]| {
        if !blocks && !is_nontemporal {
            for_each_range(start, out, &mut |at, out| {
                let len = out.len() / size;
                let [a, b, c] = [0, 1, 2].map(|i| elements(i, at, len));
                kernel(&Args { a, b, c, parameter }, out);
            });
            return;
        }
        with_memory((direct_args.len() + 1) * DIRECT_BLOCK_BYTES, |memory| {
            let (here, repeated) = memory.split_at_mut(DIRECT_BLOCK_BYTES);
            let block_len = DIRECT_BLOCK_LEN.min(out.len() / size);
            for (i, block) in repeated.chunks_exact_mut(DIRECT_BLOCK_BYTES).enumerate() {
                if let DirectArg::Scalar(_, size) = direct_args[i]
                    && splats[i]
                {
                    splat(elements(i, start, 1), &mut block[..block_len * size]);
                }
            }
            for_each_range(start, out, &mut |start, out| {
                for (i, block) in repeated.chunks_exact_mut(DIRECT_BLOCK_BYTES).enumerate() {
                    if let DirectArg::Column(_, size) = direct_args[i]
                        && splats[i]
                    {
                        splat(
                            elements(i, start, 1),
                            &mut block[..block_len.min(row) * size],
                        );
                    }
                }
                for (i, out) in out.chunks_mut(block_len * size).enumerate() {
                    let at = start + i * block_len;
                    let len = out.len() / size;
                    let [a, b, c] = [0, 1, 2].map(|i| {
                        if splats[i] {
                            &repeated[i * DIRECT_BLOCK_BYTES..][..DIRECT_BLOCK_BYTES]
                        } else {
                            elements(i, at, len)
                        }
                    });
                    let args = Args { a, b, c, parameter };
                    if is_nontemporal {
                        let here = &mut here[..out.len()];
                        kernel(&args, here);
                        nontemporal::copy(here, out);
                    } else {
                        kernel(&args, out);
                    }
                }
            });
        });
        if is_nontemporal {
            nontemporal::fence();
        }
    };
    let chunk = pool::grain(bytes_per_element(inputs, &output)).next_multiple_of(MAX_BLOCK_LEN);
    if count <= chunk {
        call(0, output.bytes);
    } else {
        pool::for_each_chunk(output.bytes, chunk * size, |i, out| call(i * chunk, out));
    }
    None
}

/// Elements of a block, where blocks are needed: for splatted scalars, and for results that are written with
/// non-temporal stores.
const DIRECT_BLOCK_LEN: usize = 1024;

/// Bytes of a block of the widest elements.
const DIRECT_BLOCK_BYTES: usize = DIRECT_BLOCK_LEN * 8;
