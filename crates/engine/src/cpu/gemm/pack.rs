//! Packing: a block of a strided matrix becomes panels in the order in which a micro-kernel reads them.
//!
//! A panel holds as many lines (rows of the left factor, columns of the right one) as a tile has; it
//! lists, step of `k` by step, one element of each. Lines missing in the last panel are zeros. Either
//! direction of the matrix may be the contiguous one; half precision is widened on the way.
#![expect(unsafe_code, reason = "reads views of any strides through pointers")]

use super::float::{Float, Wide, widen};
use super::kernel::{Kernel, Lines, Side};

/// A block to be packed: element (line, step) is at `start + line * line_stride + step * step_stride`.
#[derive(Clone, Copy)]
pub(super) struct Block<T> {
    pub(super) start: *const T,
    pub(super) line: isize,
    pub(super) step: isize,
    pub(super) lines: usize,
    pub(super) depth: usize,
}

impl<T> Block<T> {
    /// # Safety
    /// The element must exist, or be one behind the last.
    unsafe fn at(&self, line: usize, step: usize) -> *const T {
        // SAFETY: the caller's contract.
        unsafe {
            self.start
                .offset(line as isize * self.line + step as isize * self.step)
        }
    }

    /// # Safety
    /// The part must lie inside the block.
    unsafe fn part(&self, line: usize, step: usize, lines: usize, depth: usize) -> Self {
        Self {
            // SAFETY: the caller's contract.
            start: unsafe { self.at(line, step) },
            lines,
            depth,
            ..*self
        }
    }
}

/// Elements of the buffer in which half precision is widened: half of a first-level cache.
const STAGE: usize = 4096;

/// Steps that are copied from one panel before going to the next: long enough to write whole stretches
/// of a panel, short enough to read along the rows of the matrix.
const STRETCH: usize = 8;

/// Packs a block. Panels start `panel` elements apart in `out`.
///
/// # Safety
/// The elements of the block must be readable; `out` must have room for `lines / width` panels, rounded
/// up, of `depth * width` elements, each `panel` after the one before; the processor must have the
/// kernel's instructions.
pub(super) unsafe fn pack<T: Wide, K: Kernel<Float = T::Float>>(
    side: Side,
    block: Block<T>,
    out: *mut T::Float,
    panel: usize,
) {
    let width = side.width::<K>();
    // SAFETY: the parts lie in the block and their panels in `out`.
    unsafe {
        if T::SAME {
            let block = Block {
                start: block.start.cast::<T::Float>(),
                line: block.line,
                step: block.step,
                lines: block.lines,
                depth: block.depth,
            };
            pack_floats::<K>(side, block, out, panel);
        } else if block.line == 1 {
            let most = STAGE / STRETCH / width * width;
            for step in (0..block.depth).step_by(STRETCH) {
                let depth = STRETCH.min(block.depth - step);
                for line in (0..block.lines).step_by(most) {
                    let part = block.part(line, step, most.min(block.lines - line), depth);
                    let out = out.add(line / width * panel + step * width);
                    pack_staged::<T, K>(side, part, out, panel);
                }
            }
        } else if block.step == 1 {
            let most = STAGE / width / STRETCH * STRETCH;
            for line in (0..block.lines).step_by(width) {
                for step in (0..block.depth).step_by(most) {
                    let lines = width.min(block.lines - line);
                    let part = block.part(line, step, lines, most.min(block.depth - step));
                    let out = out.add(line / width * panel + step * width);
                    pack_staged::<T, K>(side, part, out, panel);
                }
            }
        } else {
            pack_singly(block, T::widen, width, out, panel);
        }
    }
}

/// Widens a block of at most `STAGE` elements, contiguous in one direction, and packs the result.
///
/// # Safety
/// As for [`pack`].
unsafe fn pack_staged<T: Wide, K: Kernel<Float = T::Float>>(
    side: Side,
    block: Block<T>,
    out: *mut T::Float,
    panel: usize,
) {
    let mut stage = [T::Float::ZERO; STAGE];
    let along = block.line == 1;
    let (runs, len, stride) = if along {
        (block.depth, block.lines, block.step)
    } else {
        (block.lines, block.depth, block.line)
    };
    for (run, to) in stage.chunks_mut(len).take(runs).enumerate() {
        // SAFETY: a run lies in the block.
        let from =
            unsafe { std::slice::from_raw_parts(block.start.offset(run as isize * stride), len) };
        widen(K::LEVEL, from, to);
    }
    let len = len as isize;
    let block = Block {
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
unsafe fn pack_floats<K: Kernel>(
    side: Side,
    block: Block<K::Float>,
    out: *mut K::Float,
    panel: usize,
) {
    let width = side.width::<K>();
    let whole = block.lines / width;
    // SAFETY: the parts lie in the block and their panels in `out`.
    unsafe {
        if block.line == 1 {
            for step in (0..block.depth).step_by(STRETCH) {
                let depth = STRETCH.min(block.depth - step);
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
            let part = block.part(0, 0, whole * width, block.depth);
            pack_singly(part, |x| x, width, out, panel);
        }
        let rest = block.lines - whole * width;
        if rest > 0 {
            let part = block.part(whole * width, 0, rest, block.depth);
            pack_singly(part, |x| x, width, out.add(whole * panel), panel);
        }
    }
}

/// Packs element by element.
///
/// # Safety
/// As for [`pack`].
unsafe fn pack_singly<T: Copy, F: Float>(
    block: Block<T>,
    widen: impl Fn(T) -> F,
    width: usize,
    out: *mut F,
    panel: usize,
) {
    for (i, line) in (0..block.lines).step_by(width).enumerate() {
        let lines = width.min(block.lines - line);
        for step in 0..block.depth {
            // SAFETY: the elements lie in the block, the panel in `out`.
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
