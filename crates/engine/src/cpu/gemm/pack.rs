//! Packing: copies a block of a strided matrix into panels, in the order in which a micro-kernel reads them.
//!
//! A panel has as many lines (rows of the left factor, columns of the right one) as a tile; for each step of `k` it
//! stores one element of every line. The last panel is padded with zeros. Either direction of the matrix may be the
//! contiguous one; half precision is widened while it is packed.
#![expect(unsafe_code, reason = "reads views of any strides through pointers")]

use super::float::{FloatElement, GemmFloat, widen};
use super::kernel::{Lines, MicroKernel, Side};

/// A block to be packed: element (line, step) is at `start + line * line_stride + step * step_stride`.
#[derive(Clone, Copy)]
pub(super) struct StridedBlock<T> {
    pub(super) start: *const T,
    pub(super) line: isize,
    pub(super) step: isize,
    pub(super) lines: usize,
    pub(super) depth: usize,
}

impl<T> StridedBlock<T> {
    /// # Safety
    /// The element must exist, or be one past the last.
    unsafe fn at(&self, line: usize, step: usize) -> *const T {
        // SAFETY: the caller's contract.
        unsafe {
            self.start
                .offset(line as isize * self.line + step as isize * self.step)
        }
    }

    /// # Safety
    /// The sub-block must be inside the block.
    unsafe fn sub_block(&self, line: usize, step: usize, lines: usize, depth: usize) -> Self {
        Self {
            // SAFETY: the caller's contract.
            start: unsafe { self.at(line, step) },
            lines,
            depth,
            ..*self
        }
    }
}

/// Elements of the staging buffer in which half precision is widened: half of an L1 cache.
const STAGE_ELEMENTS: usize = 4096;

/// Steps copied into one panel before moving to the next: many enough to write long runs of a panel, few enough to
/// read along the rows of the matrix.
const COPY_STEPS: usize = 8;

/// Packs a block. Panels start `panel` elements apart in `out`.
///
/// # Safety
/// The elements of the block must be readable; `out` must be writable for `lines / width` panels, rounded up, of
/// `depth * width` elements, each `panel` after the previous; the processor must have the kernel's
/// instructions.
pub(super) unsafe fn pack<T: FloatElement, K: MicroKernel<Float = T::Float>>(
    side: Side,
    block: StridedBlock<T>,
    out: *mut T::Float,
    panel: usize,
) {
    let width = side.width::<K>();
    // SAFETY: the sub-blocks are inside the block and their panels inside `out`.
    unsafe {
        if T::SAME {
            let block = StridedBlock {
                start: block.start.cast::<T::Float>(),
                line: block.line,
                step: block.step,
                lines: block.lines,
                depth: block.depth,
            };
            pack_floats::<K>(side, block, out, panel);
        } else if block.line == 1 {
            let max_lines = STAGE_ELEMENTS / COPY_STEPS / width * width;
            for step in (0..block.depth).step_by(COPY_STEPS) {
                let depth = COPY_STEPS.min(block.depth - step);
                for line in (0..block.lines).step_by(max_lines) {
                    let sub_block =
                        block.sub_block(line, step, max_lines.min(block.lines - line), depth);
                    let out = out.add(line / width * panel + step * width);
                    pack_staged::<T, K>(side, sub_block, out, panel);
                }
            }
        } else if block.step == 1 {
            let max_steps = STAGE_ELEMENTS / width / COPY_STEPS * COPY_STEPS;
            for line in (0..block.lines).step_by(width) {
                for step in (0..block.depth).step_by(max_steps) {
                    let lines = width.min(block.lines - line);
                    let sub_block =
                        block.sub_block(line, step, lines, max_steps.min(block.depth - step));
                    let out = out.add(line / width * panel + step * width);
                    pack_staged::<T, K>(side, sub_block, out, panel);
                }
            }
        } else {
            pack_elements(block, T::widen, width, out, panel);
        }
    }
}

/// Widens a block of at most [`STAGE_ELEMENTS`], contiguous in one direction, and packs the result.
///
/// # Safety
/// As for [`pack`].
unsafe fn pack_staged<T: FloatElement, K: MicroKernel<Float = T::Float>>(
    side: Side,
    block: StridedBlock<T>,
    out: *mut T::Float,
    panel: usize,
) {
    let mut stage = [T::Float::ZERO; STAGE_ELEMENTS];
    let along = block.line == 1;
    let (runs, len, stride) = if along {
        (block.depth, block.lines, block.step)
    } else {
        (block.lines, block.depth, block.line)
    };
    for (run, to) in stage.chunks_mut(len).take(runs).enumerate() {
        // SAFETY: a run is inside the block.
        let from =
            unsafe { std::slice::from_raw_parts(block.start.offset(run as isize * stride), len) };
        widen(K::LEVEL, from, to);
    }
    let len = len as isize;
    let block = StridedBlock {
        start: stage.as_ptr(),
        line: if along { 1 } else { len },
        step: if along { len } else { 1 },
        lines: block.lines,
        depth: block.depth,
    };
    // SAFETY: the caller's contract; the stage has the block's elements.
    unsafe { pack_floats::<K>(side, block, out, panel) };
}

/// # Safety
/// As for [`pack`].
unsafe fn pack_floats<K: MicroKernel>(
    side: Side,
    block: StridedBlock<K::Float>,
    out: *mut K::Float,
    panel: usize,
) {
    let width = side.width::<K>();
    let whole = block.lines / width;
    // SAFETY: the sub-blocks are inside the block and their panels inside `out`.
    unsafe {
        if block.line == 1 {
            for step in (0..block.depth).step_by(COPY_STEPS) {
                let depth = COPY_STEPS.min(block.depth - step);
                for i in 0..whole {
                    let steps = Lines {
                        start: block.at(i * width, step),
                        line: block.step,
                        depth,
                    };
                    K::copy(side, steps, out.add(i * panel + step * width));
                }
            }
        } else if block.step == 1 {
            for i in 0..whole {
                let lines = Lines {
                    start: block.at(i * width, 0),
                    line: block.line,
                    depth: block.depth,
                };
                K::interleave(side, lines, out.add(i * panel));
            }
        } else {
            let sub_block = block.sub_block(0, 0, whole * width, block.depth);
            pack_elements(sub_block, |x| x, width, out, panel);
        }
        let rest = block.lines - whole * width;
        if rest > 0 {
            let sub_block = block.sub_block(whole * width, 0, rest, block.depth);
            pack_elements(sub_block, |x| x, width, out.add(whole * panel), panel);
        }
    }
}

/// Packs element by element.
///
/// # Safety
/// As for [`pack`].
unsafe fn pack_elements<T: Copy, F: GemmFloat>(
    block: StridedBlock<T>,
    widen: impl Fn(T) -> F,
    width: usize,
    out: *mut F,
    panel: usize,
) {
    for (i, line) in (0..block.lines).step_by(width).enumerate() {
        let lines = width.min(block.lines - line);
        for step in 0..block.depth {
            // SAFETY: the elements are inside the block, the panel inside `out`.
            unsafe {
                let out = out.add(i * panel + step * width);
                for j in 0..lines {
                    *out.add(j) = widen(*block.at(line + j, step));
                }
                for j in lines..width {
                    *out.add(j) = F::ZERO;
                }
            }
        }
    }
}
