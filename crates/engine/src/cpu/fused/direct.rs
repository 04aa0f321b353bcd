//! One op whose inputs lie in memory as its result does, or as a row or a column of it: no program, no blocks
//! if they can be avoided.

use super::gather::splat;
use super::program;
use super::scratch::with_memory;
use super::{BLOCK, stream, touched};
use crate::Shape;
use crate::cpu::map::{Args, takes_number};
use crate::cpu::pool;
use crate::dispatch::{Input, Output};
use crate::ops::fused::Step;

/// An argument of a single op.
#[derive(Clone, Copy)]
enum Plain<'a> {
    /// Lies as the result does: the bytes from its first element on.
    Flat(&'a [u8], usize),
    /// One element.
    Number(Element, usize),
    /// One row for all rows of the result: the bytes from its first element on.
    Row(&'a [u8], usize),
    /// One element for each row of the result, one after the other.
    Column(&'a [u8], usize),
}

/// The bytes of an element of any type, aligned as it is.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Element([u8; 8]);

/// Rows of so many elements are worth a call each.
const LEAST_ROW: usize = 64;

impl<'a> Plain<'a> {
    fn of(input: &Input<'a>, shape: &Shape) -> Option<Self> {
        let size = input.dtype.size();
        if let Some(value) = input.constant {
            return Some(Self::Number(Element(value.to_bytes(input.dtype)), size));
        }
        let layout = &input.layout;
        let bytes = &input.bytes[layout.offset() * size..];
        if layout.count() == shape.count() && layout.is_contiguous() {
            return Some(Self::Flat(bytes, size));
        }
        let (&inner, _) = shape.split_last()?;
        let (&own, outer) = layout.shape().split_last()?;
        if inner < LEAST_ROW {
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

/// Runs one op whose inputs are numbers or lie in memory as its result does, without preparation; gives
/// the output back otherwise.
pub(super) fn run<'a>(step: Step, inputs: &[Input<'_>], output: Output<'a>) -> Option<Output<'a>> {
    let from = inputs[program::leading(step.action)].dtype;
    let Some(kernel) = program::direct(step.action, from, step.dtype) else {
        return Some(output);
    };
    if output.holds.is_some() {
        return Some(output);
    }
    let parameter = program::parameter(step.action);
    let lies_alike = |i: &Input<'_>| i.constant.is_none() && i.layout.is_whole_of(&output.shape);
    let count = output.shape.count();
    if count * touched(inputs, &output) <= pool::TASK_BYTES && inputs.iter().all(lies_alike) {
        // The most frequent of all, and so short that finding out what follows would show.
        let [a, b, c] = [0, 1, 2].map(|i| inputs.get(i).map_or(&[][..], |i| i.bytes));
        kernel(&Args { a, b, c, parameter }, output.bytes);
        return None;
    }
    let mut plain = [Plain::Flat(&[], 0); 3];
    // Whether an argument is a number that is repeated in a block, and whether rows count.
    let (mut repeats, mut by_row) = ([false; 3], false);
    for (i, input) in inputs.iter().enumerate() {
        plain[i] = match Plain::of(input, &output.shape) {
            Some(p) => p,
            None => return Some(output),
        };
        repeats[i] = matches!(plain[i], Plain::Number(..) | Plain::Column(..))
            && !(program::takes_numbers(step.action, from) && takes_number(inputs.len(), i));
        by_row |= matches!(plain[i], Plain::Row(..) | Plain::Column(..));
    }
    let blocks = repeats.contains(&true);
    let size = output.dtype.size();
    let past = stream::AVAILABLE && output.bytes.len() >= stream::LARGE;
    let row = if by_row {
        output.shape.last().copied().unwrap_or(1)
    } else {
        usize::MAX
    };
    // The elements of an argument from number `at` of the result on: so many, or one for all of a row or more.
    let lying = |i: usize, at: usize, len: usize| match &plain[i] {
        Plain::Flat(bytes, size) => &bytes[at * size..][..len * size],
        Plain::Row(bytes, size) => &bytes[at % row * size..][..len * size],
        Plain::Number(bytes, size) => &bytes.0[..*size],
        Plain::Column(bytes, size) => &bytes[at / row * size..][..*size],
    };
    // Calls `body` with stretches of a part of the result that end with a row at the latest.
    let stretches = |start: usize, mut out: &mut [u8], body: &mut dyn FnMut(usize, &mut [u8])| {
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
        if !blocks && !past {
            stretches(start, out, &mut |at, out| {
                let len = out.len() / size;
                let [a, b, c] = [0, 1, 2].map(|i| lying(i, at, len));
                kernel(&Args { a, b, c, parameter }, out);
            });
            return;
        }
        with_memory((plain.len() + 1) * ROOM, |memory| {
            let (here, repeated) = memory.split_at_mut(ROOM);
            let most = LEN.min(out.len() / size);
            for (i, block) in repeated.chunks_exact_mut(ROOM).enumerate() {
                if let Plain::Number(_, size) = plain[i]
                    && repeats[i]
                {
                    splat(lying(i, start, 1), &mut block[..most * size]);
                }
            }
            stretches(start, out, &mut |start, out| {
                for (i, block) in repeated.chunks_exact_mut(ROOM).enumerate() {
                    if let Plain::Column(_, size) = plain[i]
                        && repeats[i]
                    {
                        splat(lying(i, start, 1), &mut block[..most.min(row) * size]);
                    }
                }
                for (i, out) in out.chunks_mut(most * size).enumerate() {
                    let at = start + i * most;
                    let len = out.len() / size;
                    let [a, b, c] = [0, 1, 2].map(|i| {
                        if repeats[i] {
                            &repeated[i * ROOM..][..ROOM]
                        } else {
                            lying(i, at, len)
                        }
                    });
                    let args = Args { a, b, c, parameter };
                    if past {
                        let here = &mut here[..out.len()];
                        kernel(&args, here);
                        stream::copy(here, out);
                    } else {
                        kernel(&args, out);
                    }
                }
            });
        });
        if past {
            stream::finish();
        }
    };
    let chunk = pool::grain(touched(inputs, &output)).next_multiple_of(BLOCK);
    if count <= chunk {
        call(0, output.bytes);
    } else {
        pool::for_each_chunk(output.bytes, chunk * size, |i, out| call(i * chunk, out));
    }
    None
}

/// Elements of a block, where blocks are needed: for numbers that are repeated, and for results that are written past
/// the caches.
const LEN: usize = 1024;

/// Bytes of a block of the widest elements.
const ROOM: usize = LEN * 8;
