//! Elementwise ops on the CPU, single or fused to programs, interpreted a block of elements at a time.
//!
//! A block is small enough that all values of a program stay in the L1 cache; only inputs and the result move through
//! memory. The result is split into chunks of fixed size for the threads; elements are independent, so the splits do not
//! change bits.

mod direct;
mod gather;
mod nontemporal;
mod pair;
mod program;
mod scratch;

use std::borrow::Borrow;
use std::sync::OnceLock;

use self::gather::splat;
pub(crate) use self::gather::{MergedAxes, StridedView, Strides};
use self::program::{ArgSource, InputType, Program, compute_type};
use self::scratch::with_memory;
use super::map::Args;
use super::pool;
use crate::dispatch::{Input, Output};
use crate::ops::fused::{Action, Fused, Step};
use crate::{DType, Result};

/// Maximum elements of a block.
const MAX_BLOCK_LEN: usize = 1024;

/// Minimum elements of a block: below, the calls cost more than the loops.
const MIN_BLOCK_LEN: usize = 128;

/// Maximum bytes of all blocks of a program: they share the L1 cache (32 KiB and more) with the inputs and the result.
const MAX_BLOCKS_BYTES: usize = 24 << 10;

/// Rows of at least this length are processed one by one, so that inputs broadcast over rows are read in place; shorter
/// ones are gathered, several per block.
const MIN_IN_PLACE_ROW_LEN: usize = 256;

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

/// An input of a program.
struct BlockInput<'a> {
    /// Bytes of an element.
    size: usize,
    access: Access<'a>,
}

impl BlockInput<'_> {
    /// Scratch bytes for a chunk if the input is transposed, otherwise 0.
    fn transposed_bytes(&self, chunk: usize) -> usize {
        match self.access {
            Access::Strided {
                transposed: true, ..
            } => (chunk * self.size).next_multiple_of(64),
            _ => 0,
        }
    }
}

/// The way in which blocks of an input are read.
enum Access<'a> {
    /// A scalar; if it must be splatted, its block is filled once.
    Scalar([u8; 8]),
    /// The same layout as the result: the bytes from the first element on.
    Contiguous(&'a [u8]),
    /// The same memory as the result: copied to scratch before a block is written.
    Aliased,
    /// Any other layout.
    Strided {
        bytes: &'a [u8],
        offset: usize,
        strides: Strides,
        /// Whether all rows are the same: a block of whole rows is gathered once.
        repeats: bool,
        /// Whether the smallest stride is that of an axis other than the innermost.
        transposed: bool,
    },
}

