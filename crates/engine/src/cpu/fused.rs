//! Elementwise ops on the CPU: one at a time or as programs, a block of elements at a time.
//!
//! A block is small enough that all values of a program stay in the fastest cache; only inputs and the
//! result move through memory. The result is cut into chunks of fixed size for the threads; no element
//! depends on another, so the cuts do not change bits.

mod direct;
mod gather;
mod pair;
mod program;
mod scratch;
mod stream;

use gather::splat;
pub(crate) use gather::{Axes, Strides, Walk};
use program::{Leaf, Program, Source, computed};
use scratch::with_memory;

use super::map::Args;
use super::pool;
use crate::dispatch::{Input, Output};
use crate::ops::fused::{Action, Fused, Step};
use crate::{DType, Result};

/// Elements of a block, at most.
const BLOCK: usize = 1024;

/// Elements of a block, at least: below, the calls cost more than the loops.
const LEAST: usize = 128;

/// Bytes that the blocks of a program may take: they share the fastest cache (32 KiB and more) with the
/// inputs and the result.
const SCRATCH: usize = 24 << 10;

/// Rows of this length or more are walked through one by one, so that inputs broadcast over rows are read
/// in place; shorter ones are gathered, several to a block.
const ROW: usize = 256;

/// Runs a single elementwise op.
pub(crate) fn run_one(action: Action, inputs: &[Input<'_>], output: Output<'_>) {
    let step = Step {
        action,
        args: [0, 1, 2],
        dtype: output.dtype,
    };
    if let Some(output) = direct::run(step, inputs, output) {
        run_program(&[step], inputs, output);
    }
}

/// An input, as the blocks of a program see it.
struct Feed<'a> {
    size: usize,
    kind: Kind<'a>,
}

impl Feed<'_> {
    /// Bytes that it needs for a chunk where it lies across.
    fn turned_bytes(&self, chunk: usize) -> usize {
        match self.kind {
            Kind::Spread { turned: true, .. } => (chunk * self.size).next_multiple_of(64),
            _ => 0,
        }
    }
}

enum Kind<'a> {
    /// One element; where it must be repeated, its block is filled once.
    Number([u8; 8]),
    /// Lies as the result does: the bytes from its first element on.
    Flat(&'a [u8]),
    /// Is where the result goes: copied away before a block is written.
    Held,
    /// Lies anyhow.
    Spread {
        bytes: &'a [u8],
        offset: usize,
        strides: Strides,
        /// Whether all rows are the same: a block of whole rows is gathered once.
        repeats: bool,
        /// Whether neighbours of another axis than the innermost are neighbours in memory.
        turned: bool,
    },
}

/// Runs a fused op.
pub(crate) fn run(op: &Fused, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    run_program(&op.steps, inputs, output);
    Ok(())
}

