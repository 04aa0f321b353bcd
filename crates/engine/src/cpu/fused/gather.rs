//! Gathers the elements of strided inputs into contiguous blocks.

use bytemuck::Pod;

use crate::Shape;
use crate::shape::MAX_RANK;

/// The axes of a result after merging: neighbouring axes are merged if they are contiguous to each other in every input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MergedAxes {
    dims: [usize; MAX_RANK],
    rank: usize,
}

/// Rows and columns of a transpose tile: a cache line of 4-byte elements.
const TILE_LEN: usize = 16;

/// Maximum elements of a chunk that is gathered by tiles: they should stay in a cache of 512 KiB.
const MAX_TILED_CHUNK_LEN: usize = 64 << 10;

/// The strides of an input along the [`MergedAxes`].
pub(crate) type Strides = [isize; MAX_RANK];

impl MergedAxes {
    /// Merges the axes of `shape` where possible; `strides` are the strides of the inputs along `shape`, and are
    /// replaced by those along the merged axes.
    pub(crate) fn collapse(shape: &Shape, strides: &mut [Strides]) -> Self {
        let mut axes = Self {
            dims: [1; MAX_RANK],
            rank: 0,
        };
        for (from, &len) in shape.iter().enumerate() {
            if len == 1 {
                continue;
            }
            let merges = axes.rank > 0
                && strides
                    .iter()
                    .all(|s| s[axes.rank - 1] == s[from].wrapping_mul(len as isize));
            if !merges {
                axes.rank += 1;
                axes.dims[axes.rank - 1] = 1;
            }
            let to = axes.rank - 1;
            axes.dims[to] *= len;
            for s in &mut *strides {
                s[to] = s[from];
            }
        }
        if axes.rank == 0 {
            axes.rank = 1;
            strides.iter_mut().for_each(|s| s[0] = 0);
        }
        axes
    }

    /// The length of the innermost axis.
    pub(crate) fn inner(&self) -> usize {
        self.dims[self.rank - 1]
    }

    /// The lengths of the axes.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.dims[..self.rank]
    }

    /// Number of axes, at least one.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// For an input that is transposed, i.e. not contiguous along the innermost axis: the axis with the smallest stride,
    /// if a tiled transpose of both axes pays off.
    pub(crate) fn transposed_axis(&self, strides: &Strides) -> Option<usize> {
        let inner = self.rank - 1;
        let step = strides[inner].unsigned_abs();
        if step < 2 || self.dims[inner] < TILE_LEN / 2 {
            return None;
        }
        (0..inner)
            .filter(|&a| self.dims[a] >= TILE_LEN / 2)
            .filter(|&a| (1..step).contains(&strides[a].unsigned_abs()))
            .min_by_key(|&a| strides[a].unsigned_abs())
    }

    /// The stride of an axis in the (contiguous) result.
    fn step(&self, axis: usize) -> usize {
        self.dims[axis + 1..self.rank].iter().product()
    }

    /// Adjusts a chunk length so that chunks consist of whole tiles, unless that needs far longer chunks.
    pub(crate) fn chunk(&self, chunk: usize) -> usize {
        let tiles = TILE_LEN * self.step(0);
        match tiles {
            _ if self.rank < 2 => chunk,
            t if t <= chunk => chunk - chunk % t,
            t if t <= MAX_TILED_CHUNK_LEN.max(chunk) => t,
            _ => chunk,
        }
    }

    /// The index of an element of the result along each axis.
    fn index(&self, mut at: usize) -> [usize; MAX_RANK] {
        let mut index = [0; MAX_RANK];
        for (i, &len) in index.iter_mut().zip(self.dims()).rev() {
            *i = at % len;
            at /= len;
        }
        index
    }
}

/// A strided view of an input's storage: the first element is at `offset`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StridedView<'a> {
    pub(crate) axes: &'a MergedAxes,
    pub(crate) offset: usize,
    pub(crate) strides: &'a Strides,
}