/// Runs a fused op.
pub(crate) fn run(op: &Fused, inputs: &[Input<'_>], output: Output<'_>) -> Result<()> {
    run_program(&op.steps, inputs, output);
    Ok(())
}

/// A program that was lowered before, for inputs of the same types and layouts.
pub(crate) use self::program::Program as LoweredProgram;

/// Runs a fused op that is run again and again with inputs of the same types and layouts: it is lowered once.
pub(crate) fn run_lowered(
    op: &Fused,
    lowered: &OnceLock<LoweredProgram>,
    inputs: &[Input<'_>],
    output: Output<'_>,
) {
    let once = |types: &[InputType]| lowered.get_or_init(|| Program::new(&op.steps, types));
    run_with(once, inputs, output);
}

/// Runs a program.
pub(crate) fn run_program(steps: &[Step], inputs: &[Input<'_>], output: Output<'_>) {
    run_with(|types| Program::new(steps, types), inputs, output);
}

/// Runs the program that `lower` returns for the types of the inputs.
fn run_with<P: Borrow<Program>>(
    lower: impl FnOnce(&[InputType]) -> P,
    inputs: &[Input<'_>],
    output: Output<'_>,
) {
    let count = output.shape.count();
    let mut block_inputs = Vec::with_capacity(inputs.len());
    let mut types = Vec::with_capacity(inputs.len());
    for (i, input) in inputs.iter().enumerate() {
        let is_aliased = output.aliases_input == Some(i);
        let (input, input_type) = block_input(input, &output, is_aliased, count);
        block_inputs.push(input);
        types.push(input_type);
    }
    let axes = merge_axes(&mut block_inputs, &output);
    let program = lower(&types);
    let program = program.borrow();

    // The scratch has a block for each input, used or not, followed by the slots.
    let width = block_inputs.iter().map(|input| input.size);
    let width = width.fold(program.width.max(output.dtype.size()), usize::max);
    let blocks = block_inputs.len() + program.slots + 1;
    let fit = MAX_BLOCKS_BYTES / (width * blocks.max(1)) / 64 * 64;
    let mut block = fit
        .clamp(MIN_BLOCK_LEN, MAX_BLOCK_LEN)
        .min(count.next_multiple_of(64));
    let inner = axes.inner();
    let by_row = axes.rank() > 1 && inner >= MIN_IN_PLACE_ROW_LEN;
    if by_row {
        // Blocks of about the same length that do not cross the end of a row.
        block = inner.div_ceil(inner.div_ceil(block));
    } else if axes.rank() > 1 && inner <= block {
        block -= block % inner;
    }
    let interpreter = Interpreter {
        inputs: &block_inputs,
        axes: &axes,
        program,
        block,
        row: if by_row { inner } else { usize::MAX },
        stride: (block * width).next_multiple_of(64),
        size: output.dtype.size(),
        nontemporal: nontemporal::AVAILABLE
            && output.aliases_input.is_none()
            && output.bytes.len() >= nontemporal::MIN_NONTEMPORAL_BYTES,
    };
    let mut chunk = pool::grain(bytes_per_element(inputs, &output)).next_multiple_of(block);
    let any_transposed = block_inputs.iter().any(|input| {
        matches!(
            input.access,
            Access::Strided {
                transposed: true,
                ..
            }
        )
    });
    if any_transposed {
        chunk = axes.chunk(chunk);
    }
    if count <= chunk {
        interpreter.run(0, output.bytes);
    } else {
        pool::for_each_chunk(output.bytes, chunk * interpreter.size, |i, out| {
            interpreter.run(i * chunk, out)
        });
    }
}

/// Bytes read and written per element.
fn bytes_per_element(inputs: &[Input<'_>], output: &Output<'_>) -> usize {
    let read = inputs.iter().filter(|i| i.constant.is_none());
    read.map(|i| i.dtype.size()).sum::<usize>() + output.dtype.size()
}

fn block_input<'a>(
    input: &Input<'a>,
    output: &Output<'_>,
    is_aliased: bool,
    count: usize,
) -> (BlockInput<'a>, InputType) {
    let mut size = input.dtype.size();
    let scalar = |bytes: [u8; 8]| {
        // Scalars are converted to the compute type once.
        let bytes = match input.dtype {
            DType::F16 => f32_bytes(half::f16::from_ne_bytes([bytes[0], bytes[1]]).to_f32()),
            DType::BF16 => f32_bytes(half::bf16::from_ne_bytes([bytes[0], bytes[1]]).to_f32()),
            _ => bytes,
        };
        Access::Scalar(bytes)
    };
    let layout = &input.layout;
    let access = if let Some(value) = input.constant {
        scalar(value.to_bytes(input.dtype))
    } else if is_aliased {
        Access::Aliased
    } else if layout.count() == count && layout.is_contiguous() {
        Access::Contiguous(&input.bytes[layout.offset() * size..])
    } else if layout
        .shape()
        .iter()
        .zip(layout.strides())
        .all(|(&d, &s)| d == 1 || s == 0)
    {
        let mut bytes = [0; 8];
        bytes[..size].copy_from_slice(&input.bytes[layout.offset() * size..][..size]);
        scalar(bytes)
    } else {
        let broadcast = layout.broadcast_to("fused", output.shape);
        let broadcast = broadcast.expect("inputs of an elementwise op broadcast to its result");
        let mut strides = [0; crate::MAX_RANK];
        strides[..broadcast.strides().len()].copy_from_slice(broadcast.strides());
        Access::Strided {
            bytes: input.bytes,
            offset: broadcast.offset(),
            strides,
            repeats: false,
            transposed: false,
        }
    };
    let scalar = matches!(access, Access::Scalar(_));
    if scalar {
        size = compute_type(input.dtype).size();
    }
    let input_type = InputType {
        dtype: input.dtype,
        scalar,
    };
    (BlockInput { size, access }, input_type)
}

fn f32_bytes(x: f32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&x.to_ne_bytes());
    bytes
}

/// Merges the axes of all strided inputs, and completes their access.
fn merge_axes(inputs: &mut [BlockInput<'_>], output: &Output<'_>) -> MergedAxes {
    let mut all = Vec::new();
    for input in &*inputs {
        if let Access::Strided { strides, .. } = &input.access {
            all.push(*strides);
        }
    }
    let axes = MergedAxes::collapse(&output.shape, &mut all);
    let mut all = all.into_iter();
    for input in inputs {
        if let Access::Strided {
            strides,
            repeats,
            transposed,
            ..
        } = &mut input.access
        {
            *strides = all.next().expect("one per strided input");
            *transposed = axes.transposed_axis(strides).is_some();
            *repeats = strides[..axes.rank() - 1].iter().all(|&s| s == 0);
        }
    }
    axes
}

/// The position of a block in the result, in elements.
#[derive(Clone, Copy)]
struct BlockPosition {
    /// Start of the chunk that the block belongs to.
    chunk_start: usize,
    /// Start of the block.
    start: usize,
}

/// Runs a program over a result.
struct Interpreter<'a> {
    inputs: &'a [BlockInput<'a>],
    axes: &'a MergedAxes,
    program: &'a Program,
    /// Elements of a block.
    block: usize,
    /// Row length if blocks must not cross rows, otherwise `usize::MAX`.
    row: usize,
    /// Bytes from one block of scratch memory to the next.
    stride: usize,
    /// Bytes of an element of the result.
    size: usize,
    /// Whether the result is written with non-temporal stores.
    nontemporal: bool,
}

impl Interpreter<'_> {
    /// Fills `out` with the elements from number `start` on.
    fn run(&self, start: usize, out: &mut [u8]) {
        // One more block for a result that is written with non-temporal stores.
        let blocks = self.inputs.len() + self.program.slots + 1;
        let scratch = blocks * self.stride;
        let chunk = out.len() / self.size;
        let transposed: usize = self
            .inputs
            .iter()
            .map(|input| input.transposed_bytes(chunk))
            .sum();
        with_memory(scratch + transposed, |memory| {
            let (memory, mut transposed) = memory.split_at_mut(scratch);
            let mut scratch: Vec<&mut [u8]> = memory.chunks_exact_mut(self.stride).collect();
            // Gather transposed inputs per chunk: a single block would touch one cache line per element.
            for (input, block) in self.inputs.iter().zip(&mut scratch) {
                if let Access::Strided {
                    bytes,
                    offset,
                    strides,
                    transposed: true,
                    ..
                } = &input.access
                {
                    let (gathered, rest) = transposed.split_at_mut(input.transposed_bytes(chunk));
                    transposed = rest;
                    let view = StridedView {
                        axes: self.axes,
                        offset: *offset,
                        strides,
                    };
                    view.gather(
                        input.size,
                        bytes,
                        start,
                        &mut gathered[..chunk * input.size],
                    );
                    *block = gathered;
                }
            }
            self.run_blocks(start, out, &mut scratch);
        });
        if self.nontemporal {
            nontemporal::fence();
        }
    }

    fn run_blocks(&self, start: usize, out: &mut [u8], scratch: &mut [&mut [u8]]) {
        let first = self.block.min(out.len() / self.size);
        for (i, (input, block)) in self.inputs.iter().zip(&mut *scratch).enumerate() {
            if let Access::Scalar(bytes) = &input.access {
                let times = if self.program.needs_splat(i) {
                    first
                } else {
                    1
                };
                splat(&bytes[..input.size], &mut block[..times * input.size]);
            }
        }
        // Byte offset of each input's block if it is read in place; `None` if it is in scratch memory.
        let mut offsets = vec![None; self.inputs.len()];
        let (input_blocks, slots) = scratch.split_at_mut(self.inputs.len());
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
            let position = BlockPosition {
                chunk_start: start,
                start: at,
            };
            let blocks = self.inputs.iter().zip(&mut *input_blocks);
            for ((input, block), offset) in blocks.zip(&mut offsets) {
                let block = &mut block[..len * input.size];
                *offset = self.fetch(input, block, position, here);
            }
            let inputs = |i: usize| match (offsets[i], &self.inputs[i].access) {
                (
                    Some(from),
                    Access::Strided {
                        transposed: true, ..
                    },
                ) => &input_blocks[i][from..][..len * self.inputs[i].size],
                (Some(from), Access::Contiguous(bytes) | Access::Strided { bytes, .. }) => {
                    &bytes[from..][..len * self.inputs[i].size]
                }
                _ => &*input_blocks[i],
            };
            self.calls(inputs, slots, len, here);
            at += len;
            rest = next;
        }
    }

    /// Returns the byte offset of an input's block if it can be read in place; otherwise gathers it to scratch memory.
    fn fetch(
        &self,
        input: &BlockInput<'_>,
        block: &mut [u8],
        position: BlockPosition,
        here: &[u8],
    ) -> Option<usize> {
        let size = input.size;
        let at = position.start;
        match &input.access {
            Access::Scalar(_) => {}
            Access::Contiguous(_) => return Some(at * size),
            Access::Aliased => block.copy_from_slice(here),
            Access::Strided {
                bytes,
                offset,
                strides,
                repeats,
                transposed,
            } => {
                if *transposed {
                    return Some((at - position.chunk_start) * size);
                }
                let view = StridedView {
                    axes: self.axes,
                    offset: *offset,
                    strides,
                };
                let inner = strides[self.axes.rank() - 1];
                if self.row != usize::MAX && inner == 1 {
                    return Some(view.offset_of(at) * size);
                }
                // Blocks start at rows, so a later one is equal to the first or a prefix of it.
                let is_same = *repeats
                    && self.row == usize::MAX
                    && self.block.is_multiple_of(self.axes.inner());
                if at == position.chunk_start || !is_same {
                    view.gather(size, bytes, at, block);
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
        let (staging, slots) = slots.split_last_mut().expect("one more than the slots");
        for call in &self.program.calls {
            let is_last = call.to == usize::MAX;
            // Taken while it is written; it is never an argument of the same call.
            let to: &mut [u8] = if is_last {
                &mut []
            } else {
                std::mem::take(&mut slots[call.to])
            };
            let arg = |source: ArgSource| match source {
                ArgSource::None => &[][..],
                ArgSource::Input(i) => inputs(i),
                ArgSource::Scalar(i) => &inputs(i)[..self.inputs[i].size],
                ArgSource::Slot(i) => &*slots[i],
            };
            let args = Args {
                a: arg(call.args[0]),
                b: arg(call.args[1]),
                c: arg(call.args[2]),
                parameter: call.parameter,
            };
            if is_last && self.nontemporal {
                let block = &mut staging[..here.len()];
                (call.kernel)(&args, block);
                nontemporal::copy(block, here);
            } else if is_last {
                (call.kernel)(&args, here);
            } else {
                (call.kernel)(&args, &mut to[..len * call.size]);
                slots[call.to] = to;
            }
        }
    }
}