/// Runs a program.
pub(crate) fn run_program(steps: &[Step], inputs: &[Input<'_>], output: Output<'_>) {
    let count = output.shape.count();
    let mut feeds = Vec::with_capacity(inputs.len());
    let mut leaves = Vec::with_capacity(inputs.len());
    for (i, input) in inputs.iter().enumerate() {
        let (feed, leaf) = feed(input, &output, output.holds == Some(i), count);
        feeds.push(feed);
        leaves.push(leaf);
    }
    let axes = collapse(&mut feeds, &output);
    let program = Program::new(steps, &leaves);

    // Every input has a block of its own, used or not, and the slots follow.
    let width = feeds.iter().map(|f| f.size);
    let width = width.fold(program.width.max(output.dtype.size()), usize::max);
    let blocks = feeds.len() + program.slots + 1;
    let fit = SCRATCH / (width * blocks.max(1)) / 64 * 64;
    let mut block = fit.clamp(LEAST, BLOCK).min(count.next_multiple_of(64));
    let inner = axes.inner();
    let by_row = axes.rank() > 1 && inner >= ROW;
    if by_row {
        // Blocks of about the same length, none of which goes past the end of a row.
        block = inner.div_ceil(inner.div_ceil(block));
    } else if axes.rank() > 1 && inner <= block {
        block -= block % inner;
    }
    let plan = Plan {
        feeds: &feeds,
        axes: &axes,
        program: &program,
        block,
        row: if by_row { inner } else { usize::MAX },
        stride: (block * width).next_multiple_of(64),
        size: output.dtype.size(),
        past: stream::AVAILABLE && output.holds.is_none() && output.bytes.len() >= stream::LARGE,
    };
    let mut chunk = pool::grain(touched(inputs, &output)).next_multiple_of(block);
    let across = feeds
        .iter()
        .any(|f| matches!(f.kind, Kind::Spread { turned: true, .. }));
    if across {
        chunk = axes.chunk(chunk);
    }
    if count <= chunk {
        plan.run(0, output.bytes);
    } else {
        pool::for_each_chunk(output.bytes, chunk * plan.size, |i, out| {
            plan.run(i * chunk, out)
        });
    }
}

/// Bytes read and written for an element.
fn touched(inputs: &[Input<'_>], output: &Output<'_>) -> usize {
    let read = inputs.iter().filter(|i| i.constant.is_none());
    read.map(|i| i.dtype.size()).sum::<usize>() + output.dtype.size()
}

fn feed<'a>(input: &Input<'a>, output: &Output<'_>, held: bool, count: usize) -> (Feed<'a>, Leaf) {
    let mut size = input.dtype.size();
    let number = |bytes: [u8; 8]| {
        // Spread in the type that is computed in.
        let bytes = match input.dtype {
            DType::F16 => wide(half::f16::from_ne_bytes([bytes[0], bytes[1]]).to_f32()),
            DType::BF16 => wide(half::bf16::from_ne_bytes([bytes[0], bytes[1]]).to_f32()),
            _ => bytes,
        };
        Kind::Number(bytes)
    };
    let layout = &input.layout;
    let kind = if let Some(value) = input.constant {
        number(value.to_bytes(input.dtype))
    } else if held {
        Kind::Held
    } else if layout.count() == count && layout.is_contiguous() {
        Kind::Flat(&input.bytes[layout.offset() * size..])
    } else if layout
        .shape()
        .iter()
        .zip(layout.strides())
        .all(|(&d, &s)| d == 1 || s == 0)
    {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(&input.bytes[layout.offset() * size..][..size]);
        number(bytes)
    } else {
        let over = layout.broadcast_to("fused", output.shape);
        let over = over.expect("inputs of an elementwise op broadcast to its result");
        let mut strides = [0; crate::MAX_RANK];
        strides[..over.strides().len()].copy_from_slice(over.strides());
        Kind::Spread {
            bytes: input.bytes,
            offset: over.offset(),
            strides,
            repeats: false,
            turned: false,
        }
    };
    let number = matches!(kind, Kind::Number(_));
    if number {
        size = computed(input.dtype).size();
    }
    let leaf = Leaf {
        dtype: input.dtype,
        number,
    };
    (Feed { size, kind }, leaf)
}

fn wide(x: f32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&x.to_ne_bytes());
    bytes
}

/// The axes that the inputs that are not flat need.
fn collapse(feeds: &mut [Feed<'_>], output: &Output<'_>) -> Axes {
    let mut all = Vec::new();
    for feed in &*feeds {
        if let Kind::Spread { strides, .. } = &feed.kind {
            all.push(*strides);
        }
    }
    let axes = Axes::collapse(&output.shape, &mut all);
    let mut all = all.into_iter();
    for feed in feeds {
        if let Kind::Spread {
            strides,
            repeats,
            turned,
            ..
        } = &mut feed.kind
        {
            *strides = all.next().expect("one for each");
            *turned = axes.turned(strides).is_some();
            *repeats = strides[..axes.rank() - 1].iter().all(|&s| s == 0);
        }
    }
    axes
}

/// How a program runs over a result.
struct Plan<'a> {
    feeds: &'a [Feed<'a>],
    axes: &'a Axes,
    program: &'a Program,
    /// Elements of a block.
    block: usize,
    /// Elements between the places that no block goes past.
    row: usize,
    /// Bytes from one block of scratch memory to the next.
    stride: usize,
    /// Bytes of an element of the result.
    size: usize,
    /// Whether the result is written past the caches.
    past: bool,
}