impl StridedView<'_> {
    /// The storage offset of element number `start` of the result.
    pub(crate) fn offset_of(&self, start: usize) -> usize {
        self.offset_at(&self.axes.index(start))
    }

    fn offset_at(&self, index: &[usize]) -> usize {
        let mut at = self.offset;
        for (&i, &s) in index[..self.axes.rank].iter().zip(self.strides) {
            at = at.wrapping_add_signed(i as isize * s);
        }
        at
    }

    /// Fills `out` with the elements from number `start` on, contiguously. `from` is the whole storage; elements have
    /// `size` bytes.
    pub(crate) fn gather(&self, size: usize, from: &[u8], start: usize, out: &mut [u8]) {
        use bytemuck::{cast_slice, cast_slice_mut};
        match size {
            1 => self.gather_all(from, start, out),
            2 => self.gather_all::<u16>(cast_slice(from), start, cast_slice_mut(out)),
            4 => self.gather_all::<u32>(cast_slice(from), start, cast_slice_mut(out)),
            _ => self.gather_all::<u64>(cast_slice(from), start, cast_slice_mut(out)),
        }
    }

    fn gather_all<T: Pod>(&self, from: &[T], start: usize, out: &mut [T]) {
        let Some(axis) = self.axes.transposed_axis(self.strides) else {
            return self.gather_rows(from, start, out);
        };
        // Gather by tiles where whole steps of the other axis are requested.
        let step = self.axes.step(axis);
        let (mut at, mut rest) = (start, out);
        while !rest.is_empty() {
            let within = at % step;
            let len = if within == 0 && rest.len() >= step {
                let left = self.axes.dims[axis] - at / step % self.axes.dims[axis];
                (rest.len() / step).min(left) * step
            } else {
                (step - within).min(rest.len())
            };
            let (here, next) = std::mem::take(&mut rest).split_at_mut(len);
            if len.is_multiple_of(step) && within == 0 {
                self.gather_tiles(axis, from, at, here);
            } else {
                self.gather_rows(from, at, here);
            }
            at += len;
            rest = next;
        }
    }

    /// Gathers whole steps of `axis`: `out` has all elements of the axes inside it.
    fn gather_tiles<T: Pod>(&self, axis: usize, from: &[T], start: usize, out: &mut [T]) {
        let Self { axes, strides, .. } = *self;
        let (inner, step) = (axes.rank - 1, axes.step(axis));
        let (rows, columns) = (out.len() / step, axes.dims[inner]);
        let (down, right) = (strides[axis], strides[inner]);
        let mut index = axes.index(start);
        for middle in (0..step).step_by(columns) {
            let at = self.offset_at(&index);
            let mut tile = [[T::zeroed(); TILE_LEN]; TILE_LEN];
            for row in (0..rows).step_by(TILE_LEN) {
                let height = TILE_LEN.min(rows - row);
                for column in (0..columns).step_by(TILE_LEN) {
                    let width = TILE_LEN.min(columns - column);
                    let corner = at
                        .wrapping_add_signed(row as isize * down)
                        .wrapping_add_signed(column as isize * right);
                    for (c, line) in tile[..width].iter_mut().enumerate() {
                        let at = corner.wrapping_add_signed(c as isize * right);
                        match down {
                            // A separate case so that the length of full tiles is a constant.
                            1 if height == TILE_LEN => {
                                line.copy_from_slice(&from[at..at + TILE_LEN])
                            }
                            1 => line[..height].copy_from_slice(&from[at..at + height]),
                            _ => {
                                let mut i = at;
                                for x in &mut line[..height] {
                                    *x = from[i];
                                    i = i.wrapping_add_signed(down);
                                }
                            }
                        }
                    }
                    for r in 0..height {
                        let to = &mut out[(row + r) * step + middle + column..];
                        if width == TILE_LEN {
                            for (y, line) in to[..TILE_LEN].iter_mut().zip(&tile) {
                                *y = line[r];
                            }
                        } else {
                            for (y, line) in to[..width].iter_mut().zip(&tile) {
                                *y = line[r];
                            }
                        }
                    }
                }
            }
            for a in (axis + 1..inner).rev() {
                index[a] += 1;
                if index[a] < axes.dims[a] {
                    break;
                }
                index[a] = 0;
            }
        }
    }

    fn gather_rows<T: Pod>(&self, from: &[T], start: usize, out: &mut [T]) {
        let Self { axes, strides, .. } = *self;
        let mut index = axes.index(start);
        let mut at = self.offset_at(&index);
        let inner = axes.rank - 1;
        let step = strides[inner];
        let mut rest = out;
        loop {
            let len = (axes.dims[inner] - index[inner]).min(rest.len());
            let (row, next) = std::mem::take(&mut rest).split_at_mut(len);
            pick(from, at, step, row);
            if next.is_empty() {
                return;
            }
            rest = next;
            // To the start of the next row.
            at = at.wrapping_add_signed(-(index[inner] as isize) * step);
            index[inner] = 0;
            for axis in (0..inner).rev() {
                index[axis] += 1;
                at = at.wrapping_add_signed(strides[axis]);
                if index[axis] < axes.dims[axis] {
                    break;
                }
                at = at.wrapping_add_signed(-(axes.dims[axis] as isize) * strides[axis]);
                index[axis] = 0;
            }
        }
    }
}

/// Copies every `step`th element from number `at` on.
fn pick<T: Pod>(from: &[T], at: usize, step: isize, out: &mut [T]) {
    match step {
        1 => out.copy_from_slice(&from[at..at + out.len()]),
        0 => out.fill(from[at]),
        -1 => {
            let from = &from[at + 1 - out.len()..=at];
            for (y, x) in out.iter_mut().zip(from.iter().rev()) {
                *y = *x;
            }
        }
        2.. => {
            for (y, x) in out.iter_mut().zip(from[at..].iter().step_by(step as usize)) {
                *y = *x;
            }
        }
        _ => {
            let from = from[..=at].iter().rev().step_by(step.unsigned_abs());
            for (y, x) in out.iter_mut().zip(from) {
                *y = *x;
            }
        }
    }
}

/// Fills a block with one element, given by its bytes.
pub(crate) fn splat(element: &[u8], out: &mut [u8]) {
    match element.len() {
        1 => out.fill(element[0]),
        2 => fill::<u16>(element, out),
        4 => fill::<u32>(element, out),
        _ => fill::<u64>(element, out),
    }
}

fn fill<T: Pod>(element: &[u8], out: &mut [u8]) {
    bytemuck::cast_slice_mut(out).fill(bytemuck::pod_read_unaligned::<T>(element));
}
