//! One op whose inputs lie in memory as its result does: no program, no blocks if they can be avoided.

use super::gather::splat;
use super::program::{self, computed};
use super::scratch::with_memory;
use super::{BLOCK, stream, touched};
use crate::cpu::map::Args;
use crate::cpu::pool;
use crate::dispatch::{Input, Output};
use crate::ops::fused::Step;

/// An argument of a single op.
#[derive(Clone, Copy)]
enum Plain<'a> {
    /// Lies as the result does: the bytes from its first element on.
    Flat(&'a [u8], usize),
    /// One element.
    Number([u8; 8], usize),
}

impl<'a> Plain<'a> {
    fn of(input: &Input<'a>, count: usize) -> Option<Self> {
        let size = input.dtype.size();
        if let Some(value) = input.constant {
            return Some(Self::Number(value.to_bytes(input.dtype), size));
        }
        let layout = &input.layout;
        let lies = layout.count() == count && layout.is_contiguous();
        lies.then(|| Self::Flat(&input.bytes[layout.offset() * size..], size))
    }
}

/// Runs one op whose inputs are numbers or lie in memory as its result does, without preparation; gives
/// the output back otherwise.
pub(super) fn run<'a>(step: Step, inputs: &[Input<'_>], output: Output<'a>) -> Option<Output<'a>> {
    let half = |d| computed(d) != d;
    if output.holds.is_some() || half(output.dtype) || inputs.iter().any(|i| half(i.dtype)) {
        return Some(output);
    }
    let count = output.shape.count();
    let mut plain = [Plain::Flat(&[], 0); 3];
    let mut numbers = false;
    for (plain, input) in plain.iter_mut().zip(inputs) {
        match Plain::of(input, count) {
            Some(p) => *plain = p,
            None => return Some(output),
        }
        numbers |= input.constant.is_some();
    }
    let from = inputs[program::leading(step.action)].dtype;
    let kernel = program::kernel(step.action, from, step.dtype);
    let parameter = program::parameter(step.action);
    let size = output.dtype.size();
    let past = stream::AVAILABLE && output.bytes.len() >= stream::LARGE;
    let call = |start: usize, out: &mut [u8]| {
        let flat = |i: usize, at: usize, len: usize| match plain[i] {
            Plain::Flat(bytes, size) => &bytes[at * size..][..len * size],
            Plain::Number(..) => &[],
        };
        if !numbers && !past {
            let len = out.len() / size;
            let [a, b, c] = [0, 1, 2].map(|i| flat(i, start, len));
            kernel(&Args { a, b, c, parameter }, out);
            return;
        }
        with_memory((plain.len() + 1) * ROOM, |memory| {
            let (here, numbers) = memory.split_at_mut(ROOM);
            let len = LEN.min(out.len() / size);
            for (plain, block) in plain.iter().zip(numbers.chunks_exact_mut(ROOM)) {
                if let Plain::Number(bytes, size) = plain {
                    splat(&bytes[..*size], &mut block[..len * size]);
                }
            }
            for (i, out) in out.chunks_mut(len * size).enumerate() {
                let at = start + i * len;
                let len = out.len() / size;
                let [a, b, c] = [0, 1, 2].map(|i| match plain[i] {
                    Plain::Flat(..) => flat(i, at, len),
                    Plain::Number(..) => &numbers[i * ROOM..][..ROOM],
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
        if past {
            stream::finish();
        }
    };
    let chunk = pool::grain(touched(inputs, &output)).next_multiple_of(BLOCK);
    if count <= chunk {
        call(0, output.bytes);
    } else {
        pool::pieces(output.bytes, chunk * size, |i, out| call(i * chunk, out));
    }
    None
}

/// Elements of a block, where blocks are needed: for numbers, which are repeated that often, and for
/// results that are written past the caches.
const LEN: usize = 512;

/// Bytes of a block of the widest elements.
const ROOM: usize = LEN * 8;