impl Plan<'_> {
    /// Computes the elements from number `start` on, as many as `out` has room for.
    fn run(&self, start: usize, out: &mut [u8]) {
        // One more for a result that is written past the caches.
        let blocks = self.feeds.len() + self.program.slots + 1;
        let scratch = blocks * self.stride;
        let chunk = out.len() / self.size;
        let turned: usize = self.feeds.iter().map(|f| f.turned_bytes(chunk)).sum();
        with_memory(scratch + turned, |memory| {
            let (memory, mut turned) = memory.split_at_mut(scratch);
            let mut scratch: Vec<&mut [u8]> = memory.chunks_exact_mut(self.stride).collect();
            // What lies across is brought together for the whole chunk: a block alone would read whole
            // cache lines for single elements.
            for (feed, block) in self.feeds.iter().zip(&mut scratch) {
                if let Kind::Spread {
                    bytes,
                    offset,
                    strides,
                    turned: true,
                    ..
                } = &feed.kind
                {
                    let (own, rest) = turned.split_at_mut(feed.turned_bytes(chunk));
                    turned = rest;
                    let walk = Walk {
                        axes: self.axes,
                        offset: *offset,
                        strides,
                    };
                    walk.gather(feed.size, bytes, start, &mut own[..chunk * feed.size]);
                    *block = own;
                }
            }
            self.run_in(start, out, &mut scratch);
        });
        if self.past {
            stream::finish();
        }
    }

    fn run_in(&self, start: usize, out: &mut [u8], scratch: &mut [&mut [u8]]) {
        let first = self.block.min(out.len() / self.size);
        for (i, (feed, block)) in self.feeds.iter().zip(&mut *scratch).enumerate() {
            if let Kind::Number(bytes) = &feed.kind {
                let times = if self.program.repeats(i) { first } else { 1 };
                splat(&bytes[..feed.size], &mut block[..times * feed.size]);
            }
        }
        // Where the block of each input begins in its bytes; `None` for those in scratch memory.
        let mut places = vec![None; self.feeds.len()];
        let (own, slots) = scratch.split_at_mut(self.feeds.len());
        let (mut at, mut rest) = (start, out);
        while !rest.is_empty() {
            let left = rest.len() / self.size;
            let len = match self.row {
                usize::MAX => self.block.min(left),
                row => (self.block - at % row % self.block)
                    .min(row - at % row)
                    .min(left),
            };
            let (here, next) = std::mem::take(&mut rest).split_at_mut(len * self.size);
            for ((feed, block), place) in self.feeds.iter().zip(&mut *own).zip(&mut places) {
                let block = &mut block[..len * feed.size];
                *place = self.fetch(feed, block, (start, at), here);
            }
            let inputs = |i: usize| match (places[i], &self.feeds[i].kind) {
                (Some(from), Kind::Spread { turned: true, .. }) => {
                    &own[i][from..][..len * self.feeds[i].size]
                }
                (Some(from), Kind::Flat(bytes) | Kind::Spread { bytes, .. }) => {
                    &bytes[from..][..len * self.feeds[i].size]
                }
                _ => &*own[i],
            };
            self.calls(inputs, slots, len, here);
            at += len;
            rest = next;
        }
    }

    /// Finds the elements of an input for a block: in place, or brought to its block of scratch memory.
    fn fetch(
        &self,
        feed: &Feed<'_>,
        block: &mut [u8],
        (start, at): (usize, usize),
        here: &[u8],
    ) -> Option<usize> {
        let size = feed.size;
        match &feed.kind {
            Kind::Number(_) => {}
            Kind::Flat(_) => return Some(at * size),
            Kind::Held => block.copy_from_slice(here),
            Kind::Spread {
                bytes,
                offset,
                strides,
                repeats,
                turned,
            } => {
                if *turned {
                    return Some((at - start) * size);
                }
                let walk = Walk {
                    axes: self.axes,
                    offset: *offset,
                    strides,
                };
                let inner = strides[self.axes.rank() - 1];
                if self.row != usize::MAX && inner == 1 {
                    return Some(walk.place(at) * size);
                }
                // Blocks begin where rows do, so a later one is the same, or the beginning of it.
                let again = *repeats
                    && self.row == usize::MAX
                    && self.block.is_multiple_of(self.axes.inner());
                if at == start || !again {
                    walk.gather(size, bytes, at, block);
                }
            }
        }
        None
    }

    /// Calls the kernels for a block.
    fn calls<'a>(
        &self,
        inputs: impl Fn(usize) -> &'a [u8],
        slots: &mut [&mut [u8]],
        len: usize,
        here: &mut [u8],
    ) {
        let (past, slots) = slots.split_last_mut().expect("one more than the slots");
        for call in &self.program.calls {
            let end = call.to == usize::MAX;
            // Taken out while it is written; it is never an argument of the same call.
            let to: &mut [u8] = if end {
                &mut []
            } else {
                std::mem::take(&mut slots[call.to])
            };
            let arg = |source: Source| match source {
                Source::None => &[][..],
                Source::Input(i) => inputs(i),
                Source::Number(i) => &inputs(i)[..self.feeds[i].size],
                Source::Slot(i) => &*slots[i],
            };
            let args = Args {
                a: arg(call.args[0]),
                b: arg(call.args[1]),
                c: arg(call.args[2]),
                parameter: call.parameter,
            };
            if end && self.past {
                let block = &mut past[..here.len()];
                (call.kernel)(&args, block);
                stream::copy(block, here);
            } else if end {
                (call.kernel)(&args, here);
            } else {
                (call.kernel)(&args, &mut to[..len * call.size]);
                slots[call.to] = to;
            }
        }
    }
}
